"""What the methods that exchange models have in common: everybody moves towards its neighbours' models.

The models stay where they were trained, w~; a round ends with w <- w~ + sum_j a_j (x_j - w~), where x_j is
the model that neighbour j has sent and a_j >= 0 the share that it is given. The shares add up to at most 1,
and what is left is the client's own. A neighbour from whom nothing came has no share. A client whose own
model has diverged has nothing to compare others with: it goes on as it is.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import inf, isnan
from typing import Annotated, TypeAlias

import torch
from torch import Tensor

from rdpfl_sim.components.options import Doc, Fraction
from rdpfl_sim.maths.vectors import norm
from rdpfl_sim.methods import base
from rdpfl_sim.methods.exchange import Local, Payload, Received, is_finite

OwnShare: TypeAlias = Annotated[Fraction, Doc("the share of the own model in the new one")]


class ModelExchange(base.Method):
    """A method that sends its trained model."""

    def outgoing(self, state: base.State, own: Local, home: base.Home) -> tuple[base.State, Payload]:
        """The trained model w~."""
        return state, Payload(own.w_tilde)

    def origin(self, state: base.State) -> Tensor:
        """The model before its training."""
        return state.w

    def displacement(self, state: base.State, x: Tensor, w: Tensor) -> dict[str, float | None]:
        """Return how far neighbours moved what was sent, x, to w; and that relative to its training."""
        moved = norm(w - x)
        by_training = norm(x - self.origin(state))
        return {"moved": moved, "neighbour_share": base.neighbour_share(moved, by_training)}


class Gossip(ModelExchange):
    """A method that gives every model that arrives a share in the new one."""

    @abstractmethod
    def shares(self, x: Tensor, received: Sequence[Received], home: base.Home) -> list[float]:
        """The share a_j of every message, given the own trained model x, which is finite."""

    def granted(self, x: Tensor, received: Sequence[Received], home: base.Home) -> list[float]:
        """The shares; nobody has one if the own model has diverged."""
        if not received or not is_finite(x):
            return [0.0] * len(received)
        return self.shares(x, received, home)

    def update(
        self, state: base.State, own: Local, received: Sequence[Received], home: base.Home
    ) -> tuple[base.State, base.Diagnostics]:
        """The mixture of the own and the neighbours' models."""
        w, report = self.mixture(state, own.w_tilde, received, home)
        return base.State(w), report

    def mixture(
        self, state: base.State, x: Tensor, received: Sequence[Received], home: base.Home
    ) -> tuple[Tensor, base.Diagnostics]:
        """The own model x, moved towards those that arrived, and what happened on the way."""
        shares = self.granted(x, received, home)
        mixed = mix(x, received, shares)
        num_accepted = sum(share > 0 for share in shares)
        return mixed, {"num_accepted": num_accepted, **self.displacement(state, x, mixed)}

    def inspect(
        self, state: base.State, own: Local, received: Sequence[Received], home: base.Home
    ) -> base.Inspection:
        """How far each model is from the own, and its share."""
        x = own.w_tilde
        return base.Inspection(distances(x, received), None, self.granted(x, received, home))


def mix(x: Tensor, received: Sequence[Received], shares: Sequence[float]) -> Tensor:
    """(1 - sum_j a_j) x + sum_j a_j x_j, a new vector."""
    if not any(shares):
        return x.clone()
    mixed = x * max(0.0, 1.0 - sum(shares))
    for message, share in zip(received, shares, strict=True):
        mixed.add_(message.vector, alpha=share)
    return finite(mixed)


def finite(mixed: Tensor) -> Tensor:
    """A mixture of finite models, changed in place: where rounding made it overflow, the largest number."""
    limit = torch.finfo(mixed.dtype).max
    return mixed.clamp_(-limit, limit)


def distances(x: Tensor, received: Sequence[Received]) -> list[float]:
    """|x_j - x| for every message; infinite where float32 cannot hold a difference, or x has diverged."""
    lengths = [norm(message.vector - x) for message in received]
    return [inf if isnan(length) else length for length in lengths]


def metropolis(received: Sequence[Received], home: base.Home) -> list[float]:
    """W_ij = 1 / (1 + max(deg_i, deg_j)), less for a stale message: doubly stochastic on any graph.

    Xiao and Boyd 2004. The weight of a neighbour from whom nothing came stays with the own model.
    """
    own = home.degree()
    return [m.weight / (1 + max(own, home.degree(m.sender))) for m in received]


def equal_shares(received: Sequence[Received], accepted: Sequence[bool], total: float) -> list[float]:
    """The same share of `total` for every accepted message, less for a stale one, and none for the others."""
    num = sum(accepted)
    return [total * m.weight / num if yes else 0.0 for m, yes in zip(received, accepted, strict=True)]
