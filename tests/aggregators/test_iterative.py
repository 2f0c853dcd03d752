from __future__ import annotations

from math import hypot

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rdpfl_sim.aggregators.coordinatewise import median
from rdpfl_sim.aggregators.iterative import centred_clipping, geometric_median
from tests.aggregators.matrices import MAX, assert_close, attacked, matrices, quick, rounding


def sum_of_distances(u: Tensor, y: Tensor) -> float:
    return float((u.double() - y.double()).norm(dim=1).sum())


def test_geometric_median_of_a_square_is_its_centre() -> None:
    u = torch.tensor([[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 2.0]])
    assert_close(geometric_median(u), torch.tensor([1.0, 1.0]), 1e-6)


def test_geometric_median_of_a_triangle_is_its_fermat_point() -> None:
    # It sees each side under 120 degrees: at (0, h), h / 3 = tan(30 degrees) for a base of length 6.
    u = torch.tensor([[-3.0, 0.0], [3.0, 0.0], [0.0, 10.0]])
    assert_close(geometric_median(u), torch.tensor([0.0, 3**0.5]), 1e-4)


def test_geometric_median_of_a_blunt_triangle_is_its_corner() -> None:
    u = torch.tensor([[-10.0, 0.0], [10.0, 0.0], [1.0, 1.0]])  # more than 120 degrees at (1, 1)
    assert_close(geometric_median(u), torch.tensor([1.0, 1.0]), 1e-4)


def test_geometric_median_is_the_point_on_which_half_of_the_rows_coincide() -> None:
    u = torch.tensor([[1.0, 2.0], [7.0, 2.0], [1.0, 2.0], [5.0, -30.0]])
    assert_close(geometric_median(u), torch.tensor([1.0, 2.0]), 1e-5)


def test_geometric_median_leaves_a_row_where_it_starts_but_which_is_not_the_minimum() -> None:
    # Of the first row alone, two others are within 1.001.
    u = torch.tensor([[0.0, 0.0], [1.1, 0.01], [1.1, -0.02], [-0.01, 1.0], [-0.02, -1.0]])
    # Close to (x, 0), where two rows pull right and three left: 2 = 1 + 2 x / hypot(x, 1).
    assert_close(geometric_median(u), torch.tensor([1 / 3**0.5, 0.0]), 0.02)


def test_geometric_median_stays_on_a_row_where_it_starts_and_which_is_the_minimum() -> None:
    # From (5, 7) the unit vectors to the others add up to (-0.20, -0.22), less than the 1 that leaves a row.
    u = torch.tensor([[5.0, 7.0], [8.0, 8.0], [4.0, 9.0], [3.0, 6.0], [6.0, 2.0]])
    assert geometric_median(u).tolist() == [5.0, 7.0]


def test_geometric_median_stops_after_the_given_iterations() -> None:
    u = torch.tensor([[-3.0, 0.0], [3.0, 0.0], [0.0, 10.0]])
    # From (0, 0), between the two rows that are nearest to each other: the pulls are 1/3, 1/3 and 1/10.
    assert_close(geometric_median(u, iterations=1), torch.tensor([0.0, 1 / (1 / 3 + 1 / 3 + 1 / 10)]), 1e-6)


def test_geometric_median_stops_at_a_step_within_the_tolerance() -> None:
    u = torch.tensor([[-3.0, 0.0], [3.0, 0.0], [0.0, 10.0]])
    assert torch.equal(geometric_median(u, tolerance=10.0), geometric_median(u, iterations=1))


@given(matrices(limit=1e3))
@quick
def test_geometric_median_is_as_good_as_many_plain_weiszfeld_steps_and_as_each_row(u: Tensor) -> None:
    rows = u.double().tolist()
    y = u.double().mean(dim=0).tolist()
    for _ in range(300):
        pull = [1 / max(hypot(*(a - b for a, b in zip(row, y, strict=True))), 1e-9) for row in rows]
        total = sum(pull)
        columns = zip(*rows, strict=True)
        y = [sum(p * x for p, x in zip(pull, column, strict=True)) / total for column in columns]
    rivals = [torch.tensor(y), *u]
    least = min(sum_of_distances(u, rival) for rival in rivals)
    assert sum_of_distances(u, geometric_median(u)) <= least * 1.01 + rounding(u).sum()


@given(attacked())
@quick
def test_fewer_than_half_of_the_rows_move_the_geometric_median_by_a_bounded_distance(
    case: tuple[Tensor, Tensor],
) -> None:
    # |y - z| <= 2 (n - f) / (n - 2 f) max_honest |u_i - z| for every z (Minsker 2015, Lemma 2.1).
    honest, u = case
    n, f = len(u), len(u) - len(honest)
    z = honest.mean(dim=0)
    radius = (honest - z).norm(dim=1).max()
    assert (geometric_median(u) - z).norm() <= 2 * (n - f) / (n - 2 * f) * radius * 1.01 + 1e-6


@pytest.mark.parametrize("far", [1e2, 1e4, 1e12, 1e30])
def test_pull_of_an_outlier_on_the_geometric_median_does_not_grow_with_its_distance(far: float) -> None:
    # From (0, y) the rows at (-1, 0) and (1, 0) pull down by 2 y / hypot(1, y), the outlier up by 1.
    u = torch.tensor([[-1.0, 0.0], [1.0, 0.0], [0.0, far]])
    assert_close(geometric_median(u), torch.tensor([0.0, 1 / 3**0.5]), 1e-5)


# Centred clipping.


def test_centred_clipping_moves_the_median_by_the_mean_of_the_clipped_differences() -> None:
    u = torch.tensor([[0.0], [1.0], [2.0], [10.0], [3.0]])
    assert centred_clipping(u, radius=3.0).item() == pytest.approx(2 + (-2 - 1 + 0 + 3 + 1) / 5)
    # From 2.2 on: the differences are -2.2, -1.2, -0.2, 3 (clipped) and 0.8.
    assert centred_clipping(u, radius=3.0, iterations=2).item() == pytest.approx(2.2 + 0.2 / 5)


def test_centred_clipping_by_default_clips_to_the_median_distance() -> None:
    u = torch.tensor([[0.0], [1.0], [2.0], [10.0], [4.0]])  # distances from the median: 2, 1, 0, 8, 2
    assert centred_clipping(u).item() == pytest.approx(2 + (-2 - 1 + 0 + 2 + 2) / 5)
    u = torch.tensor([[0.0], [3.0], [4.0], [9.0]])  # from 3.5: 3.5, 0.5, 0.5, 5.5; the lower middle is 0.5
    assert centred_clipping(u).item() == pytest.approx(3.5)


def test_centred_clipping_can_start_at_zero() -> None:
    u = torch.tensor([[3.0, 4.0], [0.0, 0.5], [0.0, 0.0]])
    assert_close(centred_clipping(u, radius=1.0, start="zero"), torch.tensor([0.6, 0.8 + 0.5]) / 3, 1e-6)


def test_centred_clipping_stays_where_half_of_the_rows_are() -> None:
    u = torch.tensor([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [7.0, 5.0], [-1e30, 4.0]])
    assert centred_clipping(u).tolist() == [1.0, 2.0]


@given(
    matrices(limit=1e3),
    st.sampled_from([0.1, 10.0, 1e4]),
    st.sampled_from(["median", "zero"]),
    st.integers(1, 4),
)
@quick
def test_centred_clipping_agrees_with_a_loop_over_the_rows(
    u: Tensor, radius: float, start: str, iterations: int
) -> None:
    v = median(u).double() if start == "median" else torch.zeros(u.shape[1]).double()
    for _ in range(iterations):
        pulls = [row * min(1.0, radius / max(row.norm().item(), 1e-30)) for row in u.double() - v]
        v = v + torch.stack(pulls).mean(dim=0)
    result = centred_clipping(u, radius=radius, start=start, iterations=iterations)
    assert_close(result, v, rounding(u).max())


@pytest.mark.parametrize("sent", [1e3, -1e12, MAX])
def test_each_attacker_moves_centred_clipping_by_at_most_its_share_of_the_radius(sent: float) -> None:
    honest = torch.randn(7, 50, generator=torch.Generator().manual_seed(0))
    u = torch.cat([torch.full((3, 50), sent), honest])
    moved = (
        centred_clipping(u, radius=1.0, start="zero")
        - centred_clipping(honest, radius=1.0, start="zero") * 0.7
    )
    assert moved.norm() <= 3 * 1.0 / 10 + 1e-6
