"""Equivocation: a Byzantine client sends different vectors to different recipients.

An equivocation takes the client's honest update u, the vector m of its attack, and a uniform draw in (0, 1)
for the recipient. It returns the vector for that recipient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeAlias

from annotated_types import Ge, Le
from torch import Tensor

from rdpfl_sim.components.options import LARGE, Doc, in_order
from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.vectors import clamp_finite

EQUIVOCATIONS = Registry("equivocation", Facts)
equivocation = EQUIVOCATIONS.register

Equivocation: TypeAlias = Callable[[Tensor, Tensor, float], Tensor]

Factor: TypeAlias = Annotated[float, Ge(-LARGE), Le(LARGE)]


@equivocation(name="none")
def same(u: Tensor, m: Tensor, draw: float) -> Tensor:
    """m: the same vector to every recipient."""
    return m


@equivocation(check=in_order("low", "high"))
def scaled(
    u: Tensor,
    m: Tensor,
    draw: float,
    *,
    low: Annotated[Factor, Doc("smallest factor; -1 reverses the attack, 0 cancels it")] = 0.5,
    high: Annotated[Factor, Doc("largest factor")] = 1.5,
) -> Tensor:
    """u + s (m - u), s between low and high: the same attack with a different strength per recipient."""
    return clamp_finite(u + (low + (high - low) * draw) * (m - u))


@equivocation
def mirrored(u: Tensor, m: Tensor, draw: float) -> Tensor:
    """m to half of the recipients, 2 u - m to the others: opposite changes, which drive them apart."""
    return m if draw < 0.5 else clamp_finite(2 * u - m)
