"""R-DPFL: robust aggregation, prediction from history, adaptive clipping of the deviation.

Ma, Shen, Tian, Lyu and Ke, "Robust Decentralized Personalized Federated Learning via Prediction-Constrained
Neighborhood Collaboration", Algorithms 1 and 2. Where the paper is ambiguous, each reading is an option;
docs/understand/paper.md explains the defaults.

All tensors have one row per client. A single client is a batch of one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from torch import Tensor

from rdpfl_sim.aggregators import Aggregation, median
from rdpfl_sim.components.options import Doc, Fraction, NonNegative, NonNegativeInt, Positive
from rdpfl_sim.methods.base import (
    BoundTerms,
    ClientView,
    Diagnostics,
    Inbox,
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
from rdpfl_sim.vectors import LARGEST, blocks, clip_rows, row_norms


@dataclass(frozen=True)
class RdpflState(State):
    """Models and estimator history. The history covers the last two rounds in which messages arrived."""

    tau: Tensor  # (n,)
    delta_norm: Tensor  # (n,)
    num_observed: Tensor  # (n,)
    d_bar_1: Tensor  # (n, d), the last aggregates
    d_bar_2: Tensor  # (n, d), the aggregates before d_bar_1
    w_1: Tensor  # (n, d), the models after the same two rounds
    w_2: Tensor  # (n, d)

    def observe(self, w: Tensor, d_bar: Tensor, estimate: Estimate) -> RdpflState:
        """Return the state after a round in which messages arrived."""
        assert estimate.delta_norm is not None
        return RdpflState(
            w=w,
            tau=estimate.tau,
            delta_norm=estimate.delta_norm,
            num_observed=self.num_observed + 1,
            d_bar_1=d_bar,
            d_bar_2=self.d_bar_1,
            w_1=w,
            w_2=self.w_1,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Estimate(Report):
    """What Algorithm 2 reports. The deviation is None in rounds without messages."""

    delta_norm: Tensor | None = None  # (n,)
    beta: Tensor  # (n,), NaN where d_hat is not extrapolated
    tau: Tensor  # (n,)
    clipped: Tensor | None = None  # (n,)
    bounded: Tensor  # (n,)


@method
class Rdpfl(DirectionExchange):
    """w <- w - gamma (u + lambda d), where the neighbourhood direction d is kept close to its prediction."""

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
        predictor: Annotated[
            Literal["bb", "last", "none"],
            Doc("d_hat: Barzilai-Borwein extrapolation, the last d_bar, or d_bar itself"),
        ] = "bb",
        clip: Annotated[bool, Doc("clip the deviation from the prediction")] = True,
        threshold: Annotated[
            Literal["lagged", "current"],
            Doc("tau^t from |Delta^{t-1}| (the equation) or |Delta^t| (Algorithm 2)"),
        ] = "lagged",
        warmup: Annotated[NonNegativeInt, Doc("rounds in which d_hat is the last d_bar")] = 5,
        alpha: Annotated[Fraction, Doc("weight of the previous threshold")] = 0.9,
        c: Annotated[Positive, Doc("tolerance of the threshold")] = 1.5,
        tau_0: Annotated[NonNegative, Doc("initial threshold")] = 1.0,
        max_norm: Annotated[Positive, Doc("G_d, the upper bound on |d| (Lemma 3)")] = 10.0,
        beta_limit: Annotated[Positive, Doc("beta is clamped to [-limit, limit]")] = 10.0,
        epsilon: Annotated[Positive, Doc("added to the denominator of beta")] = 1e-8,
        when_silent: Annotated[
            Literal["predict", "skip"],
            Doc("in a round without messages, use d_hat or take a local step only"),
        ] = "predict",
    ) -> None:
        self.personal_step = PersonalStep(lambda_, step, coefficient)
        self.aggregation = Aggregation(aggregator, pre_aggregators)
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

    @classmethod
    def unused_options(cls, given: Collection[str], options: Mapping[str, object]) -> Iterator[str]:
        """Yield a warning for each option of an unused predictor or threshold."""
        if options["predictor"] != "bb":
            for option in sorted({"warmup", "epsilon", "beta_limit"}.intersection(given)):
                yield f"method.{option} has no effect: it belongs to predictor = 'bb'"
        if not options["clip"]:
            for option in sorted({"alpha", "c", "tau_0", "threshold"}.intersection(given)):
                yield f"method.{option} has no effect without method.clip"

    def init(self, w: Tensor, clients: Sequence[ClientView]) -> RdpflState:
        """Return the initial state, without history: tau = tau_0, |Delta| = 0."""
        zeros, none = torch.zeros(len(w), dtype=torch.float64, device=w.device), torch.zeros_like(w)
        return RdpflState(w, zeros + self.tau_0, zeros, zeros.long(), none, none, none, none)

    def update(
        self, state: State, trained: Trained, inbox: Inbox, clients: Sequence[ClientView]
    ) -> tuple[RdpflState, Diagnostics]:
        """Estimate the neighbourhood direction and take the personalised step."""
        assert isinstance(state, RdpflState)
        u = self.personal_step.direction(state.w, trained)
        if inbox.num_messages == 0:
            return self._update_without_messages(state, trained, u)
        d_bar = self.aggregation(weighted_messages(inbox), u, clients).clamp(-LARGEST, LARGEST)
        d, estimate = self.estimate(state, d_bar)
        d_norm = self._checked_norm(d)
        w = self.personal_step.apply(state.w, u, d, trained)
        return state.observe(w, d_bar, estimate), {**self.personal_step.report(u, d_norm), **estimate}

    def estimate(self, state: RdpflState, d_bar: Tensor) -> tuple[Tensor, Estimate]:
        """Run Algorithm 2 on the aggregates d_bar (n, d); return d (n, d)."""
        d_hat, beta = self.predict(state, without_history=d_bar)
        delta = d_bar - d_hat
        delta_norm = row_norms(delta)
        driver = state.delta_norm if self.threshold == "lagged" else delta_norm
        tau = self.alpha * state.tau + (1 - self.alpha) * self.c * driver
        limit = tau if self.clip else torch.full_like(tau, torch.inf)
        delta, clipped = clip_rows(delta, limit, delta_norm)
        d = d_hat + delta
        d, bounded = clip_rows(d, torch.full_like(tau, self.max_norm), row_norms(d))
        return d, Estimate(delta_norm=delta_norm, beta=beta, tau=tau, clipped=clipped, bounded=bounded)

    def predict(self, state: RdpflState, without_history: Tensor) -> tuple[Tensor, Tensor]:
        """Return d_hat (n, d) and beta (n,).

        d_hat is d_bar^{t-1} during the warm-up and d_bar^{t-1} + beta s after it, with s = w^{t-1} - w^{t-2}.
        """
        has_history = (state.num_observed > 0) & (self.predictor != "none")
        d_hat = torch.where(has_history.unsqueeze(1), state.d_bar_1, without_history)
        extrapolates = (state.num_observed >= max(self.warmup, 2)) & (self.predictor == "bb")
        if not extrapolates.any():
            return d_hat, torch.full_like(state.tau, torch.nan)
        s = state.w_1 - state.w_2
        beta = bb_coefficients(s, state.d_bar_1 - state.d_bar_2, self.epsilon, self.beta_limit)
        extrapolates &= row_norms(s).isfinite()  # false if the client's own training diverged
        extrapolated = (state.d_bar_1 + beta.to(s.dtype).unsqueeze(1) * s).clamp(-LARGEST, LARGEST)
        d_hat = torch.where(extrapolates.unsqueeze(1), extrapolated, d_hat)
        return d_hat, beta.where(extrapolates, torch.nan)

    def predicted_direction(self, state: State) -> Tensor:
        """Return d_hat, computed only from the history; NaN without history."""
        assert isinstance(state, RdpflState)
        return self.predict(state, without_history=torch.full_like(state.w, torch.nan))[0]

    def bound_terms(self, learning_rate: float, num_steps: int) -> BoundTerms:
        """Return the terms of the paper's bound."""
        step = self.personal_step
        gamma = step.gamma(learning_rate, num_steps)
        return BoundTerms(gamma, learning_rate, num_steps, step.lambda_, self.max_norm)

    def _update_without_messages(
        self, state: RdpflState, trained: Trained, u: Tensor
    ) -> tuple[RdpflState, Diagnostics]:
        """Step along the prediction, or take a local step. The history does not change."""
        d_hat, beta = self.predict(state, without_history=torch.zeros_like(u))
        if self.when_silent == "skip":
            d_hat, beta = torch.zeros_like(u), torch.full_like(beta, torch.nan)
        d, bounded = clip_rows(d_hat, torch.full_like(beta, self.max_norm), row_norms(d_hat))
        d_norm = self._checked_norm(d)
        w = self.personal_step.apply(state.w, u, d, trained)
        estimate = Estimate(beta=beta, tau=state.tau, bounded=bounded)
        return replace(state, w=w), {**self.personal_step.report(u, d_norm), **estimate}

    def _checked_norm(self, d: Tensor) -> Tensor:
        """Return |d| (n,); assert that none exceeds G_d (Lemma 3)."""
        d_norm = row_norms(d)
        largest = float(d_norm.max())
        assert largest <= self.max_norm * (1 + 1e-5), (
            f"Lemma 3 is violated: |d| = {largest} > G_d = {self.max_norm}"
        )
        return d_norm


def bb_coefficients(s: Tensor, y: Tensor, epsilon: float, limit: float) -> Tensor:
    """Return beta_i = <s_i, y_i> / (|s_i|^2 + epsilon), clamped to [-limit, limit] (eq. beta_def).

    >>> bb_coefficients(torch.tensor([[1.0, 1.0]]), torch.tensor([[2.0, 4.0]]), epsilon=0.0, limit=10.0)
    tensor([3.], dtype=torch.float64)
    """
    products = s.new_zeros(len(s), dtype=torch.float64)
    squares = torch.zeros_like(products)
    # Torch divides a single long row among its threads, but not blocks as short as these.
    for s_part, y_part in blocks(s, y):
        s_part, y_part = s_part.double(), y_part.double()
        products += (s_part * y_part).sum(dim=1)
        squares += (s_part * s_part).sum(dim=1)
    return (products / (squares + epsilon)).clamp(-limit, limit)
