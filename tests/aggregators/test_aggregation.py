"""Pre-aggregators in front of aggregators, and the weights of messages in aggregates."""

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

from rdpfl_sim.aggregators import (
    AGGREGATORS,
    PRE_AGGREGATORS,
    Aggregation,
    Aggregator,
    PreAggregator,
    aggregator,
    arc,
    bucketing,
    caf,
    centred_clipping,
    clipping,
    geometric_median,
    krum,
    mda,
    meamed,
    mean,
    median,
    monna,
    multi_krum,
    nnm,
    pre_aggregator,
    trimmed_mean,
    weighting_aggregator,
    weighting_pre_aggregator,
)
from rdpfl_sim.aggregators.aggregator import within_hull
from rdpfl_sim.components.schema import OneOf
from tests.aggregators.matrices import MAX, assert_close
from tests.registries import temporary_components

every_aggregator = pytest.mark.parametrize("name", AGGREGATORS)
quick = settings(max_examples=40, deadline=None)


def matrices(min_rows: int = 1, max_columns: int = 4) -> st.SearchStrategy[Tensor]:
    shapes = st.tuples(st.integers(min_rows, 9), st.integers(1, max_columns))
    entries = st.floats(-1e3, 1e3, width=32) | st.integers(-2, 2).map(float)  # the latter for ties
    return shapes.flatmap(lambda shape: arrays(np.float32, shape, elements=entries)).map(torch.from_numpy)


def random_rows(n: int, d: int, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def result(aggregation: Aggregation, u: Tensor, own: Tensor | None = None) -> Tensor:
    """The aggregate for a client whose own vector is zero, or `own`."""
    own = torch.zeros(u.shape[1]) if own is None else own
    return aggregation(u.unsqueeze(0), own.unsqueeze(0)).squeeze(0)


def weights(aggregator: Aggregator, u: Tensor, *pre_aggregators: PreAggregator) -> list[float]:
    """The shares of the messages in the aggregate, for a client whose own vector is zero."""
    shares = Aggregation(aggregator, pre_aggregators).shares(u.unsqueeze(0), torch.zeros(1, u.shape[1]))
    assert shares is not None
    assert (shares.dtype, shares.shape) == (torch.float64, (1, len(u)))
    return shares[0].tolist()


def slow_band(u: Tensor, cut: int) -> list[float]:
    """Compute each order statistic in turn; rows with equal values share its weight."""
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


def test_median_of_an_even_number_gives_half_of_the_weight_to_each_middle_row() -> None:
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


def test_row_that_ties_with_a_trimmed_row_has_half_of_the_weight() -> None:
    u = torch.tensor([[1.0], [1.0], [2.0], [3.0]])
    assert weights(partial(trimmed_mean, trim=0.25), u) == [0.25, 0.25, 0.5, 0.0]


@pytest.mark.parametrize("num_coordinates", [5, 4096, 4810])
@pytest.mark.parametrize("m", [3, 4, 7])
def test_weights_of_a_batch_are_those_of_each_client_alone_also_with_ties(
    m: int, num_coordinates: int
) -> None:
    generator = torch.Generator().manual_seed(m)
    u = torch.randn(9, m, num_coordinates, generator=generator)
    u[:3, :, ::2] = 0.0  # all tie
    u[2:5, : m - 1, 1::3] = 0.0  # most tie: the shares are not fractions of a power of two
    u[5] = u[5].round()
    own = torch.zeros(9, num_coordinates)
    for function, cut in (
        (median, (m - 1) // 2),
        (partial(trimmed_mean, trim=0.2), min(-(-m // 5), (m - 1) // 2)),
    ):
        shares = Aggregation(function).shares(u, own)
        assert shares is not None
        assert shares.tolist() == [weights(function, messages) for messages in u]
        if num_coordinates <= 4096:
            expected = [slow_band(messages, cut) for messages in u]
            assert torch.allclose(shares, torch.tensor(expected, dtype=torch.float64), atol=1e-12)


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


def test_meamed_that_keeps_one_row_gives_it_all_of_the_weight() -> None:
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


def test_shares_add_up_to_one_although_clipping_reduces_weights() -> None:
    u = torch.tensor([[3.0, 4.0], [0.0, 1.0]])
    from_zero = partial(centred_clipping, radius=1.0, start="zero")
    assert weights(from_zero, u) == pytest.approx([1 / 6, 5 / 6])
    assert weights(mean, u, partial(clipping, max_norm=1.0)) == pytest.approx([1 / 6, 5 / 6])
    assert weights(mean, u, partial(arc, byzantine=0.5)) == pytest.approx([1 / 6, 5 / 6])


def test_rows_that_are_clipped_to_zero_have_no_weight() -> None:
    # Adaptive clipping makes all four zero, and Krum picks all of them.
    u = torch.tensor([[0.0], [0.0], [5.0], [7.0]])
    assert weights(krum, u, arc) == [0.5, 0.5, 0.0, 0.0]


def test_kept_rows_share_the_weight_equally() -> None:
    u = torch.tensor([[0.0], [1.0], [2.5], [9.0]])
    assert weights(partial(mda, byzantine=0.25), u) == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])
    assert weights(partial(monna, byzantine=0.5), u) == [0.5, 0.5, 0.0, 0.0]  # near the own vector, zero
    assert weights(partial(caf, byzantine=0.0), u) == [0.25] * 4


def test_weights_are_traced_back_to_the_messages_that_were_mixed() -> None:
    # Pairs of nearest rows: (0, 1), (1, 0), (3, 1), (10, 3); in the middle of their means are 0.5 and 2.
    u = torch.tensor([[0.0], [1.0], [3.0], [10.0]])
    half = partial(nnm, byzantine=0.5)
    assert weights(median, u, half) == pytest.approx([1 / 8 + 1 / 8, 1 / 4 + 1 / 4, 1 / 4, 0])
    assert weights(median, u, half, partial(bucketing, size=4)) == pytest.approx([1 / 4, 3 / 8, 1 / 4, 1 / 8])


def test_weights_are_unknown_if_one_component_does_not_declare_them() -> None:
    with temporary_components():

        @aggregator
        def first(u: Tensor, *, trim: float = 0.1) -> Tensor:
            return u[0]

        @pre_aggregator
        def same(u: Tensor) -> Tensor:
            return u

        u, own = torch.randn(1, 3, 2), torch.zeros(1, 2)
        assert Aggregation(first).shares(u, own) is None
        assert Aggregation(partial(first, trim=0.2)).shares(u, own) is None
        assert Aggregation(first, [nnm]).shares(u, own) is None
        assert Aggregation(mean, [same, nnm]).shares(u, own) is None
        assert Aggregation(mean, [nnm]).shares(u, own) is not None


def test_function_that_returns_weights_is_an_aggregator_with_these_weights() -> None:
    with temporary_components():

        @weighting_aggregator(needs_own=True)
        def near(u: Tensor, own: Tensor, *, power: float = 1.0) -> Tensor:
            closeness = 1 / (1 + (u - own).double().norm(dim=1)) ** power
            return closeness / closeness.sum()

        u, own = torch.tensor([[0.0], [3.0]]), torch.tensor([1.0])  # closeness 1/2 and 1/3
        assert near(u, own).item() == pytest.approx(3 * 0.4)
        assert result(Aggregation(near), u, own).item() == pytest.approx(3 * 0.4)
        squared = Aggregation(partial(near, power=2.0)).weights(u, own)
        assert squared is not None
        assert squared.tolist() == pytest.approx([9 / 13, 4 / 13])


def test_function_that_returns_rows_of_weights_is_a_pre_aggregator_with_these_weights() -> None:
    with temporary_components():

        @weighting_pre_aggregator
        def halves(u: Tensor) -> Tensor:
            return torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)

        u = torch.tensor([[1.0], [3.0], [8.0]])
        assert halves(u).tolist() == [[2.0], [8.0]]
        assert weights(mean, u, halves) == [0.25, 0.25, 0.5]


# What holds in general.


@every_aggregator
def test_weights_are_found_for_an_aggregator_with_bound_options(name: str) -> None:
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


def test_every_built_in_component_declares_its_weights_and_every_aggregator_its_bound() -> None:
    assert [name for name in AGGREGATORS if not AGGREGATORS.facts(name).has_weights] == []
    assert [name for name in AGGREGATORS if AGGREGATORS.facts(name).distance_bound is None] == []
    assert [name for name in PRE_AGGREGATORS if not PRE_AGGREGATORS.facts(name).has_weights] == []


WHOLE_ROWS = [name for name in AGGREGATORS if AGGREGATORS.facts(name).distance_bound is within_hull]


def assert_weighted_sum_is_the_aggregate(aggregation: Aggregation, u: Tensor) -> None:
    w = aggregation.weights(u, torch.zeros(u.shape[1]))
    assert w is not None
    assert (w >= 0).all()
    assert_close(w @ u.double(), result(aggregation, u), 1e-5 * u.abs().max().item() + 1e-44)


@every_aggregator
@given(u=matrices(max_columns=1))
@quick
def test_weighted_sum_of_messages_with_one_coordinate_is_the_aggregate(name: str, u: Tensor) -> None:
    assert_weighted_sum_is_the_aggregate(Aggregation(AGGREGATORS[name]), u)


@pytest.mark.parametrize("name", WHOLE_ROWS)
@given(u=matrices())
@quick
def test_weighted_sum_of_the_messages_is_the_aggregate(name: str, u: Tensor) -> None:
    assert_weighted_sum_is_the_aggregate(Aggregation(AGGREGATORS[name]), u)


@pytest.mark.parametrize("before", PRE_AGGREGATORS)
@every_aggregator
@pytest.mark.parametrize("seed", range(5))
def test_weighted_sum_of_the_messages_is_the_aggregate_after_a_pre_aggregator(
    before: str, name: str, seed: int
) -> None:
    aggregation = Aggregation(AGGREGATORS[name], [PRE_AGGREGATORS[before]])
    u = random_rows(3 + seed, 4, seed) * 10**seed
    u[0] *= -7
    assert_weighted_sum_is_the_aggregate(aggregation, u[:, :1])
    assert_weighted_sum_is_the_aggregate(aggregation, u[:, :1].round())  # some are equal
    if name in WHOLE_ROWS:
        assert_weighted_sum_is_the_aggregate(aggregation, u)


@pytest.mark.slow
@pytest.mark.parametrize("before", PRE_AGGREGATORS)
@every_aggregator
@given(u=matrices())
@quick
def test_weighted_sum_of_any_messages_is_the_aggregate_after_a_pre_aggregator(
    before: str, name: str, u: Tensor
) -> None:
    aggregation = Aggregation(AGGREGATORS[name], [PRE_AGGREGATORS[before]])
    assert_weighted_sum_is_the_aggregate(aggregation, u if name in WHOLE_ROWS else u[:, :1])


@given(matrices())
@quick
def test_median_and_trimmed_mean_agree_with_a_loop_over_the_coordinates(u: Tensor) -> None:
    n = len(u)
    assert weights(median, u) == pytest.approx(slow_band(u, (n - 1) // 2))
    for trim in (0.0, 0.2, 0.4):
        cut = min(ceil(round(trim * n, 6)), (n - 1) // 2)
        assert weights(partial(trimmed_mean, trim=trim), u) == pytest.approx(slow_band(u, cut))


def test_weights_in_long_vectors_come_from_evenly_spaced_coordinates() -> None:
    # Rows 0 and 1 are in the middle in one half of a long vector each.
    halves = torch.tensor([[1.0, 2.0], [2.0, 1.0], [3.0, 3.0]]).repeat_interleave(50_001, dim=1)
    assert weights(median, halves) == [0.5, 0.5, 0.0]
    assert weights(trimmed_mean, halves) == [0.5, 0.5, 0.0]


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
def test_computing_weights_does_not_change_the_messages(name: str) -> None:
    u = torch.randn(5, 5000, generator=torch.Generator().manual_seed(0))
    before = u.clone()
    weights(AGGREGATORS[name], u)
    assert torch.equal(u, before)


@pytest.mark.parametrize("name", [name for name in AGGREGATORS if name != "mean"])
def test_single_outlier_has_no_weight_in_a_robust_aggregate(name: str) -> None:
    u = torch.randn(9, 50, generator=torch.Generator().manual_seed(0))
    u[4] += 1e30
    assert weights(AGGREGATORS[name], u)[4] < 1e-20
    assert weights(AGGREGATORS[name], u, nnm)[4] < 1e-20


# Composition.


def test_each_pre_aggregator_works_on_the_rows_that_the_one_before_it_returned() -> None:
    u = random_rows(7, 4) * 3
    short, mixing = partial(clipping, max_norm=1.0), partial(nnm, byzantine=0.2)
    clipped_first = result(Aggregation(median, [short, mixing]), u)
    assert torch.equal(clipped_first, median(mixing(short(u))))
    assert not torch.equal(clipped_first, result(Aggregation(median, [mixing, short]), u))


def test_own_vector_is_not_changed_by_pre_aggregators() -> None:
    u, own = random_rows(7, 4) * 3, random_rows(1, 4, seed=1)[0] * 100
    nearest = partial(monna, byzantine=0.5)
    assert torch.equal(result(Aggregation(nearest, [clipping]), u, own), nearest(clipping(u), own))


def test_every_client_is_aggregated_with_its_own_messages_and_vector() -> None:
    messages, own = random_rows(3 * 6, 20).view(3, 6, 20), random_rows(3, 20, seed=1)
    for aggregation in (Aggregation(monna), Aggregation(monna, [bucketing])):
        alone = [result(aggregation, u, one) for u, one in zip(messages, own, strict=True)]
        assert torch.equal(aggregation(messages, own), torch.stack(alone))


def test_mixing_brings_the_median_closer_to_the_honest_mean() -> None:
    honest = random_rows(7, 50)
    u = torch.cat([torch.full((3, 50), 1e6), honest])
    mixed = result(Aggregation(median, [nnm]), u)
    assert (mixed - honest.mean(dim=0)).norm() < (median(u) - honest.mean(dim=0)).norm()


def test_clipping_bounds_the_effect_of_one_message_on_a_mean() -> None:
    u = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, MAX]])
    assert_close(result(Aggregation(mean, [clipping]), u), torch.tensor([2 / 3, 2 / 3]), 1e-6)


# Too few messages for the options.


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        # ceil(0.3 n) = 1, 1, 1, 2, 2, 2, 3, 3, 3, 3 against (n - 1) // 2 = 0, 0, 1, 1, 2, 2, 3, 3, 4, 4
        (Aggregation(trimmed_mean), {1, 2, 4}),
        # ceil(0.4 n) = 1, 1, 2, 2, 2, 3, 3, 4, 4, 4
        (Aggregation(partial(trimmed_mean, trim=0.4)), {1, 2, 3, 4, 6, 8}),
        (Aggregation(partial(trimmed_mean, trim=0.0)), set()),
        # Buckets of two: n = 1, ..., 10 leave 1, 1, 2, 2, 3, 3, 4, 4, 5, 5 rows.
        (Aggregation(trimmed_mean, [bucketing]), {1, 2, 3, 4, 7, 8}),
        (Aggregation(trimmed_mean, [nnm, arc]), {1, 2, 4}),
        (Aggregation(median, [bucketing]), set()),
        (Aggregation(median), set()),
    ],
)
def test_trimmed_mean_that_cannot_cut_its_fraction_has_too_few_messages(
    aggregation: Aggregation, expected: set[int]
) -> None:
    assert {n for n in range(1, 11) if aggregation.too_few(n)} == expected
