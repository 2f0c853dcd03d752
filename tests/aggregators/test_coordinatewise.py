from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import ceil, floor

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from rdpfl_sim.aggregators.coordinatewise import meamed, mean, median, trimmed_mean
from tests.aggregators.matrices import assert_close, attacked, matrices, quick, rounding, widened


def slow_trimmed_mean(u: Tensor, cut: int) -> Tensor:
    columns = [sorted(column)[cut : len(column) - cut] for column in u.T.tolist()]
    return torch.tensor([sum(column) / len(column) for column in columns], dtype=torch.float64)


# Values worked out by hand.


def test_mean_is_the_mean_of_the_rows() -> None:
    assert mean(torch.tensor([[1.0, -4.0], [2.0, 0.0], [6.0, 1.0]])).tolist() == [3.0, -1.0]


def test_median_of_an_odd_number_of_rows_is_the_middle_value_of_each_coordinate() -> None:
    assert median(torch.tensor([[1.0, 9.0], [5.0, -7.0], [100.0, 2.0]])).tolist() == [5.0, 2.0]


def test_median_of_an_even_number_of_rows_is_the_mean_of_the_two_middle_values() -> None:
    assert median(torch.tensor([[1.0, 9.0], [5.0, -7.0], [100.0, 2.0], [2.0, 3.0]])).tolist() == [3.5, 2.5]


def test_trimmed_mean_cuts_the_fraction_rounded_up_from_each_end() -> None:
    u = torch.tensor([[-50.0], [1.0], [3.0], [5.0], [90.0]])
    assert trimmed_mean(u, trim=0.0).item() == pytest.approx(49 / 5)  # none of five
    assert trimmed_mean(u, trim=0.01).item() == 3.0  # one: the mean of 1, 3 and 5
    assert trimmed_mean(u[[0, 1, 3]], trim=0.2).item() == 1.0  # one of three
    assert trimmed_mean(u + torch.tensor([[0.0], [0.0], [0.0], [7.0], [0.0]]), trim=0.21).item() == 3.0  # two


def test_trimmed_mean_cuts_three_attackers_among_nine() -> None:
    u = torch.tensor([[1e6], [1.0], [2.0], [1e6], [3.0], [4.0], [5.0], [1e6], [6.0]])
    assert trimmed_mean(u, trim=0.3).item() == 5.0  # of 1, 2, 3 | 4, 5, 6 | 1e6, 1e6, 1e6


def test_trimmed_mean_cuts_no_extra_row_when_the_fraction_is_not_exact_in_binary() -> None:
    u = torch.arange(100.0).square().unsqueeze(1)
    assert ceil(0.07 * 100) == 8, "binary arithmetic rounds 0.07 * 100 up"
    assert trimmed_mean(u, trim=0.07).item() == pytest.approx(u[7:93].mean().item())
    assert floor(0.29 * 100) == 28, "and 0.29 * 100 down"
    assert trimmed_mean(u, trim=0.29).item() == pytest.approx(u[29:71].mean().item())


def test_trimmed_mean_keeps_at_least_one_row() -> None:
    assert trimmed_mean(torch.tensor([[7.0]]), trim=0.3).item() == 7.0
    assert trimmed_mean(torch.tensor([[1.0], [3.0]]), trim=0.4999999999).item() == 2.0
    assert trimmed_mean(torch.tensor([[1.0], [3.0], [-9.0], [70.0]]), trim=0.3).item() == 2.0


def test_meamed_averages_the_values_nearest_to_the_median() -> None:
    # The median is 3; three of five are kept: 3, 4 and 1.
    u = torch.tensor([[3.0], [9.0], [1.0], [4.0], [-7.0]])
    assert meamed(u, byzantine=0.4).item() == pytest.approx(8 / 3)
    assert meamed(u, byzantine=0.2).item() == pytest.approx((3 + 4 + 1 + 9) / 4)
    assert meamed(u, byzantine=0.0).item() == pytest.approx(2.0)


def test_meamed_counts_two_values_that_tie_for_the_last_place_half_each() -> None:
    # The median is 2, then come 1 and 3; the third place is shared by 0 and 4.
    u = torch.tensor([[0.0], [4.0], [1.0], [3.0], [2.0]])
    assert meamed(u, byzantine=0.2).item() == 2.0
    assert meamed(u, byzantine=0.6).item() == 2.0  # 2, and 1 or 3
    # Of four the median is 2.5, and 2 and 3 are equally near.
    assert meamed(torch.tensor([[2.0], [3.0], [9.0], [-1.0]]), byzantine=0.75).item() == 2.5


def test_meamed_rounds_the_byzantine_fraction_up() -> None:
    u = torch.arange(100.0).square().unsqueeze(1)
    assert ceil(0.07 * 100) == 8, "binary arithmetic rounds 0.07 * 100 up"
    assert meamed(u, byzantine=0.07).item() == pytest.approx(u[:93].mean().item())


@pytest.mark.parametrize("rule", [mean, median, trimmed_mean, meamed])
@pytest.mark.parametrize("d", [2, 2000])
def test_largest_numbers_of_float64_do_not_overflow(rule: Callable[..., Tensor], d: int) -> None:
    largest = torch.finfo(torch.float64).max
    u = torch.full((10, d), largest, dtype=torch.float64)
    assert_close(rule(u) / largest, torch.ones(d), 1e-12)
    u[:5] *= -0.5
    assert_close(rule(u) / largest, torch.full((d,), 0.25), 1e-12)


# Against the slow versions.


@given(matrices(limit=1e6))
@quick
def test_median_and_trimmed_mean_agree_with_sorting_each_column(u: Tensor) -> None:
    n = len(u)
    for v in (u, widened(u)):
        columns = slice(v.shape[1] - u.shape[1], None)  # in the last, ragged block
        assert_close(median(v)[columns], slow_trimmed_mean(u, (n - 1) // 2), rounding(u))
        assert_close(
            trimmed_mean(v, trim=0.2)[columns],
            slow_trimmed_mean(u, min(ceil(n / 5), (n - 1) // 2)),
            rounding(u),
        )
        assert_close(mean(v)[columns], slow_trimmed_mean(u, 0), rounding(u))


def slow_meamed(column: list[float], k: int) -> float:
    """Return the mean of the k consecutive values nearest to the median; ties average first and last."""
    s = sorted(map(Fraction, column))
    twice_median = s[(len(s) - 1) // 2] + s[len(s) // 2]
    windows = [s[i : i + k] for i in range(len(s) - k + 1)]
    distances = [sum(abs(2 * x - twice_median) for x in window) for window in windows]
    best = [sum(w) for w, distance in zip(windows, distances, strict=True) if distance == min(distances)]
    return float((best[0] + best[-1]) / 2 / k)


@given(
    st.tuples(st.integers(1, 11), st.integers(1, 4)).flatmap(
        lambda shape: arrays(np.float32, shape, elements=st.integers(-40, 40).map(lambda x: x / 8))
    ),
    st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.8, 1.0]),
)
@quick
def test_meamed_agrees_with_trying_all_neighbours_in_the_order(array: np.ndarray, byzantine: float) -> None:
    u = torch.from_numpy(array)
    k = max(1, len(u) - ceil(round(byzantine * len(u), 6)))
    expected = torch.tensor([slow_meamed(column, k) for column in u.T.tolist()])
    for v in (u, widened(u)):
        assert_close(meamed(v, byzantine=byzantine)[-u.shape[1] :], expected, 1e-5)


# Breakdown.


@given(attacked())
@quick
def test_fewer_than_half_of_the_rows_cannot_move_the_median_out_of_the_honest_hull(
    case: tuple[Tensor, Tensor],
) -> None:
    honest, u = case
    result = median(u)
    assert (honest.amin(dim=0) <= result).all()
    assert (result <= honest.amax(dim=0)).all()


@given(attacked())
@quick
def test_trimmed_mean_that_cuts_as_many_rows_as_there_are_attackers_stays_in_the_honest_hull(
    case: tuple[Tensor, Tensor],
) -> None:
    honest, u = case
    result = trimmed_mean(u, trim=(len(u) - len(honest)) / len(u))
    assert (honest.amin(dim=0) - 1e-6 <= result).all()
    assert (result <= honest.amax(dim=0) + 1e-6).all()


@given(attacked())
@quick
def test_assumed_fraction_of_attackers_moves_meamed_by_at_most_the_width_of_the_honest_hull(
    case: tuple[Tensor, Tensor],
) -> None:
    # The median is in the honest hull, and at least n - f values are within its width of the median.
    honest, u = case
    result = meamed(u, byzantine=(len(u) - len(honest)) / len(u))
    low, high = honest.amin(dim=0), honest.amax(dim=0)
    assert (result >= low - (high - low) - 1e-6).all()
    assert (result <= high + (high - low) + 1e-6).all()
