import pytest

from rdpfl_sim.intervals import MeanInterval, mean_interval, paired_difference


def test_interval_is_that_of_students_t() -> None:
    found = mean_interval([1.0, 2.0, 3.0])
    half_width = 4.302653 / 3**0.5
    assert (found.mean, found.deviation, found.num) == (2.0, 1.0, 3)
    assert found.half_width == pytest.approx(half_width, rel=1e-6)
    assert (found.low, found.high) == (pytest.approx(2 - half_width), pytest.approx(2 + half_width))


def test_single_value_has_no_interval() -> None:
    found = mean_interval([4.0])
    assert found == MeanInterval(4.0, None, None, 1)
    assert (found.low, found.high, found.excludes_zero) == (4.0, 4.0, False)


def test_differences_are_paired_by_seed_over_the_seeds_that_both_have() -> None:
    found = paired_difference({1: 0.5, 2: 1.0, 3: 9.0}, {2: 0.25, 1: 0.25, 4: 0.0})
    assert found == mean_interval([0.25, 0.75])
    assert paired_difference({1: 0.5}, {2: 0.5}) is None


@pytest.mark.parametrize(("values", "expected"), [([0.9, 1.0, 1.1], True), ([-1.0, 0.0, 2.0], False)])
def test_zero_is_outside_the_interval_of_values_that_are_clearly_above_it(values, expected: bool) -> None:
    assert mean_interval(values).excludes_zero is expected
    assert mean_interval([-value for value in values]).excludes_zero is expected
