"""Exchange of models: every client moves towards its neighbours' models.

A round ends with w <- x + sum_j a_j (x_j - x), where x is the client's trained model, x_j the model that
neighbour j has sent and a_j >= 0 its share. The shares add up to at most 1; the rest is the share of x. A
client whose own model has diverged keeps it, because other models cannot be compared with it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import torch
from torch import Tensor

from rdpfl_sim.components.options import Doc, Fraction
from rdpfl_sim.methods.base import (
    ClientView,
    Diagnostics,
    Inbox,
    MessageStats,
    Method,
    Outgoing,
    Report,
    State,
    Trained,
    neighbour_share,
)
from rdpfl_sim.vectors import clamp_finite, message_distances, row_norms

OwnShare: TypeAlias = Annotated[Fraction, Doc("share of the client's own model in the new model")]


@dataclass(frozen=True, eq=False)
class Displacement(Report):
    """Messages with a share, and the distance that neighbours moved the model, also per local training."""

    num_accepted: Tensor | None  # (n,), None if messages have no shares
    moved: Tensor  # (n,)
    neighbour_share: Tensor  # (n,)


class ModelExchange(Method):
    """A method that sends its trained model."""

    def payload(
        self, state: State, trained: Trained, clients: Sequence[ClientView]
    ) -> tuple[State, Outgoing]:
        """Send the trained models."""
        return state, Outgoing(trained.w)

    def reference_point(self, state: State) -> Tensor:
        """Return the models before their training."""
        return state.w

    def displacement(
        self, state: State, x: Tensor, w: Tensor, num_accepted: Tensor | None = None
    ) -> Displacement:
        """Return the report of a round in which the sent model x became the mixed model w."""
        moved = row_norms(w - x)
        by_training = row_norms(x - self.reference_point(state))
        return Displacement(num_accepted, moved, neighbour_share(moved, by_training))


class Gossip(ModelExchange):
    """A method that gives every received model a share in the new model."""

    @abstractmethod
    def shares(self, x: Tensor, inbox: Inbox, clients: Sequence[ClientView]) -> Tensor:
        """Return the share a_j of every message, (n, m) in float64, given the trained models x (n, p)."""

    def update(
        self, state: State, trained: Trained, inbox: Inbox, clients: Sequence[ClientView]
    ) -> tuple[State, Diagnostics]:
        """Mix the client's own model with the neighbours' models."""
        w, report = self.mixture(state, trained.w, inbox, clients)
        return State(w), report

    def message_stats(
        self, state: State, trained: Trained, inbox: Inbox, clients: Sequence[ClientView]
    ) -> MessageStats:
        """Return the distance of each model from the client's own, and its share."""
        return self.sent_stats(trained.w, inbox, clients)

    def mixture(
        self, state: State, x: Tensor, inbox: Inbox, clients: Sequence[ClientView]
    ) -> tuple[Tensor, Displacement]:
        """Return the models x after they moved towards the received models, and the report of the move."""
        shares = self.granted_shares(x, inbox, clients)
        mixed = mix(x, inbox, shares)
        return mixed, self.displacement(state, x, mixed, (shares > 0).sum(dim=1))

    def sent_stats(self, x: Tensor, inbox: Inbox, clients: Sequence[ClientView]) -> MessageStats:
        """Return message statistics, given the models x that the clients have sent."""
        return MessageStats(distances(x, inbox), self.granted_shares(x, inbox, clients))

    def granted_shares(self, x: Tensor, inbox: Inbox, clients: Sequence[ClientView]) -> Tensor:
        """Return the shares (n, m); all are zero where the client's own model has diverged."""
        sound = row_norms(x).isfinite()
        if inbox.num_messages == 0 or not sound.any():
            return torch.zeros_like(inbox.weights)
        return self.shares(x, inbox, clients).where(sound.unsqueeze(1), 0.0)


def mix(x: Tensor, inbox: Inbox, shares: Tensor) -> Tensor:
    """Return (1 - sum_j a_j) x + sum_j a_j x_j, given shares (n, m).

    Messages are added one at a time, so that the bits of a row do not depend on the batch.
    """
    total = torch.zeros_like(shares[:, 0]) if inbox.num_messages else shares.new_zeros(len(x))
    for share in shares.unbind(dim=1):
        total = total + share
    mixed = x * (1.0 - total).clamp(min=0.0).to(x.dtype).unsqueeze(1)
    for vectors, share in zip(inbox.vectors.unbind(dim=1), shares.unbind(dim=1), strict=True):
        mixed = mixed + vectors * share.to(x.dtype).unsqueeze(1)
    return clamp_finite(mixed).where((total > 0).unsqueeze(1), x)


def distances(x: Tensor, inbox: Inbox) -> Tensor:
    """Return |x_j - x| (n, m); infinite where a difference overflows float32 or x has diverged."""
    return message_distances(inbox.vectors, x).nan_to_num(nan=torch.inf, posinf=torch.inf)


def metropolis(inbox: Inbox, clients: Sequence[ClientView]) -> Tensor:
    """Return W_ij = 1 / (1 + max(deg_i, deg_j)), smaller for stale messages: doubly stochastic on any graph.

    Xiao and Boyd 2004. The weight of a neighbour whose message is missing is added to the client's own model.
    """
    own = torch.tensor([client.degree for client in clients], device=inbox.degrees.device)
    return inbox.weights / (1 + torch.maximum(inbox.degrees, own.unsqueeze(1)))


def equal_shares(inbox: Inbox, accepted: Tensor, total: float) -> Tensor:
    """Return the same share of `total` for every accepted message, smaller if stale, and 0 for the others."""
    num_accepted = accepted.sum(dim=1, keepdim=True).clamp(min=1)
    return (total * inbox.weights / num_accepted).where(accepted, 0.0)
