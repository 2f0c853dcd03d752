from typing import Any

import numpy as np

from rdpfl_sim.reports.accuracy_curves import MAX_POINTS, Curve, accuracy_curves, latest_values


def curve(time_s: list[float], accuracy: list[float]) -> Curve:
    return Curve(np.array(time_s), np.arange(len(time_s), dtype=float), np.array(accuracy))


def evaluation(
    time_s: float, client: int, round_: int, accuracy: float | None, byzantine: int = 0
) -> dict[str, Any]:
    row = {"time_s": time_s, "client": client, "byzantine": byzantine, "round": round_}
    return row | {"personal_accuracy": accuracy}


def test_missing_and_non_finite_accuracies_are_left_out() -> None:
    rows = [
        evaluation(0.0, client=0, round_=0, accuracy=0.1),
        evaluation(0.5, client=1, round_=0, accuracy=0.2, byzantine=1),
        evaluation(1.0, client=0, round_=2, accuracy=float("nan")),
        evaluation(1.5, client=0, round_=4, accuracy=None),
        evaluation(2.0, client=0, round_=6, accuracy=0.3),
        evaluation(2.5, client=2, round_=6, accuracy=float("inf")),
    ]
    honest, byzantine = accuracy_curves(rows)
    assert list(honest) == [0]
    assert [list(values) for values in honest[0]] == [[0.0, 2.0], [0.0, 6.0], [0.1, 0.3]]
    assert [list(values) for values in byzantine[1]] == [[0.5], [0.0], [0.2]]


def test_latest_value_holds_until_the_next_and_after_the_last() -> None:
    curves = {3: curve([0.0, 2.0], [0.1, 0.5]), 8: curve([1.0, 3.0, 4.0], [0.2, 0.4, 0.6])}
    x, values = latest_values(curves, "time_s")
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    np.testing.assert_array_equal(values, [[0.1, 0.1, 0.5, 0.5, 0.5], [np.nan, 0.2, 0.2, 0.4, 0.6]])


def test_number_of_points_is_bounded() -> None:
    times = np.arange(5000) / 7
    x, values = latest_values({0: Curve(times, times, times)}, "time_s")
    assert values.shape == (1, MAX_POINTS)
    assert (x[0], x[-1], values[0, -1]) == (times[0], times[-1], times[-1])
