from __future__ import annotations

from functools import partial
from math import ceil

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from rdpfl_sim.components.choice import OneOf
from rdpfl_sim.maths.aggregators import (
    AGGREGATORS,
    Aggregator,
    aggregate,
    caf,
    centred_clipping,
    geometric_median,
    krum,
    mda,
    meamed,
    mean,
    median,
    monna,
    multi_krum,
    trimmed_mean,
)
from rdpfl_sim.maths.aggregators.aggregator import Chain, within_hull
from rdpfl_sim.maths.aggregators.message_weights import message_weights, trims_less
from rdpfl_sim.maths.aggregators.preaggregators import PRE_AGGREGATORS, arc, bucketing, clipping, nnm

every_aggregator = pytest.mark.parametrize("name", AGGREGATORS)
quick = settings(max_examples=40, deadline=None)


def matrices(min_rows: int = 1, max_columns: int = 4) -> st.SearchStrategy[Tensor]:
    shapes = st.tuples(st.integers(min_rows, 9), st.integers(1, max_columns))
    entries = st.floats(-1e3, 1e3, width=32) | st.integers(-2, 2).map(float)  # the latter for ties
    return shapes.flatmap(lambda shape: arrays(np.float32, shape, elements=entries)).map(torch.from_numpy)


def weights(aggregator: Aggregator, u: Tensor) -> list[float]:
    w = message_weights(aggregator, u, torch.zeros(u.shape[1]))
    assert w is not None
    assert (w.dtype, w.shape) == (torch.float64, (len(u),))
    return w.tolist()


def slow_band(u: Tensor, cut: int) -> list[float]:
    """One order statistic after the other, each shared by the rows that have its value."""
    n, d = u.shape
    w = [0.0] * n
    for column in u.T.tolist():
        for value in sorted(column)[cut : n - cut]:
            for i in range(n):
                if column[i] == value:
                    w[i] += 1 / column.count(value) / (n - 2 * cut) / d
    return w


# Values worked out by hand.


def test_every_row_has_the_same_weight_in_the_mean() -> None:
    assert weights(mean, torch.randn(4, 3)) == [0.25] * 4


def test_weight_in_the_median_is_the_fraction_of_coordinates_where_a_row_is_in_the_middle() -> None:
    u = torch.tensor([[1.0, 9.0, 3.0, 0.0], [5.0, -7.0, 4.0, 1.0], [100.0, 2.0, 3.5, -1.0]])
    assert weights(median, u) == [0.25, 0.25, 0.5]


def test_two_rows_have_half_of_the_weight_each_in_the_median_of_an_even_number() -> None:
    u = torch.tensor([[1.0, 9.0], [5.0, -7.0], [100.0, 2.0], [2.0, 3.0]])
    assert weights(median, u) == [0.0, 0.25, 0.25, 0.5]


def test_rows_with_the_same_value_share_its_weight() -> None:
    # The middle of five is a 2, of which there are three; the middle two of four are one of two 2s, and a 7.
    five = torch.tensor([[2.0], [7.0], [2.0], [1.0], [2.0]])
    assert weights(median, five) == pytest.approx([1 / 3, 0, 1 / 3, 0, 1 / 3])
    assert weights(median, torch.tensor([[2.0], [7.0], [2.0], [9.0]])) == [0.25, 0.5, 0.25, 0.0]


def test_rows_that_are_kept_have_the_same_weight_in_the_trimmed_mean() -> None:
    u = torch.tensor([[-50.0, 3.0], [1.0, 1.0], [2.0, 0.0], [3.0, 2.0], [90.0, 4.0]])
    assert weights(partial(trimmed_mean, trim=0.2), u) == pytest.approx([1 / 6, 1 / 3, 1 / 6, 1 / 3, 0])
    assert weights(partial(trimmed_mean, trim=0.1), u) == weights(partial(trimmed_mean, trim=0.2), u)
    assert weights(partial(trimmed_mean, trim=0.0), u) == pytest.approx([0.2] * 5)
    assert weights(partial(trimmed_mean, trim=0.3), u) == [0.0, 0.0, 0.5, 0.5, 0.0]
    assert weights(trimmed_mean, u) == weights(partial(trimmed_mean, trim=0.3), u)  # its default


def test_a_row_that_ties_with_one_that_is_cut_has_half_of_the_weight() -> None:
    u = torch.tensor([[1.0], [1.0], [2.0], [3.0]])
    assert weights(partial(trimmed_mean, trim=0.25), u) == [0.25, 0.25, 0.5, 0.0]


def test_krum_gives_all_of_the_weight_to_its_choice_and_to_those_that_tie() -> None:
    u = torch.tensor([[10.0], [0.0], [1.0], [2.0], [-9.0]])
    assert weights(partial(krum, byzantine=0.2), u) == [0, 0, 1, 0, 0]
    assert weights(krum, torch.tensor([[1.0], [10.0], [3.0], [-8.0]])) == [0.5, 0, 0.5, 0]


def test_multi_krum_gives_the_same_weight_to_the_rows_it_keeps() -> None:
    u = torch.tensor([[10.0], [0.0], [1.0], [2.0], [-9.0]])
    assert weights(partial(multi_krum, byzantine=0.2), u) == [0.25, 0.25, 0.25, 0.25, 0]
    assert weights(partial(multi_krum, byzantine=0.2, keep=0.6), u) == pytest.approx(
        [0, 1 / 3, 1 / 3, 1 / 3, 0]
    )


def test_weights_of_the_geometric_median_are_inverse_to_the_distances() -> None:
    # The Fermat point (0, sqrt 3) is at 2 sqrt 3 from (-3, 0) and (3, 0), and at 10 - sqrt 3 from (0, 10).
    u = torch.tensor([[-3.0, 0.0], [3.0, 0.0], [0.0, 10.0]])
    pulls = [1 / 12**0.5, 1 / 12**0.5, 1 / (10 - 3**0.5)]
    assert weights(geometric_median, u) == pytest.approx([pull / sum(pulls) for pull in pulls], abs=1e-4)
    # After one step, from (0, 0), between the two nearest rows.
    pulls = [1 / 3, 1 / 3, 1 / 10]
    assert weights(partial(geometric_median, iterations=1), u) == pytest.approx(
        [pull / sum(pulls) for pull in pulls]
    )


def test_rows_where_the_geometric_median_begins_and_stays_have_all_of_the_weight() -> None:
    u = torch.tensor([[5.0, 7.0], [8.0, 8.0], [4.0, 9.0], [3.0, 6.0], [6.0, 2.0]])
    assert weights(geometric_median, u) == pytest.approx([1, 0, 0, 0, 0])
    u = torch.tensor(
        [[1.0, 2.0], [7.0, 2.0], [1.0, 2.0], [1.0, -30.0]]
    )  # half of them, and 2 and 1 occur again
    assert weights(geometric_median, u) == [0.5, 0.0, 0.5, 0.0]


def test_weight_in_meamed_is_the_fraction_of_coordinates_where_a_row_is_near_the_median() -> None:
    # Three of five: of the first column 3, 4 and 1; of the second 3, 4, and 0 and 6 half each.
    u = torch.tensor([[3.0, 3.0], [9.0, 6.0], [1.0, -9.0], [4.0, 4.0], [-7.0, 0.0]])
    half = 1 / 2 / 3 / 2
    assert weights(partial(meamed, byzantine=0.4), u) == pytest.approx([1 / 3, half, 1 / 6, 1 / 3, half])


def test_weight_in_meamed_when_few_rows_are_kept() -> None:
    # Of each the one nearest to the median, which is the median; of two rows both are.
    u = torch.tensor([[3.0, 1.0], [9.0, 6.0], [1.0, -9.0]])
    assert weights(partial(meamed, byzantine=0.5), u) == [1.0, 0.0, 0.0]
    assert weights(meamed, u[:2]) == [0.5, 0.5]


def test_weight_in_centred_clipping_shrinks_with_the_distance_beyond_the_radius() -> None:
    # From the median 2, with radius 3: all enter with 1/5, but 10, at a distance of 8, with 3/8 of it.
    u = torch.tensor([[0.0], [1.0], [2.0], [10.0], [3.0]])
    lost = 5 / 8 / 5
    assert weights(partial(centred_clipping, radius=3.0), u) == pytest.approx(
        [0.2, 0.2, 0.2 + lost, 0.2 - lost, 0.2]
    )


def test_what_clipping_takes_away_counts_for_nobody() -> None:
    u = torch.tensor([[3.0, 4.0], [0.0, 1.0]])
    from_zero = partial(centred_clipping, radius=1.0, start="zero")
    assert weights(from_zero, u) == pytest.approx([1 / 6, 5 / 6])
    assert weights(Chain((partial(clipping, max_norm=1.0),), mean), u) == pytest.approx([1 / 6, 5 / 6])
    assert weights(Chain((partial(arc, byzantine=0.5),), mean), u) == pytest.approx([1 / 6, 5 / 6])


def test_rows_of_which_clipping_leaves_nothing_have_no_weight() -> None:
    # Adaptive clipping makes all four zero, and Krum picks all of them.
    u = torch.tensor([[0.0], [0.0], [5.0], [7.0]])
    assert weights(Chain((arc,), krum), u) == [0.5, 0.5, 0.0, 0.0]


def test_rows_that_are_kept_share_the_weight() -> None:
    u = torch.tensor([[0.0], [1.0], [2.5], [9.0]])
    assert weights(partial(mda, byzantine=0.25), u) == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])
    assert weights(partial(monna, byzantine=0.5), u) == [0.5, 0.5, 0.0, 0.0]  # near the own vector, zero
    assert weights(partial(caf, byzantine=0.0), u) == [0.25] * 4


def test_weights_are_traced_back_through_mixing() -> None:
    # Pairs of nearest rows: (0, 1), (1, 0), (3, 1), (10, 3); in the middle of their means are 0.5 and 2.
    u = torch.tensor([[0.0], [1.0], [3.0], [10.0]])
    half = partial(nnm, byzantine=0.5)
    assert weights(Chain((half,), median), u) == pytest.approx([1 / 8 + 1 / 8, 1 / 4 + 1 / 4, 1 / 4, 0])
    assert weights(Chain((half, partial(bucketing, size=4)), median), u) == pytest.approx(
        [1 / 4, 3 / 8, 1 / 4, 1 / 8]
    )


def test_aggregator_of_a_plugin_has_no_known_message_weights() -> None:
    def newcomer(u: Tensor, *, trim: float = 0.1) -> Tensor:
        return u[0]

    assert message_weights(newcomer, torch.randn(3, 2), torch.zeros(2)) is None
    assert message_weights(partial(newcomer, trim=0.2), torch.randn(3, 2), torch.zeros(2)) is None
    assert message_weights(lambda u: mean(u), torch.randn(3, 2), torch.zeros(2)) is None
    assert message_weights(Chain((nnm,), newcomer), torch.randn(3, 2), torch.zeros(2)) is None
    assert message_weights(Chain((lambda u: u, nnm), mean), torch.randn(3, 2), torch.zeros(2)) is None


# What holds in general.


@every_aggregator
def test_aggregator_bound_by_the_registry_is_known(name: str) -> None:
    aggregator = OneOf(AGGREGATORS).validate(name).bind()
    u = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    assert weights(aggregator, u) == weights(AGGREGATORS[name], u)


@every_aggregator
@given(u=matrices())
@quick
def test_weights_are_not_negative_and_add_up_to_one(name: str, u: Tensor) -> None:
    w = weights(AGGREGATORS[name], u)
    assert min(w) >= 0
    assert sum(w) == pytest.approx(1)


def test_every_built_in_aggregator_declares_its_weights_and_its_bound() -> None:
    u = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    assert [name for name in AGGREGATORS if message_weights(AGGREGATORS[name], u, u[0]) is None] == []
    assert [name for name in AGGREGATORS if AGGREGATORS.facts(name).distance_bound is None] == []
    assert [name for name in PRE_AGGREGATORS if PRE_AGGREGATORS.facts(name).weights is None] == []


@every_aggregator
@given(u=matrices(max_columns=1))
@quick
def test_weighted_sum_of_one_coordinate_is_the_aggregate(name: str, u: Tensor) -> None:
    product = torch.tensor(weights(AGGREGATORS[name], u), dtype=torch.float64) @ u.double()
    result = aggregate(AGGREGATORS[name], u, torch.zeros(1))
    assert product.item() == pytest.approx(result.item(), rel=1e-5, abs=1e-5 * u.abs().max().item() + 1e-44)


WHOLE_ROWS = [name for name in AGGREGATORS if AGGREGATORS.facts(name).distance_bound is within_hull]


@pytest.mark.parametrize("name", WHOLE_ROWS)
@given(u=matrices())
@quick
def test_weighted_sum_of_the_rows_is_the_aggregate(name: str, u: Tensor) -> None:
    product = torch.tensor(weights(AGGREGATORS[name], u), dtype=torch.float64) @ u.double()
    assert product.tolist() == pytest.approx(
        aggregate(AGGREGATORS[name], u, torch.zeros(u.shape[1])).tolist(),
        rel=1e-5,
        abs=1e-5 * u.abs().max().item() + 1e-44,
    )


@pytest.mark.slow
@pytest.mark.parametrize("before", PRE_AGGREGATORS)
@pytest.mark.parametrize("name", WHOLE_ROWS)
@given(u=matrices())
@quick
def test_weighted_sum_of_the_rows_is_the_result_of_a_chain_up_to_its_length(
    before: str, name: str, u: Tensor
) -> None:
    chain, own = Chain((PRE_AGGREGATORS[before],), AGGREGATORS[name]), torch.zeros(u.shape[1])
    w = message_weights(chain, u, own)
    if w is None:
        return
    assert min(w) >= 0
    assert w.sum().item() == pytest.approx(1)
    product, result = w @ u.double(), aggregate(chain, u, own).double()
    if before in ("clipping", "arc"):  # what is cut off makes it shorter
        assert product @ result >= (0.99 * product.norm() - 1e-3) * result.norm() - 1e-9
    else:
        assert product.tolist() == pytest.approx(
            result.tolist(), rel=1e-5, abs=1e-5 * u.abs().max().item() + 1e-44
        )


@given(matrices())
@quick
def test_median_and_trimmed_mean_agree_with_a_loop_over_the_coordinates(u: Tensor) -> None:
    n = len(u)
    assert weights(median, u) == pytest.approx(slow_band(u, (n - 1) // 2))
    for trim in (0.0, 0.2, 0.4):
        cut = min(ceil(round(trim * n, 6)), (n - 1) // 2)
        assert weights(partial(trimmed_mean, trim=trim), u) == pytest.approx(slow_band(u, cut))


@pytest.mark.parametrize("name", ["median", "trimmed_mean"])
def test_up_to_4096_coordinates_all_count_and_beyond_evenly_spaced_ones(name: str) -> None:
    u = torch.randn(5, 4096, generator=torch.Generator().manual_seed(0))
    aggregator, num_cut = {"median": (median, 2), "trimmed_mean": (partial(trimmed_mean, trim=0.2), 1)}[name]
    exact = slow_band(u, num_cut)
    assert weights(aggregator, u) == pytest.approx(exact)
    assert weights(aggregator, u[:, :3000]) == pytest.approx(slow_band(u[:, :3000], num_cut))
    assert weights(aggregator, u.repeat_interleave(3, dim=1)) == pytest.approx(exact)
    # Rows 0 and 1 are in the middle in one half of a long vector each.
    halves = torch.tensor([[1.0, 2.0], [2.0, 1.0], [3.0, 3.0]]).repeat_interleave(50_001, dim=1)
    assert weights(median, halves) == [0.5, 0.5, 0.0]


@every_aggregator
@given(u=matrices(), data=st.data())
@quick
def test_weights_follow_the_rows_when_these_are_reordered(name: str, u: Tensor, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(u))))
    w = weights(AGGREGATORS[name], u)
    # Near a row, a step of the geometric median within its tolerance changes the weight of that row by more.
    tolerance = 1e-3 if name == "geometric_median" else 1e-12
    assert weights(AGGREGATORS[name], u[order]) == pytest.approx([w[i] for i in order], abs=tolerance)


@every_aggregator
def test_messages_are_not_changed(name: str) -> None:
    u = torch.randn(5, 5000, generator=torch.Generator().manual_seed(0))
    before = u.clone()
    weights(AGGREGATORS[name], u)
    assert torch.equal(u, before)


@pytest.mark.parametrize("name", [name for name in AGGREGATORS if name != "mean"])
def test_a_lone_outlier_has_no_influence_on_a_robust_aggregate(name: str) -> None:
    u = torch.randn(9, 50, generator=torch.Generator().manual_seed(0))
    u[4] += 1e30
    assert weights(AGGREGATORS[name], u)[4] < 1e-20
    assert weights(Chain((PRE_AGGREGATORS["nnm"],), AGGREGATORS[name]), u)[4] < 1e-20


# Too few messages for a trimmed mean.


@pytest.mark.parametrize(
    ("aggregator", "expected"),
    [
        # ceil(0.3 n) = 1, 1, 1, 2, 2, 2, 3, 3, 3, 3 against (n - 1) // 2 = 0, 0, 1, 1, 2, 2, 3, 3, 4, 4
        (trimmed_mean, {1, 2, 4}),
        # ceil(0.4 n) = 1, 1, 2, 2, 2, 3, 3, 4, 4, 4
        (partial(trimmed_mean, trim=0.4), {1, 2, 3, 4, 6, 8}),
        (partial(trimmed_mean, trim=0.0), set()),
        # Buckets of two: n = 1, ..., 10 leave 1, 1, 2, 2, 3, 3, 4, 4, 5, 5 rows.
        (Chain((PRE_AGGREGATORS["bucketing"],), trimmed_mean), {1, 2, 3, 4, 7, 8}),
        (Chain((PRE_AGGREGATORS["nnm"], PRE_AGGREGATORS["arc"]), trimmed_mean), {1, 2, 4}),
        (Chain((PRE_AGGREGATORS["bucketing"],), median), set()),
        (median, set()),
        (lambda u: u[0], set()),
    ],
)
def test_a_trimmed_mean_of_too_few_messages_is_seen(aggregator: Aggregator, expected: set[int]) -> None:
    assert {n for n in range(1, 11) if trims_less(aggregator, n)} == expected
