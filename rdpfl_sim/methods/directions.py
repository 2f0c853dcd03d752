"""Exchange of descent directions: the local direction u, and the personalised step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

import torch
from torch import Tensor

from rdpfl_sim.components.options import LARGE, Doc, NonNegative, Positive
from rdpfl_sim.errors import OptionError
from rdpfl_sim.maths.vectors import row_norms
from rdpfl_sim.methods.base import Diagnostics, Inbox, Trained
from rdpfl_sim.methods.neighbour_share import neighbour_share

Lambda: TypeAlias = Annotated[NonNegative, Doc("weight of the neighbourhood direction")]
StepSize: TypeAlias = Annotated[
    Literal["local"] | Positive,
    Doc("'local': gamma = coefficient * eta * K, so that lambda = 0 is local SGD; a number is gamma itself"),
]
Coefficient: TypeAlias = Annotated[Positive, Doc("the paper's global update coefficient, for step = 'local'")]


@dataclass(frozen=True)
class PersonalStep:
    """The first and last step of Algorithm 1: the local direction u, and w <- w - gamma (u + lambda d)."""

    learning_rate: float
    lambda_: float
    step: Literal["local"] | float
    coefficient: float

    def __post_init__(self) -> None:
        if self.step != "local" and self.coefficient != 1.0:
            raise OptionError("coefficient", "requires step = 'local'; a number for step is gamma itself")

    def direction(self, w: Tensor, trained: Trained) -> Tensor:
        """Return u = (w - w~) / (eta K), the mean gradient along the K local steps (eq. local_direction).

        The executor `stacked` computes it in advance for all clients of a batch.
        """
        if trained.direction is not None:
            return trained.direction
        return (w - trained.w).div_(_column([self.learning_rate * k for k in trained.num_steps], w))

    def gamma(self, trained: Trained) -> list[float]:
        """Return the clients' step sizes; docs/paper.md, item 4, explains the two readings."""
        if self.step == "local":  # limited to LARGE because of float32
            return [min(self.coefficient * self.learning_rate * k, LARGE) for k in trained.num_steps]
        return [float(self.step)] * len(trained.num_steps)

    def apply(self, w: Tensor, u: Tensor, d: Tensor | None, trained: Trained) -> Tensor:
        """Return w - gamma (u + lambda d) (eq. personalized_update); d = None means zero."""
        direction = u if d is None else torch.add(u, d, alpha=self.lambda_)
        return w - direction * _column(self.gamma(trained), w)

    def diagnostics(self, u: Tensor, d_norm: Tensor) -> Diagnostics:
        """Return |u|, |d| and |lambda d| / |u|, the step due to neighbours."""
        u_norm = row_norms(u)
        share = neighbour_share(self.lambda_ * d_norm, u_norm)
        return {"u_norm": u_norm, "d_norm": d_norm, "neighbour_share": share}


def weighted_messages(inbox: Inbox) -> Tensor:
    """Return the received directions (n, m, d), each scaled by its weight.

    A stale direction with a weight below 1 is shrunk towards zero, which every aggregator reads as no change.
    Scaling by staleness follows Zhang et al. 2016 (staleness-aware asynchronous SGD).
    """
    if inbox.all_fresh:
        return inbox.vectors
    return inbox.vectors * inbox.weights.to(inbox.vectors.dtype).unsqueeze(2)


def distances(messages: Tensor, point: Tensor) -> Tensor:
    """Return |u_j - point| (n, m) for messages u_j (n, m, d) and points (n, d)."""
    lengths: Tensor = torch.linalg.vector_norm(messages - point.unsqueeze(1), dim=2, dtype=torch.float64)
    return lengths


def _column(values: Sequence[float], like: Tensor) -> Tensor:
    """Return one number per row as a column (n, 1) with the type and device of `like`."""
    return torch.tensor(values, dtype=torch.float64, device=like.device).to(like.dtype).unsqueeze(1)
