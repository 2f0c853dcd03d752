"""How a Byzantine client tells every recipient something else.

An equivocation takes the update u that the client should have sent, the message m that its attack made of
it, and a draw for the recipient, uniform in (0, 1); it returns what that recipient is told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeAlias

import torch
from annotated_types import Ge, Le
from torch import Tensor

from rdpfl_sim.components.options import LARGE, Doc
from rdpfl_sim.components.registry import Facts, Registry

EQUIVOCATIONS = Registry("equivocation", Facts)
equivocation = EQUIVOCATIONS.register

Equivocation: TypeAlias = Callable[[Tensor, Tensor, float], Tensor]

Factor: TypeAlias = Annotated[float, Ge(-LARGE), Le(LARGE)]


@equivocation(name="none")
def same(u: Tensor, m: Tensor, draw: float) -> Tensor:
    """m: everybody is told the same."""
    return m


@equivocation
def scaled(
    u: Tensor,
    m: Tensor,
    draw: float,
    *,
    low: Annotated[Factor, Doc("the least factor; -1 is the lie reversed, 0 the truth")] = 0.5,
    high: Factor = 1.5,
) -> Tensor:
    """u + s (m - u), s between low and high: the same lie, larger for some and smaller for others."""
    return _finite(u + (low + (high - low) * draw) * (m - u))


@equivocation
def mirrored(u: Tensor, m: Tensor, draw: float) -> Tensor:
    """m to one half of the recipients, 2 u - m to the other: opposite lies, which drive them apart."""
    return m if draw < 0.5 else _finite(2 * u - m)


def _finite(m: Tensor) -> Tensor:
    """m; an entry that has overflowed becomes the largest number there is, as an infinite one is refused."""
    limit = torch.finfo(m.dtype).max
    return m.clamp(-limit, limit)
