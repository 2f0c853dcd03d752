"""The anchored estimator, which can take the place of Algorithm 2 in R-DPFL.

Messages are held near the client's own update u, within tau = c times a running mean of |u|, before they are
aggregated; there is no prediction. docs/anchored.md says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite

from torch import Tensor

from rdpfl_sim.maths.aggregators import Aggregator, aggregate
from rdpfl_sim.maths.aggregators.message_weights import message_weights
from rdpfl_sim.maths.vectors import clip, clip_around, next_threshold, norm
from rdpfl_sim.methods import base
from rdpfl_sim.methods.directions import Descent, distances, stack
from rdpfl_sim.methods.exchange import Local, Received
from rdpfl_sim.methods.rdpfl_state import State, lemma_3


@dataclass(frozen=True)
class Anchored:
    """d = RobustAgg_j {u + Clip(u_j - u; tau)}, at most G_d long."""

    descent: Descent
    aggregator: Aggregator
    alpha: float
    c: float
    max_norm: float

    def update(
        self, state: State, u: Tensor, own: Local, received: Sequence[Received]
    ) -> tuple[State, base.Diagnostics]:
        """One round after the exchange; a local step if nothing arrived, or the own training has diverged."""
        u_norm = norm(u)
        tau = self.threshold(state, u_norm)
        if not isfinite(tau):  # the own update is no measure
            w = self.descent.apply(state.w, u, None, own)
            return replace(state, w=w), self._lengths(u_norm, 0.0)
        new = replace(state, tau=tau, num_observed=state.num_observed + 1)
        if not received:
            w = self.descent.apply(state.w, u, None, own)
            return replace(new, w=w), {**self._lengths(u_norm, 0.0), "tau": tau}
        held, factors = clip_around(u, stack(received), tau)
        d, bounded = clip(aggregate(self.aggregator, held, u), self.max_norm)
        d_norm = norm(d)
        lemma_3(d_norm, self.max_norm)
        num_clipped = int((factors < 1).sum())
        return replace(new, w=self.descent.apply(state.w, u, d, own)), {
            **self._lengths(u_norm, d_norm),
            "tau": tau,
            "num_clipped": num_clipped,
            "clipped": num_clipped > 0,
            "bounded": bounded,
        }

    def _lengths(self, u_norm: float, d_norm: float) -> base.Diagnostics:
        share = self.descent.neighbour_share(u_norm, d_norm)
        return {"u_norm": u_norm, "d_norm": d_norm, "neighbour_share": share}

    def threshold(self, state: State, u_norm: float) -> float:
        """tau^t = alpha tau^{t-1} + (1 - alpha) c |u|; in the first round c |u|."""
        if state.num_observed == 0:
            return self.c * u_norm
        return next_threshold(state.tau, u_norm, self.alpha, self.c)

    def inspect(self, state: State, u: Tensor, messages: Tensor) -> base.Inspection:
        """Distances, and the weights in the aggregate: less for messages that were shortened."""
        return base.Inspection(distances(messages, u), None, self._weights(state, u, messages))

    def _weights(self, state: State, u: Tensor, messages: Tensor) -> list[float] | None:
        """The share of each message in d; the rest is that of u. Who has diverged uses no message."""
        tau = self.threshold(state, norm(u))
        if not isfinite(tau):
            return [0.0] * len(messages)
        held, factors = clip_around(u, messages, tau)
        weights = message_weights(self.aggregator, held, u)
        return None if weights is None else (weights * factors).tolist()
