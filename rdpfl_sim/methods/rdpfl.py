"""R-DPFL: robust aggregation, prediction from history, adaptive clipping of the deviation.

Ma, Shen, Tian, Lyu and Ke, "Robust Decentralized Personalized Federated Learning via
Prediction-Constrained Neighborhood Collaboration", Algorithms 1 and 2. Where the paper contradicts
itself each reading is an option; the defaults are argued in docs/paper.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from typing import Annotated, Literal

from torch import Tensor

from rdpfl_sim.components.options import Doc, Fraction, NonNegative, NonNegativeInt, Positive
from rdpfl_sim.maths.aggregators import aggregate, median
from rdpfl_sim.maths.batched import can_aggregate
from rdpfl_sim.maths.vectors import LARGEST, bb_coefficient, clip, next_threshold, norm
from rdpfl_sim.methods import base
from rdpfl_sim.methods.anchored import Anchored
from rdpfl_sim.methods.batching import Outcome, in_groups
from rdpfl_sim.methods.directions import (
    AggregatorChoice,
    Coefficient,
    Collaboration,
    Descent,
    Step,
    inspect,
    stack,
)
from rdpfl_sim.methods.exchange import Local, Payload, Received
from rdpfl_sim.methods.rdpfl_batched import update_alike
from rdpfl_sim.methods.rdpfl_state import State, lemma_3, next_state
from rdpfl_sim.methods.registry import method


@dataclass(frozen=True)
class Estimate:
    """The outcome of Algorithm 2 in one round."""

    d: Tensor
    d_norm: float
    d_bar: Tensor
    tau: float
    delta_norm: float
    clipped: bool
    bounded: bool


@method
class Rdpfl(base.Method):
    """w <- w - gamma (u + lambda d), d = the neighbours' trend, held near its prediction (R-DPFL)."""

    def __init__(
        self,
        settings: base.Settings,
        *,
        lambda_: Collaboration = 0.01,
        aggregator: AggregatorChoice = median,
        step: Step = "local",
        coefficient: Coefficient = 1.0,
        estimator: Annotated[
            Literal["paper", "anchored"],
            Doc(
                "Algorithm 2, or messages held near the own update (docs/anchored.md), with alpha and c alone"
            ),
        ] = "paper",
        predictor: Annotated[
            Literal["bb", "last", "none"],
            Doc("d_hat: Barzilai-Borwein, the last d_bar, or d_bar itself (no prediction)"),
        ] = "bb",
        clip: Annotated[bool, Doc("whether the deviation from the prediction is clipped")] = True,
        threshold: Annotated[
            Literal["lagged", "current"],
            Doc("tau^t from |Delta^{t-1}| (the equation) or |Delta^t| (Algorithm 2)"),
        ] = "lagged",
        warmup: Annotated[
            NonNegativeInt, Doc("rounds in which d_hat is the last d_bar, before 'bb' predicts")
        ] = 5,
        alpha: Annotated[Fraction, Doc("memory of the threshold")] = 0.9,
        c: Annotated[Positive, Doc("tolerance of the threshold")] = 1.5,
        tau_0: Annotated[NonNegative, Doc("initial threshold")] = 1.0,
        max_norm: Annotated[Positive, Doc("G_d, the largest |d| (Lemma 3)")] = 10.0,
        beta_limit: Annotated[Positive, Doc("beta is clamped to [-limit, limit]")] = 10.0,
        epsilon: Annotated[Positive, Doc("keeps beta's denominator from zero")] = 1e-8,
        when_silent: Annotated[
            Literal["predict", "skip"], Doc("a round without messages: use d_hat, or take a local step only")
        ] = "predict",
    ) -> None:
        self.descent = Descent(settings.learning_rate, lambda_, step, coefficient)
        self.aggregator = aggregator
        self.anchored = (
            Anchored(self.descent, aggregator, alpha, c, max_norm) if estimator == "anchored" else None
        )
        self.predictor = predictor
        self.clip = clip
        self.threshold = threshold
        self.warmup = warmup
        self.alpha = alpha
        self.c = c
        self.tau_0 = tau_0
        self.max_norm = max_norm
        self.beta_limit = beta_limit
        self.epsilon = epsilon
        self.when_silent = when_silent

    def start(self, w: Tensor, home: base.Home) -> State:
        """A client without history: tau^0, Delta^0 = 0."""
        return State(w=w, tau=self.tau_0)

    def outgoing(self, state: base.State, own: Local, home: base.Home) -> tuple[base.State, Payload]:
        """The local descent direction u."""
        return state, Payload(self.descent.direction(state.w, own))

    def inspect(
        self, state: base.State, own: Local, received: Sequence[Received], home: base.Home
    ) -> base.Inspection:
        """Distances, and the weights in the aggregate."""
        assert isinstance(state, State)
        u, messages = self.descent.direction(state.w, own), stack(received)
        if self.anchored is not None:
            return self.anchored.inspect(state, u, messages)
        return inspect(u, self.expects(state), self.aggregator, messages)

    def expects(self, state: base.State) -> Tensor | None:
        """d_hat, from history alone."""
        assert isinstance(state, State)
        return self.predict(state)[0] if self.anchored is None else None

    def update(
        self, state: base.State, own: Local, received: Sequence[Received], home: base.Home
    ) -> tuple[State, base.Diagnostics]:
        """One round of Algorithm 1, after the exchange."""
        assert isinstance(state, State)
        u = self.descent.direction(state.w, own)
        if self.anchored is not None:
            return self.anchored.update(state, u, own, received)
        if not received:
            return self._silent_round(state, u, own)

        d_hat, beta = self.predict(state)
        estimate = self.estimate(state, aggregate(self.aggregator, stack(received), u), d_hat)
        lemma_3(estimate.d_norm, self.max_norm)
        w = self.descent.apply(state.w, u, estimate.d, own)
        u_norm = norm(u)
        return next_state(state, w, estimate.d_bar, estimate.tau, estimate.delta_norm), {
            "u_norm": u_norm,
            "d_norm": estimate.d_norm,
            "neighbour_share": self.descent.neighbour_share(u_norm, estimate.d_norm),
            "delta_norm": estimate.delta_norm,
            "beta": beta,
            "tau": estimate.tau,
            "clipped": estimate.clipped,
            "bounded": estimate.bounded,
        }

    def update_together(self, cases: Sequence[base.Case]) -> list[Outcome]:
        """Many clients: those with equally many messages and equally long histories at once."""
        return in_groups(self, cases, self._kind, partial(update_alike, self))

    def _kind(self, case: base.Case) -> tuple[bool, bool] | None:
        """Whether there is a prediction, and whether it is more than the last aggregate."""
        assert isinstance(case.state, State)
        if self.anchored is not None or not can_aggregate(self.aggregator, len(case.received)):
            return None
        return self.remembers(case.state), self.extrapolates(case.state)

    def predict(self, state: State) -> tuple[Tensor | None, float | None]:
        """d_hat and beta: nothing without history, d_bar^{t-1} in the warm-up, then d_bar^{t-1} + beta s."""
        if not self.remembers(state):
            return None, None
        assert state.d_bar_1 is not None
        if not self.extrapolates(state):
            return state.d_bar_1, None
        assert state.d_bar_2 is not None, "two observations have two aggregates"
        assert state.w_1 is not None, "and a model after each"
        assert state.w_2 is not None, "and a model after each"
        s, y = state.w_1 - state.w_2, state.d_bar_1 - state.d_bar_2
        if not isfinite(norm(s)):  # the own training has diverged; what neighbours say is still sound
            return state.d_bar_1, None
        beta = bb_coefficient(s, y, self.epsilon, self.beta_limit)
        return (state.d_bar_1 + beta * s).clamp(-LARGEST, LARGEST), beta

    def remembers(self, state: State) -> bool:
        """Whether there is something to predict from."""
        return self.predictor != "none" and state.d_bar_1 is not None

    def extrapolates(self, state: State) -> bool:
        """Whether the prediction is more than the last aggregate; beta needs two observations."""
        return self.predictor == "bb" and state.num_observed >= max(self.warmup, 2)

    def estimate(self, state: State, d_bar: Tensor, d_hat: Tensor | None) -> Estimate:
        """Algorithm 2 from the deviation on; without a prediction, d_hat = d_bar."""
        d_bar = d_bar.clamp(-LARGEST, LARGEST)
        if d_hat is None:
            d_hat = d_bar
        delta = d_bar - d_hat
        delta_norm = norm(delta)
        driver = state.delta_norm if self.threshold == "lagged" else delta_norm
        tau = next_threshold(state.tau, driver, self.alpha, self.c)
        correction, clipped = clip(delta, tau, delta_norm) if self.clip else (delta, False)
        d = d_hat + correction
        d_norm = norm(d)
        d, bounded = clip(d, self.max_norm, d_norm)
        return Estimate(d, norm(d) if bounded else d_norm, d_bar, tau, delta_norm, clipped, bounded)

    def _silent_round(self, state: State, u: Tensor, own: Local) -> tuple[State, base.Diagnostics]:
        d_hat, beta = self.predict(state) if self.when_silent == "predict" else (None, None)
        d, bounded = (None, False) if d_hat is None else clip(d_hat, self.max_norm)
        d_norm = 0.0 if d is None else norm(d)
        lemma_3(d_norm, self.max_norm)
        new = replace(state, w=self.descent.apply(state.w, u, d, own))
        u_norm = norm(u)
        return new, {
            "u_norm": u_norm,
            "d_norm": d_norm,
            "neighbour_share": self.descent.neighbour_share(u_norm, d_norm),
            "beta": beta,
            "tau": state.tau,
            "bounded": bounded,
        }
