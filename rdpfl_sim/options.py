"""Types for the options of components: the bounds are part of the type, so the schema knows them.

A component is a function or a class whose keyword-only parameters are its TOML options:

    def noise(view: View, *, sigma: Annotated[Positive, Doc("standard deviation")] = 1.0) -> Tensor:
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from annotated_types import Ge, Gt, Le, Lt
from typing_extensions import Doc

LARGE = 1e30
"""No option is larger: float32 could not hold it, and simulated time would lose its meaning."""

Positive: TypeAlias = Annotated[float, Gt(0), Le(LARGE)]
NonNegative: TypeAlias = Annotated[float, Ge(0), Le(LARGE)]
Fraction: TypeAlias = Annotated[float, Ge(0), Le(1)]
PositiveFraction: TypeAlias = Annotated[float, Gt(0), Le(1)]
Probability: TypeAlias = Annotated[float, Ge(0), Lt(1)]
Count: TypeAlias = Annotated[int, Ge(1)]
NonNegativeInt: TypeAlias = Annotated[int, Ge(0)]

__all__ = [
    "Count",
    "Doc",
    "Fraction",
    "NonNegative",
    "NonNegativeInt",
    "Positive",
    "PositiveFraction",
    "Probability",
]
