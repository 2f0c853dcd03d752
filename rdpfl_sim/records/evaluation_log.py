"""The evaluations of a run: every row goes to whoever keeps them, the latest of each client stays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

TARGETS = [percent / 100 for percent in range(10, 100, 5)]
"""Accuracies whose first time is noted."""

SLACK = 1e-9
"""For rounding: the mean of 0.7, 0.7 and 0.7 is 0.6999999999999998."""


class EvaluationLog:
    """The latest evaluation of every client, the honest clients' mean accuracy, and when it got how far."""

    STATE = ("latest", "time_to_accuracy_s", "_honest_sum")

    def __init__(
        self, byzantine: Collection[int], num_honest: int, keep: Callable[[dict[str, Any]], None]
    ) -> None:
        self.byzantine = byzantine
        self.num_honest = num_honest
        self.keep = keep
        self.latest: dict[int, dict[str, Any]] = {}
        self.time_to_accuracy_s: dict[str, float] = {}
        """When the honest clients' mean first reached each of the targets that it has reached."""
        self._honest_sum = 0.0

    def add(self, time_s: float, client: int, round_: int, scores: Mapping[str, Any]) -> None:
        """A client was evaluated."""
        if client not in self.byzantine:
            self._honest_sum += _accuracy(scores) - _accuracy(self.latest.get(client, {}))
        self.latest[client] = {
            "time_s": time_s,
            "client": client,
            "byzantine": int(client in self.byzantine),
            "round": round_,
            **scores,
        }
        self.keep(self.latest[client])
        mean = self.honest_mean
        for target in TARGETS[len(self.time_to_accuracy_s) :]:
            if mean is None or mean < target - SLACK:
                break
            self.time_to_accuracy_s[str(target)] = time_s

    @property
    def honest_mean(self) -> float | None:
        """Mean personal accuracy of the honest clients at their latest evaluations."""
        return self._honest_sum / self.num_honest if self.latest else None


def _accuracy(scores: Mapping[str, Any]) -> float:
    return float(scores.get("personal_accuracy", 0.0))
