import numpy as np

from rdpfl_sim.reports.figures import MAX_POINTS, Curve, client_curves, latest_values


def curve(time_s: list[float], accuracy: list[float]) -> Curve:
    return Curve(np.array(time_s), np.arange(len(time_s), dtype=float), np.array(accuracy))


def test_missing_and_non_finite_accuracies_are_omitted() -> None:
    evaluations = [
        (0, 0.0, 0, 0.1),
        (0, 1.0, 2, float("nan")),
        (0, 1.5, 4, None),
        (0, 2.0, 6, 0.3),
        (2, 2.5, 6, float("inf")),
    ]
    curves = client_curves(evaluations)
    assert list(curves) == [0]
    assert [list(values) for values in curves[0]] == [[0.0, 2.0], [0.0, 6.0], [0.1, 0.3]]


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
