"""Theory beside practice: both sides of the paper's bound (eq. 18), estimated along honest trajectories.

    (1/T) sum_t |grad f(w^t)|^2 <= 4 (f(w^0) - f(w^T)) / (gamma T) + 5 B^2 eta^2 K^2 + sigma_u^2 / 2
                                   + 9/2 lambda^2 G_d^2,        B = L G_g / 2,  gamma <= 1 / (8 L)

f is the loss on all of a client's training data. G_g^2 is the largest mean |g|^2 over batches that was seen,
sigma_u^2 the largest mean |g - grad f|^2, divided by K: the variance of a mean of K independent batches. L is
the largest |grad f(w) - grad f(v)| / |w - v| between two looks in a row, hence a lower bound of the true one.
The average on the left is over the looks. The theorem is about expectations: one run may break the bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite, sqrt
from typing import Any

import torch
from torch import Tensor

from rdpfl_sim.learning.loss_stats import LossStats, loss_stats
from rdpfl_sim.maths.vectors import norm
from rdpfl_sim.methods.base import Method, Trained
from rdpfl_sim.methods.rdpfl import Rdpfl
from rdpfl_sim.simulation.experiment import Experiment


@dataclass(frozen=True)
class Terms:
    """What the bound says of a client beside what is measured: step sizes and the neighbours' share."""

    gamma: float
    learning_rate: float
    num_steps: int
    lambda_: float
    max_norm: float


@dataclass(frozen=True)
class Trajectory:
    """What has been seen of one client's way: sums and maxima, and where it was last."""

    w: Tensor
    gradient: Tensor
    first_loss: float
    last_loss: float
    mean_square: float
    """The largest E |g|^2, G_g^2."""
    variance: float
    """The largest E |g - grad f|^2."""
    smoothness: float = 0.0
    """L."""
    num_looks: int = 0
    sum_squares: float = 0.0
    """of |grad f|, after the start."""

    @classmethod
    def begun(cls, w: Tensor, seen: LossStats) -> Trajectory:
        """A way that begins at w."""
        return cls(w, seen.gradient, seen.loss, seen.loss, seen.mean_square, seen.variance)

    def extended(self, w: Tensor, seen: LossStats) -> Trajectory:
        """The way with one more look, from w."""
        distance = norm(w - self.w)
        slope = norm(seen.gradient - self.gradient) / distance if distance > 0 else 0.0
        return replace(
            self,
            w=w,
            gradient=seen.gradient,
            last_loss=seen.loss,
            mean_square=max(self.mean_square, seen.mean_square),
            variance=max(self.variance, seen.variance),
            smoothness=max(self.smoothness, slope),
            num_looks=self.num_looks + 1,
            sum_squares=self.sum_squares + norm(seen.gradient) ** 2,
        )

    def verdict(self, rounds: int, terms: Terms | None) -> dict[str, Any]:
        """The constants, and both sides of the bound if the method is the theorem's."""
        squares = self.sum_squares / self.num_looks if self.num_looks else norm(self.gradient) ** 2
        found: dict[str, Any] = {
            "gradient_norm": norm(self.gradient),
            "mean_square_gradient": squares,
            "loss": self.last_loss,
            "L": self.smoothness,
            "G_g": sqrt(self.mean_square),
        }
        if terms is None:
            return found
        sigma_u_2, limit = self.variance / terms.num_steps, _inverse(8 * self.smoothness)
        bound = self.bound(rounds, terms, sigma_u_2)
        return {
            **found,
            "sigma_u": sqrt(sigma_u_2),
            "gamma": terms.gamma,
            "gamma_limit": limit,
            "gamma_is_small_enough": limit is None or terms.gamma <= limit,
            "bound": bound,
            "bound_holds": isfinite(squares) and squares <= bound,
        }

    def bound(self, rounds: int, terms: Terms, sigma_u_2: float) -> float:
        """The right-hand side of eq. 18."""
        drift = self.smoothness * sqrt(self.mean_square) / 2 * terms.learning_rate * terms.num_steps
        progress = 4 * (self.first_loss - self.last_loss) / (terms.gamma * max(1, rounds))
        return progress + 5 * drift**2 + sigma_u_2 / 2 + 4.5 * (terms.lambda_ * terms.max_norm) ** 2


class TheoryMonitor:
    """Looks at the losses of honest clients whenever they are evaluated."""

    STATE = ("trajectories",)

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.trajectories: dict[int, Trajectory] = {}

    def look(self, client: int, w: Tensor) -> dict[str, float]:
        """What is to be seen of a client's loss, at its model w."""
        settings, shard = self.experiment.settings, self.experiment.train_shards[client]
        seen = loss_stats(self.experiment.model, w, shard, settings.batch_size)
        before = self.trajectories.get(client)
        now = Trajectory.begun(w, seen) if before is None else before.extended(w, seen)
        self.trajectories[client] = now
        return {"loss": seen.loss, "gradient_norm": norm(seen.gradient), "L": now.smoothness}

    def summary(self, rounds: Mapping[int, int]) -> dict[str, Any]:
        """The verdict on every client after so many rounds, and for how many theory and practice agree."""
        verdicts = {
            client: way.verdict(rounds[client], self._terms(client))
            for client, way in sorted(self.trajectories.items())
        }
        return counted(verdicts)

    def _terms(self, client: int) -> Terms | None:
        settings = self.experiment.settings
        num_steps = settings.num_steps(len(self.experiment.train_shards[client]))
        return terms_of(self.experiment.method, settings.learning_rate, num_steps)


def terms_of(method: Method, learning_rate: float, num_steps: int) -> Terms | None:
    """What the bound needs to know of the method, if it is the theorem's."""
    if not isinstance(method, Rdpfl):
        return None
    [gamma] = method.step.gamma(Trained(torch.empty(1, 0), (num_steps,)))
    return Terms(gamma, learning_rate, num_steps, method.step.lambda_, method.max_norm)


def counted(verdicts: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
    """The verdicts by client, and for how many theory and practice agree."""
    judged = [verdict for verdict in verdicts.values() if "bound" in verdict]
    return {
        "num_judged": len(judged),
        "num_gamma_small_enough": sum(verdict["gamma_is_small_enough"] for verdict in judged),
        "num_bound_holds": sum(verdict["bound_holds"] for verdict in judged),
        "clients": {str(client): verdict for client, verdict in verdicts.items()},
    }


def _inverse(x: float) -> float | None:
    return 1 / x if x > 0 else None
