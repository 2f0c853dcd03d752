"""Observations of an attacker and the decorator of attacks.

An attack is a function from the attacker's observations (`View`) to the vector that it sends. The arguments
of its decorator declare the observations that it needs (`AttackFacts`). In the formulas, u is the attacker's
own update, and mu and sigma are the coordinate-wise mean and (population) standard deviation of the honest
updates g_1..g_h.

An update is a vector that the method sends. Attacks that reverse or amplify a change (sign_flip, scaling,
ipm, adaptive, zero, and min_max and min_sum along unit_vec or sign) measure it from `View.origin`, so that
they have the same effect on methods that send models.

Mailboxes reject vectors that are not finite. Attacks therefore return finite vectors for finite updates: an
entry that overflows becomes the largest number of its type. `nan` and `inf` are the exceptions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.vectors import blocks, clamp_finite, square_root


@dataclass(frozen=True)
class View:
    """The observations of an attacker when it computes a message.

    `own` is the attacker's own update in this `round`. `honest` (h, d) are the observed updates of the
    clients `ids`, and `num_byzantine` is the number of cooperating attackers. For an attack that needs its
    victim, both include only neighbours of the victim; `victim` is then the victim's own update and
    `expected` its predicted direction, if they are known. `origin` is the vector that the attacker would send
    without training: its model, or None for zero if clients send directions. `seed` identifies a random
    stream for the message, and `generator` draws from it. `memory` is kept between rounds.
    """

    own: Tensor
    seen: Tensor | None = None
    ids: Sequence[int] = ()
    victim: Tensor | None = None
    expected: Tensor | None = None
    num_byzantine: int = 1
    round: int = 1
    seed: int = 0
    origin: Tensor | None = None
    memory: dict[str, Any] = field(default_factory=dict)

    @property
    def honest(self) -> Tensor:
        """The honest updates (h, d), for attacks declared to need them."""
        if self.seen is None:
            raise TypeError(
                "an attack that uses view.honest must be declared with @attack(needs='honest') or 'victim'"
            )
        return self.seen

    @cached_property
    def generator(self) -> torch.Generator:
        """A generator on the CPU for random draws, seeded with `seed`."""
        return torch.Generator().manual_seed(self.seed)

    def changed(self, update: Tensor, factor: float) -> Tensor:
        """Return o + factor (update - o), with the origin o: a change that is reversed or amplified."""
        if self.origin is None:
            return update * factor
        origin = self.origin.double()  # a difference can overflow in float32, and 0 times infinity is NaN
        return origin + factor * (update - origin)


Attack: TypeAlias = Callable[[View], Tensor]


@dataclass(frozen=True, kw_only=True)
class AttackFacts(Facts):
    """Metadata of an attack, set by its decorator."""

    needs: Literal["own", "honest", "victim"] = "own"
    """Fields of the `View` that the attack uses. With "honest", attackers wait until the honest updates of
    the round exist. "victim" includes "honest", and the attack is called once per recipient."""
    collective: bool = False
    """Whether attackers with the same observations send the same vector, which is then computed once, from
    the `origin` of the first of them."""
    poisons_labels: bool = False
    """Whether attackers train on flipped labels."""
    sends_own: bool = False
    """Whether attackers send their own update, so that it cannot differ between recipients."""
    sends_malformed: bool = False
    """Whether the attack intentionally sends vectors of a wrong shape, NaN or infinity."""


ATTACKS = Registry("attack", AttackFacts)
attack = ATTACKS.register


def as_update(m: Tensor, view: View) -> Tensor:
    """Return m in the type of an update; an entry that overflows becomes the largest number of that type."""
    return clamp_finite(m, view.own.dtype).to(view.own.dtype)


def moments(g: Tensor) -> tuple[Tensor, Tensor]:
    """Return mu and sigma of the rows in float64, because squares of large float32 numbers overflow."""
    moments = []
    for (rows,) in blocks(g):
        mu = rows.mean(dim=0, dtype=torch.float64)
        moments.append(torch.stack([mu, square_root((rows - mu).square().mean(dim=0))]))
    mu, sigma = torch.cat(moments, dim=1)
    return mu, sigma


def unit(x: Tensor) -> Tensor:
    """Return x / |x|, or 0 for 0."""
    return torch.nn.functional.normalize(x, dim=0, eps=torch.finfo(x.dtype).tiny)
