"""The undefended baselines of Table II: the aggregate itself, no prediction and no clipping."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rdpfl_sim.maths.aggregators import aggregate, mean
from rdpfl_sim.maths.batched import aggregate_together, can_aggregate, norms
from rdpfl_sim.maths.vectors import norm
from rdpfl_sim.methods import base
from rdpfl_sim.methods.batching import Outcome, in_groups
from rdpfl_sim.methods.directions import (
    AggregatorChoice,
    Coefficient,
    Collaboration,
    Descent,
    Step,
    inspect,
    stack,
    stack_together,
)
from rdpfl_sim.methods.exchange import Local, Payload, Received
from rdpfl_sim.methods.registry import method


@method
class Direct(base.Method):
    """w <- w - gamma (u + lambda d_bar): the aggregate as it is (Mean, Median, Trimmed-Mean of Table II)."""

    def __init__(
        self,
        settings: base.Settings,
        *,
        lambda_: Collaboration = 0.01,
        aggregator: AggregatorChoice = mean,
        step: Step = "local",
        coefficient: Coefficient = 1.0,
    ) -> None:
        self.descent = Descent(settings.learning_rate, lambda_, step, coefficient)
        self.aggregator = aggregator

    def outgoing(self, state: base.State, own: Local, home: base.Home) -> tuple[base.State, Payload]:
        """The local descent direction u."""
        return state, Payload(self.descent.direction(state.w, own))

    def inspect(
        self, state: base.State, own: Local, received: Sequence[Received], home: base.Home
    ) -> base.Inspection:
        """Distances, and the weights in the aggregate."""
        u = self.descent.direction(state.w, own)
        return inspect(u, None, self.aggregator, stack(received))

    def update(
        self, state: base.State, own: Local, received: Sequence[Received], home: base.Home
    ) -> tuple[base.State, base.Diagnostics]:
        """A step along u + lambda d_bar; a local step in a round without messages."""
        u = self.descent.direction(state.w, own)
        d_bar = aggregate(self.aggregator, stack(received), u) if received else None
        w = self.descent.apply(state.w, u, d_bar, own)
        return base.State(w), self._report(norm(u), 0.0 if d_bar is None else norm(d_bar))

    def update_together(self, cases: Sequence[base.Case]) -> list[Outcome]:
        """Many clients: those with equally many messages at once."""
        return in_groups(self, cases, self._kind, self._update_alike)

    def _kind(self, case: base.Case) -> bool | None:
        return can_aggregate(self.aggregator, len(case.received)) or None

    def _update_alike(self, cases: Sequence[base.Case]) -> list[Outcome]:
        """As `update`, with a row for each client."""
        own = [case.own for case in cases]
        w = torch.stack([case.state.w for case in cases])
        u = self.descent.directions(w, own)
        d_bar = aggregate_together(self.aggregator, stack_together(cases))
        lengths = zip(norms(u).tolist(), norms(d_bar).tolist(), strict=True)
        w = self.descent.apply_together(w, u, d_bar, own)
        return [
            (base.State(w_i.clone()), self._report(u_norm, d_norm))
            for w_i, (u_norm, d_norm) in zip(w, lengths, strict=True)
        ]

    def _report(self, u_norm: float, d_norm: float) -> base.Diagnostics:
        share = self.descent.neighbour_share(u_norm, d_norm)
        return {"u_norm": u_norm, "d_norm": d_norm, "neighbour_share": share}
