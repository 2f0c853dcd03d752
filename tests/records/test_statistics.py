"""Accuracy statistics over clients."""

from __future__ import annotations

from typing import Any

import pytest

from rdpfl_sim.records.metrics import STATISTICS, accuracy, with_accuracy


def row(byzantine: int, personal: float | None, hops: int | None = None) -> dict[str, Any]:
    return {
        "byzantine": byzantine,
        "hops": hops,
        "trained_personal_accuracy": personal,
        "trained_global_accuracy": None,
        "updated_personal_accuracy": 0.125,
        "updated_global_accuracy": 0.25,
    }


def test_statistics_of_hand_computed_values() -> None:
    rows = [row(0, 0.5), row(0, 0.7), row(0, 0.9), row(1, 0.1)]
    found = accuracy(rows, "trained")
    assert found["honest"]["personal"] == pytest.approx(
        {"mean": 0.7, "worst": 0.5, "p10": 0.54, "spread": (0.08 / 3) ** 0.5}
    )
    assert found["all"]["personal"]["worst"] == 0.1
    assert found["honest"]["global"] is None, "no client was evaluated on the global test set"
    assert accuracy(rows, "updated")["honest"]["global"]["mean"] == 0.25


def test_every_statistic_is_in_the_summary() -> None:
    assert list(accuracy([row(0, 1.0)], "trained")["all"]["personal"]) == [
        statistic.key for statistic in STATISTICS
    ]


def test_accuracy_by_distance_counts_honest_clients_only() -> None:
    rows = [row(0, 0.5, hops=2), row(0, 0.7, hops=10), row(0, 0.9, hops=2), row(1, 0.0, hops=0)]
    found = with_accuracy({"2": {"clipped": 0.25}}, rows, "trained")
    assert list(found) == ["2", "10"], "sorted by number"
    assert found["2"] == {"num_clients": 2, "personal_accuracy": 0.7, "clipped": 0.25}
