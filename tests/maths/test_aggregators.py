from __future__ import annotations

import itertools
from math import ceil, floor, hypot

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from rdpfl_sim.maths.aggregators import (
    AGGREGATORS,
    geometric_median,
    krum,
    mean,
    median,
    multi_krum,
    trimmed_mean,
)
from rdpfl_sim.maths.sorting import band_mean, program
from rdpfl_sim.registry import OneOf

MAX = torch.finfo(torch.float32).max
every_aggregator = pytest.mark.parametrize("name", AGGREGATORS)
quick = settings(max_examples=25, deadline=None)


def matrices(min_rows: int = 1, limit: float = MAX) -> st.SearchStrategy[Tensor]:
    shapes = st.tuples(st.integers(min_rows, 11), st.integers(1, 4))
    entries = st.floats(-limit, limit, width=32) | st.integers(-3, 3).map(float)
    return shapes.flatmap(lambda shape: arrays(np.float32, shape, elements=entries)).map(torch.from_numpy)


def widened(u: Tensor) -> Tensor:
    """The same columns again and again, until there are enough for the network and for several blocks."""
    return u.repeat(1, ceil(70_000 / u.shape[1]))


def rounding(u: Tensor) -> Tensor:
    return u.abs().amax(dim=0).double() * 1e-5 + 1e-44  # the last for floats too small to be halved


def assert_close(a: Tensor, b: Tensor, tolerance: Tensor | float) -> None:
    assert ((a.double() - b.double()).abs() <= tolerance).all(), (
        f"{a} and {b} differ by more than {tolerance}"
    )


# Independent slow versions, one number at a time.


def slow_trimmed_mean(u: Tensor, cut: int) -> Tensor:
    columns = [sorted(column)[cut : len(column) - cut] for column in u.T.tolist()]
    return torch.tensor([sum(column) / len(column) for column in columns], dtype=torch.float64)


def slow_krum_scores(u: Tensor, f: int) -> list[float]:
    rows = u.tolist()
    scores = []
    for i, a in enumerate(rows):
        others = [b for j, b in enumerate(rows) if j != i]
        distances = sorted(sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) for b in others)
        scores.append(sum(distances[: max(1, len(rows) - f - 2)]))
    return scores


def sum_of_distances(u: Tensor, y: Tensor) -> float:
    return float((u.double() - y.double()).norm(dim=1).sum())


# Values worked out by hand.


def test_mean_is_the_mean_of_the_rows() -> None:
    assert mean(torch.tensor([[1.0, -4.0], [2.0, 0.0], [6.0, 1.0]])).tolist() == [3.0, -1.0]


def test_median_of_an_odd_number_of_rows_is_the_middle_value_of_each_coordinate() -> None:
    assert median(torch.tensor([[1.0, 9.0], [5.0, -7.0], [100.0, 2.0]])).tolist() == [5.0, 2.0]


def test_median_of_an_even_number_of_rows_is_the_mean_of_the_two_middle_values() -> None:
    assert median(torch.tensor([[1.0, 9.0], [5.0, -7.0], [100.0, 2.0], [2.0, 3.0]])).tolist() == [3.5, 2.5]


def test_trimmed_mean_cuts_the_floor_of_the_fraction_from_each_end() -> None:
    u = torch.tensor([[-50.0], [1.0], [2.0], [3.0], [90.0]])
    assert trimmed_mean(u, trim=0.39).item() == 2.0  # one of five, at each end
    assert trimmed_mean(u, trim=0.4).item() == 2.0  # two of five
    assert trimmed_mean(u[1:], trim=0.3).item() == 2.5  # one of four
    assert trimmed_mean(u, trim=0.19).item() == pytest.approx(46 / 5)  # none


def test_trimmed_mean_does_not_lose_a_row_to_the_rounding_of_the_fraction() -> None:
    u = torch.arange(100.0).square().unsqueeze(1)
    assert floor(0.29 * 100) == 28, "binary arithmetic rounds 0.29 * 100 down"
    assert trimmed_mean(u, trim=0.29).item() == pytest.approx(u[29:71].mean().item())


def test_trimmed_mean_always_keeps_a_row() -> None:
    assert trimmed_mean(torch.tensor([[1.0], [3.0]]), trim=0.4999999999).item() == 2.0


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
    u = torch.tensor([[0.0, 0.0], [1.0, 0.01], [1.0, -0.02], [-0.01, 1.0], [-0.02, -1.0]])
    assert median(u).tolist() == [0.0, 0.0]
    # Close to (x, 0), where two rows pull right and three left: 2 = 1 + 2 x / hypot(x, 1).
    assert_close(geometric_median(u), torch.tensor([1 / 3**0.5, 0.0]), 0.02)


def test_geometric_median_stays_on_a_row_where_it_starts_and_which_is_the_minimum() -> None:
    # From (5, 7) the unit vectors to the others add up to (-0.20, -0.22), less than the 1 that leaves a row.
    u = torch.tensor([[5.0, 7.0], [8.0, 8.0], [4.0, 9.0], [3.0, 6.0], [6.0, 2.0]])
    assert geometric_median(u).tolist() == [5.0, 7.0]


def test_geometric_median_stops_after_the_given_iterations() -> None:
    u = torch.tensor([[-3.0, 0.0], [3.0, 0.0], [0.0, 10.0]])
    # From the median (0, 0): the pulls are 1/3, 1/3 and 1/10.
    assert_close(geometric_median(u, iterations=1), torch.tensor([0.0, 1 / (1 / 3 + 1 / 3 + 1 / 10)]), 1e-6)


def test_geometric_median_stops_at_a_step_within_the_tolerance() -> None:
    u = torch.tensor([[-3.0, 0.0], [3.0, 0.0], [0.0, 10.0]])
    assert torch.equal(geometric_median(u, tolerance=10.0), geometric_median(u, iterations=1))


def test_krum_is_the_row_with_the_closest_neighbours() -> None:
    # f = 1 of 5, so two neighbours count. Scores: 0: 1 + 4, 1: 1 + 1, 2: 1 + 4, 10: 64 + 81, -9: 81 + 100.
    u = torch.tensor([[10.0], [0.0], [1.0], [2.0], [-9.0]])
    assert krum(u, byzantine=0.2).item() == 1.0


def test_krum_averages_rows_with_the_same_score() -> None:
    # f = 2 of 4 leaves one neighbour: 1 and 3 are each other's nearest.
    assert krum(torch.tensor([[1.0], [10.0], [3.0], [-8.0]]), byzantine=0.3).item() == 2.0


def test_krum_sees_a_tie_in_spite_of_rounding() -> None:
    # Three neighbours count; the scores are 0 + 1 + sqrt(2)^2 twice, 1 + 1 + 1, 1 + 2 + 4 and 1 + 2 + 2.
    u = torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, 1.0], [0.0, 2.0], [1.0, 1.0]])
    assert_close(krum(u, byzantine=0.0), torch.tensor([0.0, 1 / 3]), 1e-6)


def test_krum_rounds_the_byzantine_fraction_up() -> None:
    # With f = 1 of 6 three neighbours count, and the scores are 21, 11, 9, 11.25, 12.25, 28.75;
    # with f = 2 two neighbours count, and the scores are 5, 2, 5, 5, 3.25, 8.5.
    u = torch.tensor([[0.0], [1.0], [2.0], [4.0], [5.0], [6.5]])
    assert krum(u, byzantine=1 / 6).item() == 2.0
    assert krum(u, byzantine=0.17).item() == 1.0


def test_multi_krum_averages_all_but_the_assumed_byzantine_rows() -> None:
    u = torch.tensor([[10.0], [0.0], [1.0], [2.0], [-9.0]])  # scores as above
    assert multi_krum(u, byzantine=0.2).item() == pytest.approx((10 + 0 + 1 + 2) / 4)
    assert multi_krum(u, byzantine=0.2, keep=0.6).item() == pytest.approx(1.0)
    assert multi_krum(u, byzantine=0.2, keep=0.1).item() == 1.0


def test_multi_krum_does_not_gain_a_row_from_the_rounding_of_the_fraction() -> None:
    u = torch.arange(100.0).square().unsqueeze(1)
    assert ceil(0.07 * 100) == 8, "binary arithmetic rounds 0.07 * 100 up"
    scores = slow_krum_scores(u, 90)
    assert multi_krum(u, byzantine=0.9, keep=0.07).item() == pytest.approx(
        sum(u[i].item() for i in sorted(range(100), key=scores.__getitem__)[:7]) / 7
    )


def test_krum_tells_apart_rows_that_are_close_together_and_far_from_the_origin() -> None:
    offsets = torch.tensor([[0.0], [2.0], [3.0], [6.0], [9.0]]) * 2**-10  # scores 13, 5, 10, 18, 45
    u = (4096 + offsets).repeat(1, 1000)  # exact in float32, while the squares are not
    assert torch.equal(krum(u, byzantine=0.2), u[1])


def test_krum_tells_apart_rows_whose_squares_vanish_in_float32() -> None:
    u = torch.tensor([[9.0], [0.0], [1.0], [2.5], [-9.0]]) * 1e-30
    assert krum(u, byzantine=0.2).item() == u[2].item()


# The network.


@pytest.mark.parametrize("n", range(1, 11))
def test_network_finds_every_band_of_every_sequence_of_zeros_and_ones(n: int) -> None:
    # By the zero-one principle it then finds every band of all sequences.
    u = torch.tensor(list(itertools.product([0.0, 1.0], repeat=n))).T.repeat(1, 2 ** (10 - n))
    for low, high in itertools.combinations(range(n + 1), 2):
        expected = u.sort(dim=0).values[low:high].sum(dim=0) / (high - low)
        assert torch.equal(band_mean(u, low, high), expected), f"band {low}..{high - 1} of {n}"


@pytest.mark.parametrize("n", [11, 16, 17, 31, 50])
def test_network_finds_the_median_and_the_trimmed_mean_of_many_rows(n: int) -> None:
    u = torch.randn(n, 40_000, generator=torch.Generator().manual_seed(n))
    in_order = u.double().sort(dim=0).values
    assert_close(median(u), in_order[(n - 1) // 2 : n // 2 + 1].mean(dim=0), 1e-6)
    cut = floor(0.3 * n)
    assert_close(trimmed_mean(u), in_order[cut : n - cut].mean(dim=0), 1e-6)


def test_network_leaves_out_what_the_band_does_not_need() -> None:
    assert len(program(3, 1, 2).steps) == 4  # the median of three: max(min(a, b), min(max(a, b), c))
    assert len(program(9, 4, 5).steps) == 36  # sorting nine rows takes 52
    assert len(program(9, 0, 1).steps) == 8  # the minimum of nine
    assert program(9, 0, 9).steps == []


# Against the slow versions.


@given(matrices(limit=1e6))
@quick
def test_median_and_trimmed_mean_agree_with_sorting_each_column(u: Tensor) -> None:
    n = len(u)
    for v in (u, widened(u)):
        columns = slice(v.shape[1] - u.shape[1], None)  # in the last, ragged block
        assert_close(median(v)[columns], slow_trimmed_mean(u, (n - 1) // 2), rounding(u))
        assert_close(trimmed_mean(v, trim=0.2)[columns], slow_trimmed_mean(u, floor(n / 5)), rounding(u))
        assert_close(mean(v)[columns], slow_trimmed_mean(u, 0), rounding(u))


@given(matrices(min_rows=2, limit=1e3), st.sampled_from([0.0, 0.1, 0.3, 0.5, 1.0]))
@quick
def test_krum_chooses_the_least_of_the_scores(u: Tensor, byzantine: float) -> None:
    f = ceil(round(byzantine * len(u), 6))
    scores = slow_krum_scores(u, f)
    best = [row for row, score in zip(u.double(), scores, strict=True) if score <= min(scores) * (1 + 1e-9)]
    assert_close(krum(u, byzantine=byzantine), torch.stack(best).mean(dim=0), rounding(u))


@given(matrices(min_rows=2, limit=1e3), st.sampled_from([0.0, 0.1, 0.3, 0.5]))
@quick
def test_multi_krum_averages_the_least_scores(u: Tensor, byzantine: float) -> None:
    f = ceil(round(byzantine * len(u), 6))
    scores = slow_krum_scores(u, f)
    last = sorted(scores)[len(u) - f - 1] * (1 + 1e-9)
    kept = [row for row, score in zip(u.double(), scores, strict=True) if score <= last]
    assert_close(multi_krum(u, byzantine=byzantine), torch.stack(kept).mean(dim=0), rounding(u))


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


# What holds for all of them.


@every_aggregator
@given(u=matrices())
@quick
def test_finite_messages_give_a_finite_result_inside_their_hull(name: str, u: Tensor) -> None:
    result = AGGREGATORS[name](u)
    assert result.isfinite().all()
    assert (result.double() >= u.amin(dim=0).double() - rounding(u)).all()
    assert (result.double() <= u.amax(dim=0).double() + rounding(u)).all()


@every_aggregator
@pytest.mark.parametrize("n", [1, 2, 3, 7, 10])
@pytest.mark.parametrize("d", [3, 2000])
def test_the_largest_floats_do_not_overflow(name: str, n: int, d: int) -> None:
    largest = torch.full((n, d), MAX)
    assert_close(AGGREGATORS[name](largest), largest[0], MAX * 1e-6)
    lopsided = largest * torch.linspace(0.8, 1, n).unsqueeze(1)
    lopsided[-1] = -MAX
    assert AGGREGATORS[name](lopsided).isfinite().all()


@every_aggregator
@given(u=matrices(), data=st.data())
@quick
def test_the_order_of_the_messages_does_not_matter(name: str, u: Tensor, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(u))))
    # The geometric median stops at a step that is short, though not in a coordinate of much smaller scale.
    tolerance = rounding(u).max() if name == "geometric_median" else rounding(u)
    assert_close(AGGREGATORS[name](u), AGGREGATORS[name](u[order]), tolerance)


@every_aggregator
@given(u=matrices())
@quick
def test_messages_are_not_changed(name: str, u: Tensor) -> None:
    for v in (u, widened(u)):
        before = v.clone()
        AGGREGATORS[name](v).fill_(0)  # nor is the result a view of them
        assert torch.equal(v, before)


@every_aggregator
@pytest.mark.parametrize("d", [1, 5, 2000])
def test_one_message_is_its_own_aggregate(name: str, d: int) -> None:
    u = torch.linspace(-3, 5, d).unsqueeze(0)
    assert torch.equal(AGGREGATORS[name](u), u[0])


@every_aggregator
@pytest.mark.parametrize("d", [1, 5, 2000])
def test_two_messages_are_averaged_as_neither_can_be_preferred(name: str, d: int) -> None:
    u = torch.stack([torch.linspace(-3, 5, d), torch.full((d,), 2.0)])
    assert_close(AGGREGATORS[name](u), (u[0] + u[1]) / 2, 1e-6)


@every_aggregator
def test_result_is_a_vector_of_the_type_of_the_messages(name: str) -> None:
    result = AGGREGATORS[name](torch.randn(5, 7).T.contiguous().T)
    assert (result.shape, result.dtype) == ((7,), torch.float32)


# Breakdown: what fewer than half of the rows can do.


@st.composite
def attacked(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Honest rows in [-1, 1], and the same with fewer arbitrary rows than that among them."""
    num_honest, d = draw(st.integers(2, 7)), draw(st.integers(1, 4))
    num_byzantine = draw(st.integers(1, num_honest - 1))
    honest = draw(arrays(np.float32, (num_honest, d), elements=st.floats(-1, 1, width=32)))
    lies = draw(arrays(np.float32, (num_byzantine, d), elements=st.floats(-MAX, MAX, width=32)))
    order = draw(st.permutations(range(num_honest + num_byzantine)))
    return torch.from_numpy(honest), torch.from_numpy(np.concatenate([honest, lies])[order])


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
def test_fewer_than_half_of_the_rows_move_the_geometric_median_by_a_bounded_distance(
    case: tuple[Tensor, Tensor],
) -> None:
    # |y - z| <= 2 (n - f) / (n - 2 f) max_honest |u_i - z| for every z (Minsker 2015, Lemma 2.1).
    honest, u = case
    n, f = len(u), len(u) - len(honest)
    z = honest.mean(dim=0)
    radius = (honest - z).norm(dim=1).max()
    assert (geometric_median(u) - z).norm() <= 2 * (n - f) / (n - 2 * f) * radius * 1.01 + 1e-6


@given(attacked())
@quick
def test_a_trimmed_mean_that_cuts_as_many_rows_as_lie_stays_in_the_honest_hull(
    case: tuple[Tensor, Tensor],
) -> None:
    honest, u = case
    result = trimmed_mean(u, trim=(len(u) - len(honest)) / len(u))
    assert (honest.amin(dim=0) - 1e-6 <= result).all()
    assert (result <= honest.amax(dim=0) + 1e-6).all()


@pytest.mark.parametrize("lie", [1e3, -1e12, MAX])
@pytest.mark.parametrize("name", ["krum", "multi_krum"])
def test_krum_ignores_colluding_liars_that_it_allows_for(name: str, lie: float) -> None:
    honest = torch.randn(7, 50, generator=torch.Generator().manual_seed(0))
    u = torch.cat([torch.full((3, 50), lie), honest])
    assert AGGREGATORS[name](u).abs().max() <= honest.abs().max()


@every_aggregator
def test_one_liar_moves_only_the_mean_without_bound(name: str) -> None:
    u = torch.zeros(5, 2000)
    u[3] = 1e30
    assert (AGGREGATORS[name](u).max() > 1e20) == (name == "mean")


@pytest.mark.parametrize(
    "options",
    [
        {"name": "trimmed_mean", "trim": 0.5},
        {"name": "trimmed_mean", "trim": -0.1},
        {"name": "geometric_median", "iterations": 0},
        {"name": "krum", "byzantine": 1.1},
        {"name": "multi_krum", "keep": 0.0},
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="should be"):
        OneOf("aggregator", AGGREGATORS).validate(options)
