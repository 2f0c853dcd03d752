"""The anchored estimator: messages are clipped around the client's own update before they are aggregated.

R-DPFL's threshold is a mean of past deviations, which the senders of the messages control: a constant attack
raises the threshold until it is no longer clipped. Here the threshold follows the client's own update, which
other clients cannot change. Clipping around the client's own vector follows He, Karimireddy and Jaggi 2022
(ClippedGossip), but for directions. docs/understand/anchored.md gives the reasons and the bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from torch import Tensor

from rdpfl_sim.aggregators import Aggregation, median
from rdpfl_sim.components.options import Doc, Fraction, Positive
from rdpfl_sim.methods.base import (
    ClientView,
    Diagnostics,
    Inbox,
    MessageStats,
    Report,
    RunInfo,
    State,
    Trained,
    method,
)
from rdpfl_sim.methods.directions import (
    AggregatorChoice,
    Coefficient,
    DirectionExchange,
    Lambda,
    PersonalStep,
    PreAggregators,
    StepSize,
    weighted_messages,
)
from rdpfl_sim.vectors import clip_around, clip_rows, message_distances, row_norms


@dataclass(frozen=True)
class AnchoredState(State):
    """Models, thresholds, and the number of rounds in the mean of the thresholds."""

    tau: Tensor  # (n,)
    num_observed: Tensor  # (n,)


@dataclass(frozen=True, eq=False)
class Clipping(Report):
    """What the clipping reports. Only the threshold exists in rounds without messages."""

    tau: Tensor  # (n,), NaN where training has diverged
    num_clipped: Tensor | None = None  # (n,)
    clipped: Tensor | None = None  # (n,)
    bounded: Tensor | None = None  # (n,)


@method
class Anchored(DirectionExchange):
    """w <- w - gamma (u + lambda d), d = RobustAgg_j {u + Clip(u_j - u; tau)}, |d| <= G_d.

    tau is c times a running mean of |u|. A client takes a local step if no message arrived or if its own
    training has diverged.
    """

    bound_on_d = "max_norm"

    def __init__(
        self,
        run: RunInfo,
        *,
        lambda_: Lambda = 0.01,
        aggregator: AggregatorChoice = median,
        pre_aggregators: PreAggregators = (),
        step: StepSize = "local",
        coefficient: Coefficient = 1.0,
        alpha: Annotated[Fraction, Doc("weight of the previous threshold")] = 0.9,
        c: Annotated[Positive, Doc("tolerance of the threshold, in multiples of |u|")] = 1.5,
        max_norm: Annotated[Positive, Doc("G_d, the upper bound on |d|")] = 10.0,
    ) -> None:
        self.personal_step = PersonalStep(lambda_, step, coefficient)
        self.aggregation = Aggregation(aggregator, pre_aggregators)
        self.alpha = alpha
        self.c = c
        self.max_norm = max_norm

    def init(self, w: Tensor, clients: Sequence[ClientView]) -> AnchoredState:
        """Return the initial state. The first update sets the thresholds."""
        zeros = torch.zeros(len(w), dtype=torch.float64, device=w.device)
        return AnchoredState(w, zeros, zeros.long())

    def update(
        self, state: State, trained: Trained, inbox: Inbox, clients: Sequence[ClientView]
    ) -> tuple[AnchoredState, Diagnostics]:
        """Aggregate the clipped messages and take the personalised step."""
        assert isinstance(state, AnchoredState)
        u = self.personal_step.direction(state.w, trained)
        tau = self.threshold(state, row_norms(u))
        sound = tau.isfinite()  # False if the client's own training diverged
        d = torch.zeros_like(u)
        clipping = Clipping(tau.where(sound, torch.nan))
        if inbox.num_messages > 0:
            clipped, factors = clip_around(u, weighted_messages(inbox), tau)
            d = self.aggregation(_where(sound, clipped, 0.0), u, clients)
            d, bounded = clip_rows(d, torch.full_like(tau, self.max_norm), row_norms(d))
            d = _where(sound, d, 0.0)
            num_clipped = (factors < 1).sum(dim=1).where(sound, 0)
            clipping = replace(
                clipping, num_clipped=num_clipped, clipped=num_clipped > 0, bounded=bounded & sound
            )
        w = self.personal_step.apply(state.w, u, d, trained)
        new = AnchoredState(w, tau.where(sound, state.tau), state.num_observed + sound.long())
        return new, {**self.personal_step.report(u, row_norms(d)), **clipping}

    def threshold(self, state: AnchoredState, u_norm: Tensor) -> Tensor:
        """Return tau^t = alpha tau^{t-1} + (1 - alpha) c |u|; in the first round c |u|."""
        running = self.alpha * state.tau + (1 - self.alpha) * self.c * u_norm
        return running.where(state.num_observed > 0, self.c * u_norm)

    def message_stats(
        self, state: State, trained: Trained, inbox: Inbox, clients: Sequence[ClientView]
    ) -> MessageStats:
        """Return distances from u and weights in the aggregate. Clipping reduces the weight of a message."""
        assert isinstance(state, AnchoredState)
        u, messages = self.personal_step.direction(state.w, trained), weighted_messages(inbox)
        tau = self.threshold(state, row_norms(u))
        clipped, factors = clip_around(u, messages, tau)
        weights = self.aggregation.shares(_where(tau.isfinite(), clipped, 0.0), u, clients)
        if weights is not None:
            weights = _where(tau.isfinite(), weights * factors, 0.0)
        return MessageStats(message_distances(messages, u), weights)


def _where(condition: Tensor, x: Tensor, otherwise: Tensor | float) -> Tensor:
    """Return the rows of x where the condition (n,) holds, and `otherwise` elsewhere."""
    return x.where(condition.view(-1, *[1] * (x.dim() - 1)), otherwise)
