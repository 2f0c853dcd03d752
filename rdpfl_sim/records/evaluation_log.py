"""The evaluations of a run: latest scores, mean accuracy of honest clients, and time to accuracy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

from rdpfl_sim.records.metrics_file import MetricsRow

TARGETS = [percent / 100 for percent in range(10, 100, 5)]
"""Target accuracies. The log contains the time at which each is first reached."""

SLACK = 1e-9
"""Tolerance for rounding: the mean of 0.7, 0.7 and 0.7 is 0.6999999999999998."""


class EvaluationLog:
    """Passes every evaluation to `write` and keeps the latest one of each client."""

    STATE = ("latest", "time_to_accuracy_s", "_honest_sum")

    def __init__(
        self, byzantine: Collection[int], num_honest: int, write: Callable[[MetricsRow], None]
    ) -> None:
        self.byzantine = byzantine
        self.num_honest = num_honest
        self.write = write
        self.latest: dict[int, MetricsRow] = {}
        self.time_to_accuracy_s: dict[str, float] = {}
        """The time at which the honest clients' mean accuracy first reached each target, if it did."""
        self._honest_sum = 0.0

    def add(self, time_s: float, client: int, round_: int, scores: Mapping[str, Any]) -> None:
        """Add the evaluation of a client."""
        if client not in self.byzantine:
            self._honest_sum += _accuracy(scores) - _accuracy(self.latest.get(client, {}))
        row = {
            "time_s": time_s,
            "client": client,
            "byzantine": int(client in self.byzantine),
            "round": round_,
            **scores,
        }
        self.latest[client] = cast("MetricsRow", row)
        self.write(self.latest[client])
        mean = self.honest_mean
        for target in TARGETS[len(self.time_to_accuracy_s) :]:
            if mean is None or mean < target - SLACK:
                break
            self.time_to_accuracy_s[str(target)] = time_s

    @property
    def honest_mean(self) -> float | None:
        """The mean personal accuracy of the honest clients at their latest evaluations."""
        return self._honest_sum / self.num_honest if self.latest else None


def _accuracy(scores: Mapping[str, Any]) -> float:
    return float(scores.get("personal_accuracy", 0.0))
