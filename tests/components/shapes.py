"""A kind of component for tests."""

from typing import Annotated

from rdpfl_sim.components.options import Count, Doc, Fraction
from rdpfl_sim.components.registry import Facts, Registry

SHAPES = Registry("shape", Facts)
shape = SHAPES.register
FILTERS = Registry("filter", Facts)


@shape
def plain(x: float) -> float:
    """x itself."""
    return x


@shape
def scaled(x: float, *, factor: Annotated[Fraction, Doc("how much")] = 0.5, times: Count) -> float:
    """x scaled."""
    return x * factor * times


@FILTERS.register
def rounded(x: float, *, digits: Count = 1) -> float:
    """x rounded."""
    return round(x, digits)
