"""The average of the honest clients' models: its accuracy, and the mean distance of the models from it.

Decentralised methods are compared by these numbers (Koloskova et al. 2020, A unified theory of decentralized
SGD; Kong et al. 2021, Consensus control for decentralized deep learning).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import torch
from torch import Tensor

from rdpfl_sim.files import JsonObject
from rdpfl_sim.learning.evaluation import evaluate
from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.vectors import norm


class ConsensusMonitor:
    """Holds the honest clients' models at their latest evaluations, and evaluates their average.

    With r the smallest round among these evaluations, the average is due at r = 0, when r reaches a multiple
    of `evaluation.every` or the last round, and at the end of the run.
    """

    STATE = ("models", "next_round", "is_current", "latest")

    def __init__(self, experiment: Experiment) -> None:
        self.model, self.global_test = experiment.model, experiment.global_test
        self.every, self.rounds = experiment.scenario.evaluation.every, experiment.scenario.rounds
        self.models: dict[int, tuple[int, Tensor]] = {}
        """The round and the model of the latest evaluation, by honest client."""
        self.next_round: float = 0
        self.is_current = True
        """Whether no honest client has been evaluated since the latest record."""
        self.latest: JsonObject | None = None
        """The fields of the latest record."""

    def observe(self, client: int, round_: int, w: Tensor) -> None:
        """Store the model of an honest client at its evaluation."""
        self.models[client] = round_, w.clone()  # a view would keep the matrix of its batch in memory
        self.is_current = False

    def is_due(self, is_last: bool) -> bool:
        """Return whether the average must be evaluated now, after all evaluations of this time."""
        return not self.is_current and (is_last or self._round >= self.next_round)

    def evaluate(self) -> JsonObject:
        """Return the fields of a record."""
        round_, self.is_current = self._round, True
        self.next_round = next_due(round_, self.every, self.rounds)
        accuracy, loss, distance = self._measure({i: w for i, (_, w) in sorted(self.models.items())})
        self.latest = {"round": round_, "accuracy": accuracy, "loss": loss, "distance": distance}
        return self.latest

    def _measure(self, models: Mapping[int, Tensor]) -> tuple[float, float, float]:
        total = torch.zeros_like(next(iter(models.values())), dtype=torch.float64)
        for w in models.values():
            total += w
        mean = total / len(models)
        distance = sum(norm(w - mean) for w in models.values()) / len(models)
        found = evaluate(self.model, mean.float(), self.global_test)
        return found.accuracy, found.loss, distance

    @property
    def _round(self) -> int:
        return min(round_ for round_, _ in self.models.values())


def next_due(round_: int, every: int, rounds: int) -> float:
    """Return the first round after `round_` that is due.

    >>> [next_due(r, every=5, rounds=12) for r in (0, 4, 5, 11, 12)]
    [5, 5, 10, 12, inf]
    """
    return inf if round_ >= rounds else min(rounds, (round_ // every + 1) * every)
