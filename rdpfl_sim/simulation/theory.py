"""Both sides of the paper's bound (eq. 18), estimated along the trajectories of honest clients.

    (1/T) sum_t |grad f(w^t)|^2 <= 4 (f(w^0) - f(w^T)) / (gamma T) + 5 B^2 eta^2 K^2 + sigma_u^2 / 2
                                   + 9/2 lambda^2 G_d^2,        B = L G_g / 2,  gamma <= 1 / (8 L)

f is the loss on all of a client's training data. G_g^2 is the largest observed mean |g|^2 over batches.
sigma_u^2 is the largest mean |g - grad f|^2, divided by K because u is a mean over K batches. L is the
largest |grad f(w) - grad f(v)| / |w - v| between consecutive observations, a lower bound of the true L. The
average on the left is over observations. The theorem is about expectations, so a single run may violate the
bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite, sqrt

from torch import Tensor

from rdpfl_sim.files import JsonObject
from rdpfl_sim.learning.evaluation import LossStats, loss_stats
from rdpfl_sim.methods.base import BoundTerms
from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.vectors import norm


@dataclass(frozen=True)
class Trajectory:
    """Sums and maxima over the observations of one client, and its last model and gradient."""

    w: Tensor
    gradient: Tensor
    first_loss: float
    last_loss: float
    mean_square: float
    """The largest E |g|^2, G_g^2."""
    variance: float
    """The largest E |g - grad f|^2."""
    smoothness: float = 0.0
    """The largest observed L."""
    num_observations: int = 0
    sum_squares: float = 0.0
    """Sum of |grad f|^2 over all observations after the first."""

    @classmethod
    def start(cls, w: Tensor, stats: LossStats) -> Trajectory:
        """Return a trajectory with its first observation, at w."""
        return cls(w, stats.gradient, stats.loss, stats.loss, stats.mean_square, stats.variance)

    def extend(self, w: Tensor, stats: LossStats) -> Trajectory:
        """Return the trajectory with one more observation, at w."""
        distance = norm(w - self.w)
        slope = norm(stats.gradient - self.gradient) / distance if distance > 0 else 0.0
        return replace(
            self,
            w=w,
            gradient=stats.gradient,
            last_loss=stats.loss,
            mean_square=max(self.mean_square, stats.mean_square),
            variance=max(self.variance, stats.variance),
            smoothness=max(self.smoothness, slope),
            num_observations=self.num_observations + 1,
            sum_squares=self.sum_squares + norm(stats.gradient) ** 2,
        )

    def verdict(self, rounds: int, terms: BoundTerms | None) -> JsonObject:
        """Return the estimated constants and, if the theorem covers the method, both sides of the bound."""
        squares = (
            self.sum_squares / self.num_observations if self.num_observations else norm(self.gradient) ** 2
        )
        found: JsonObject = {
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

    def bound(self, rounds: int, terms: BoundTerms, sigma_u_2: float) -> float:
        """Compute the right-hand side of eq. 18."""
        drift = self.smoothness * sqrt(self.mean_square) / 2 * terms.learning_rate * terms.num_steps
        progress = 4 * (self.first_loss - self.last_loss) / (terms.gamma * max(1, rounds))
        return progress + 5 * drift**2 + sigma_u_2 / 2 + 4.5 * (terms.lambda_ * terms.max_norm) ** 2


class TheoryMonitor:
    """Observes the losses of honest clients at every evaluation."""

    STATE = ("trajectories",)

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.trajectories: dict[int, Trajectory] = {}

    def observe(self, client: int, w: Tensor) -> dict[str, float]:
        """Add an observation of a client at its model w, and return the loss, the gradient norm and L."""
        settings, shard = self.experiment.settings, self.experiment.train_shards[client]
        stats = loss_stats(self.experiment.model, w, shard, settings.batch_size)
        before = self.trajectories.get(client)
        now = Trajectory.start(w, stats) if before is None else before.extend(w, stats)
        self.trajectories[client] = now
        return {"loss": stats.loss, "gradient_norm": norm(stats.gradient), "L": now.smoothness}

    def summary(self, rounds: Mapping[int, int]) -> JsonObject:
        """Return the verdict per client and the number of clients for which the bound holds."""
        verdicts = {
            client: trajectory.verdict(rounds[client], self._terms(client))
            for client, trajectory in sorted(self.trajectories.items())
        }
        judged = [verdict for verdict in verdicts.values() if "bound" in verdict]
        return {
            "num_judged": len(judged),
            "num_gamma_small_enough": sum(verdict["gamma_is_small_enough"] for verdict in judged),
            "num_bound_holds": sum(verdict["bound_holds"] for verdict in judged),
            "clients": {str(client): verdict for client, verdict in verdicts.items()},
        }

    def _terms(self, client: int) -> BoundTerms | None:
        settings, shard = self.experiment.settings, self.experiment.train_shards[client]
        return self.experiment.method.bound_terms(settings.learning_rate, settings.num_steps(len(shard)))


def _inverse(x: float) -> float | None:
    return 1 / x if x > 0 else None
