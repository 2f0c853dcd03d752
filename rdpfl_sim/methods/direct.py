"""The undefended baselines of Table II: the aggregate itself, no prediction and no clipping."""

from __future__ import annotations

from collections.abc import Sequence

from rdpfl_sim.maths.aggregators import aggregate, mean
from rdpfl_sim.maths.estimator import norm
from rdpfl_sim.maths.types import Local, Payload, Received
from rdpfl_sim.methods import base
from rdpfl_sim.methods.directions import (
    AggregatorChoice,
    Coefficient,
    Collaboration,
    Descent,
    Step,
    inspect,
    stack,
)


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
        return base.State(w), {"u_norm": norm(u), "d_norm": 0.0 if d_bar is None else norm(d_bar)}
