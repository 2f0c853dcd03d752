"""The undefended baselines of Table II: the aggregate itself, without prediction or clipping."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rdpfl_sim.aggregators import Aggregation, mean
from rdpfl_sim.methods.base import (
    ClientView,
    Diagnostics,
    Inbox,
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
from rdpfl_sim.vectors import row_norms


@method
class Direct(DirectionExchange):
    """w <- w - gamma (u + lambda d_bar): the aggregate itself (Mean, Median, Trimmed-Mean of Table II)."""

    def __init__(
        self,
        run: RunInfo,
        *,
        lambda_: Lambda = 0.01,
        aggregator: AggregatorChoice = mean,
        pre_aggregators: PreAggregators = (),
        step: StepSize = "local",
        coefficient: Coefficient = 1.0,
    ) -> None:
        self.personal_step = PersonalStep(lambda_, step, coefficient)
        self.aggregation = Aggregation(aggregator, pre_aggregators)

    def update(
        self, state: State, trained: Trained, inbox: Inbox, clients: Sequence[ClientView]
    ) -> tuple[State, Diagnostics]:
        """Step along u + lambda d_bar; take a local step in a round without messages."""
        u = self.personal_step.direction(state.w, trained)
        d_bar = self.aggregation(weighted_messages(inbox), u, clients) if inbox.num_messages > 0 else None
        d_norm = u.new_zeros(len(u), dtype=torch.float64) if d_bar is None else row_norms(d_bar)
        w = self.personal_step.apply(state.w, u, d_bar, trained)
        return State(w), self.personal_step.report(u, d_norm)
