"""R-DPFL: robust aggregation, prediction from history, adaptive clipping of the deviation.

Ma, Shen, Tian, Lyu and Ke, "Robust Decentralized Personalized Federated Learning via
Prediction-Constrained Neighborhood Collaboration", Algorithms 1 and 2. Where the paper contradicts
itself each reading is an option; the defaults are argued in docs/paper.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from rdpfl_sim.maths.aggregators import aggregate, median
from rdpfl_sim.maths.anchoring import hold_near
from rdpfl_sim.maths.estimator import LARGEST, bb_coefficient, clip, next_threshold, norm
from rdpfl_sim.maths.influence import influence
from rdpfl_sim.maths.together import aggregate_together, bb_coefficients, can_aggregate, clip_rows, norms
from rdpfl_sim.maths.types import Local, Payload, Received
from rdpfl_sim.methods import base
from rdpfl_sim.methods.company import Outcome, in_groups
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
from rdpfl_sim.options import Doc, Fraction, NonNegative, NonNegativeInt, Positive


@dataclass(frozen=True)
class State(base.State):
    """A client's model and the history of its estimator.

    The history holds the last two rounds in which messages arrived: d_bar (t-1 and t-2) and the model
    after each. A silent round leaves it as it is.
    """

    tau: float
    delta_norm: float = 0.0
    num_observed: int = 0
    d_bar_1: Tensor | None = None
    d_bar_2: Tensor | None = None
    w_1: Tensor | None = None
    w_2: Tensor | None = None


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
        self.estimator = estimator
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
        if self.estimator == "paper":
            return inspect(u, self.expects(state), self.aggregator, messages)
        held, factors = hold_near(u, messages, self._radius(state, norm(u)))
        weights = influence(self.aggregator, held, u)
        return replace(
            inspect(u, None, self.aggregator, messages),
            weight=None if weights is None else (weights * factors).tolist(),
        )

    def expects(self, state: base.State) -> Tensor | None:
        """d_hat, from history alone."""
        assert isinstance(state, State)
        return self.predict(state)[0] if self.estimator == "paper" else None

    def update(
        self, state: base.State, own: Local, received: Sequence[Received], home: base.Home
    ) -> tuple[State, base.Diagnostics]:
        """One round of Algorithm 1, after the exchange."""
        assert isinstance(state, State)
        u = self.descent.direction(state.w, own)
        if self.estimator == "anchored":
            return self._anchored_round(state, u, own, received)
        if not received:
            return self._silent_round(state, u, own)

        d_hat, beta = self.predict(state)
        estimate = self.estimate(state, aggregate(self.aggregator, stack(received), u), d_hat)
        self._lemma_3(estimate.d_norm)
        w = self.descent.apply(state.w, u, estimate.d, own)
        return self._next(state, w, estimate.d_bar, estimate.tau, estimate.delta_norm), {
            "u_norm": norm(u),
            "d_norm": estimate.d_norm,
            "delta_norm": estimate.delta_norm,
            "beta": beta,
            "tau": estimate.tau,
            "clipped": estimate.clipped,
            "bounded": estimate.bounded,
        }

    def update_together(self, cases: Sequence[base.Case]) -> list[Outcome]:
        """Many clients: those with equally many messages and equally long histories at once."""
        return in_groups(self, cases, self._kind, self._update_alike)

    def _kind(self, case: base.Case) -> tuple[bool, bool] | None:
        """Whether there is a prediction, and whether it is more than the last aggregate."""
        assert isinstance(case.state, State)
        if self.estimator == "anchored" or not can_aggregate(self.aggregator, len(case.received)):
            return None
        return self._remembers(case.state), self._extrapolates(case.state)

    def _update_alike(self, cases: Sequence[base.Case]) -> list[Outcome]:
        """As `update`, with a row for each client."""
        states: list[Any] = [case.state for case in cases]
        own = [case.own for case in cases]
        w = torch.stack([state.w for state in states])
        u = self.descent.directions(w, own)
        d_bar = aggregate_together(self.aggregator, stack_together(cases)).clamp_(-LARGEST, LARGEST)
        d_hat, betas = self._predict_alike(states, d_bar)
        delta = d_bar - d_hat
        delta_norms = norms(delta)
        drivers = (
            [state.delta_norm for state in states] if self.threshold == "lagged" else delta_norms.tolist()
        )
        taus = [
            next_threshold(state.tau, driver, self.alpha, self.c)
            for state, driver in zip(states, drivers, strict=True)
        ]
        clipped = torch.zeros(len(cases), dtype=torch.bool)
        if self.clip:
            delta, clipped = clip_rows(delta, delta_norms.new_tensor(taus), delta_norms)
        d = delta.add_(d_hat)
        d_norms = norms(d)
        d, bounded = clip_rows(d, torch.full_like(d_norms, self.max_norm), d_norms)
        if bounded.any():
            d_norms = torch.where(bounded, norms(d), d_norms)
        self._lemma_3(d_norms.max().item())
        u_norms = norms(u)
        w = self.descent.apply_together(w, u, d, own)
        told = zip(
            *(u_norms.tolist(), d_norms.tolist(), delta_norms.tolist(), betas, taus),
            *(clipped.tolist(), bounded.tolist()),
            strict=True,
        )
        names = ("u_norm", "d_norm", "delta_norm", "beta", "tau", "clipped", "bounded")
        diagnostics = [dict(zip(names, row, strict=True)) for row in told]
        return [
            (self._next(state, w_i.clone(), d_bar_i.clone(), report["tau"], report["delta_norm"]), report)
            for state, w_i, d_bar_i, report in zip(states, w, d_bar, diagnostics, strict=True)
        ]

    def _predict_alike(self, states: list[Any], d_bar: Tensor) -> tuple[Tensor, list[float | None]]:
        """As `predict`, with a row for each client; without a prediction, d_hat = d_bar."""
        nothing: list[float | None] = [None] * len(states)
        if not self._remembers(states[0]):
            return d_bar, nothing
        d_bar_1 = torch.stack([state.d_bar_1 for state in states])
        if not self._extrapolates(states[0]):
            return d_bar_1, nothing
        s = torch.stack([state.w_1 for state in states])
        s -= torch.stack([state.w_2 for state in states])
        betas = bb_coefficients(
            s, d_bar_1 - torch.stack([state.d_bar_2 for state in states]), self.epsilon, self.beta_limit
        )
        sound = norms(s).isfinite()
        moved = s.mul_(betas.to(s.dtype).unsqueeze(1)).add_(d_bar_1).clamp_(-LARGEST, LARGEST)
        found = [beta if yes else None for beta, yes in zip(betas.tolist(), sound.tolist(), strict=True)]
        return torch.where(sound.unsqueeze(1), moved, d_bar_1), found

    def predict(self, state: State) -> tuple[Tensor | None, float | None]:
        """d_hat and beta: nothing without history, d_bar^{t-1} in the warm-up, then d_bar^{t-1} + beta s."""
        if not self._remembers(state):
            return None, None
        assert state.d_bar_1 is not None
        if not self._extrapolates(state):
            return state.d_bar_1, None
        assert state.d_bar_2 is not None, "two observations have two aggregates"
        assert state.w_1 is not None, "and a model after each"
        assert state.w_2 is not None, "and a model after each"
        s, y = state.w_1 - state.w_2, state.d_bar_1 - state.d_bar_2
        if not isfinite(norm(s)):  # the own training has diverged; what neighbours say is still sound
            return state.d_bar_1, None
        beta = bb_coefficient(s, y, self.epsilon, self.beta_limit)
        return (state.d_bar_1 + beta * s).clamp(-LARGEST, LARGEST), beta

    def _remembers(self, state: State) -> bool:
        """Whether there is something to predict from."""
        return self.predictor != "none" and state.d_bar_1 is not None

    def _extrapolates(self, state: State) -> bool:
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

    def _next(self, state: State, w: Tensor, d_bar: Tensor, tau: float, delta_norm: float) -> State:
        """The state after a round in which messages arrived."""
        return State(
            w=w,
            tau=tau,
            delta_norm=delta_norm,
            num_observed=state.num_observed + 1,
            d_bar_1=d_bar,
            d_bar_2=state.d_bar_1,
            w_1=w,
            w_2=state.w_1,
        )

    def _silent_round(self, state: State, u: Tensor, own: Local) -> tuple[State, base.Diagnostics]:
        d_hat, beta = self.predict(state) if self.when_silent == "predict" else (None, None)
        d, bounded = (None, False) if d_hat is None else clip(d_hat, self.max_norm)
        d_norm = 0.0 if d is None else norm(d)
        self._lemma_3(d_norm)
        new = replace(state, w=self.descent.apply(state.w, u, d, own))
        return new, {"u_norm": norm(u), "d_norm": d_norm, "beta": beta, "tau": state.tau, "bounded": bounded}

    def _anchored_round(
        self, state: State, u: Tensor, own: Local, received: Sequence[Received]
    ) -> tuple[State, base.Diagnostics]:
        """A round of the anchored estimator; without messages it is a local step."""
        u_norm = norm(u)
        radius = self._radius(state, u_norm)
        if not isfinite(radius):  # the own training has diverged, and is no measure
            return replace(state, w=self.descent.apply(state.w, u, None, own)), {
                "u_norm": u_norm,
                "d_norm": 0.0,
            }
        new = replace(state, tau=radius, num_observed=state.num_observed + 1)
        if not received:
            w = self.descent.apply(state.w, u, None, own)
            return replace(new, w=w), {"u_norm": u_norm, "d_norm": 0.0, "tau": radius}
        held, factors = hold_near(u, stack(received), radius)
        d, bounded = clip(aggregate(self.aggregator, held, u), self.max_norm)
        d_norm = norm(d)
        self._lemma_3(d_norm)
        num_clipped = int((factors < 1).sum())
        return replace(new, w=self.descent.apply(state.w, u, d, own)), {
            "u_norm": u_norm,
            "d_norm": d_norm,
            "tau": radius,
            "num_clipped": num_clipped,
            "clipped": num_clipped > 0,
            "bounded": bounded,
        }

    def _radius(self, state: State, u_norm: float) -> float:
        """c times a running mean of the own update's length: of this round alone in the first."""
        if state.num_observed == 0:
            return self.c * u_norm
        return next_threshold(state.tau, u_norm, self.alpha, self.c)

    def _lemma_3(self, d_norm: float) -> None:
        assert d_norm <= self.max_norm * (1 + 1e-5), (
            f"Lemma 3 is violated: |d| = {d_norm} > G_d = {self.max_norm}"
        )
