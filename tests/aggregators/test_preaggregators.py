from __future__ import annotations

from collections import Counter
from math import ceil

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rdpfl_sim.aggregators import PRE_AGGREGATORS, arc, bucketing, clipping, nnm
from rdpfl_sim.aggregators.aggregation import pre_aggregator_weights
from rdpfl_sim.components.schema import OneOf
from tests.aggregators.matrices import MAX, assert_close, matrices, quick, rounding

every_pre_aggregator = pytest.mark.parametrize("name", PRE_AGGREGATORS)


def random_rows(n: int, d: int, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


# Values worked out by hand.


def test_nnm_replaces_each_row_by_the_mean_of_its_nearest() -> None:
    u = torch.tensor([[0.0], [1.0], [3.0], [10.0]])
    assert nnm(u, byzantine=0.5).flatten().tolist() == [0.5, 0.5, 2.0, 6.5]
    assert nnm(u, byzantine=0.25).flatten().tolist() == pytest.approx([4 / 3, 4 / 3, 4 / 3, 14 / 3])
    assert nnm(u, byzantine=0.0).flatten().tolist() == [3.5] * 4
    assert nnm(u, byzantine=1.0).tolist() == u.tolist()


def test_nnm_counts_all_rows_that_are_equally_near() -> None:
    assert nnm(torch.tensor([[0.0], [1.0], [2.0]]), byzantine=0.3).flatten().tolist() == [0.5, 1.0, 1.5]


def test_buckets_are_means_of_rows_and_the_last_may_have_fewer() -> None:
    u = torch.eye(7)
    buckets = bucketing(u, size=3)
    assert sorted((row > 0).sum().item() for row in buckets) == [1, 3, 3]
    assert sorted(buckets[buckets > 0].tolist()) == pytest.approx([1 / 3] * 6 + [1])
    assert ((buckets > 0).sum(dim=0) == 1).all(), "every row is in one bucket"


def test_buckets_of_size_one_are_the_rows_and_one_large_bucket_is_their_mean() -> None:
    u = random_rows(5, 3)
    assert sorted(bucketing(u, size=1).tolist()) == sorted(u.tolist())
    assert_close(bucketing(u, size=2**62), u.mean(dim=0, keepdim=True), 1e-6)


def test_clipping_scales_long_rows_down_to_the_norm() -> None:
    u = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, -2.0], [0.0, 0.0]])
    assert_close(
        clipping(u, max_norm=2.0), torch.tensor([[1.2, 1.6], [0.3, 0.4], [0.0, -2.0], [0.0, 0.0]]), 1e-6
    )


def test_arc_scales_the_longest_rows_down_to_the_norm_of_the_next() -> None:
    u = torch.tensor([[1.0], [-2.0], [3.0], [-40.0], [5.0]])
    # f = 1: floor(2 * 1 * 4 / 5) = 1 row is clipped; f = 2: floor(2 * 2 * 3 / 5) = 2 rows; f = 0: none.
    assert arc(u, byzantine=0.2).flatten().tolist() == [1.0, -2.0, 3.0, -5.0, 5.0]
    assert arc(u, byzantine=0.4).flatten().tolist() == [1.0, -2.0, 3.0, -3.0, 3.0]
    assert torch.equal(arc(u, byzantine=0.0), u)


def test_arc_scales_the_longest_row_among_zeros_to_zero() -> None:
    assert arc(torch.tensor([[0.0], [0.0], [7.0]]), byzantine=0.3).flatten().tolist() == [0.0, 0.0, 0.0]


# The shuffle.


def test_shuffle_depends_only_on_the_messages() -> None:
    torch.manual_seed(1)
    first = bucketing(random_rows(9, 5))
    torch.manual_seed(2)
    assert torch.equal(bucketing(random_rows(9, 5)), first)


@pytest.mark.parametrize("d", [2, 1000, 1001])
def test_shuffle_distinguishes_rows_that_differ_in_all_signs_or_in_one_entry(d: int) -> None:
    u = torch.cat([random_rows(1, d), -random_rows(1, d), random_rows(1, d), random_rows(1, d)])
    u[2, d // 2] += 1
    u[3, -1] *= 2
    assert torch.equal(bucketing(u, size=1), bucketing(u.flip(0), size=1))


def test_every_pair_of_messages_is_equally_likely_to_share_a_bucket() -> None:
    partners: Counter[int] = Counter()
    for seed in range(600):
        weights = pre_aggregator_weights(bucketing, random_rows(4, 3, seed))
        assert weights is not None
        (bucket,) = weights[:, 0].nonzero().flatten()
        partners.update(i for i in weights[bucket].nonzero().flatten().tolist() if i)
    assert partners.keys() == {1, 2, 3}
    assert all(140 <= count <= 260 for count in partners.values())  # 200, give or take five deviations


# What holds for all of them.


@every_pre_aggregator
@given(u=matrices())
@quick
def test_finite_messages_give_finite_rows_inside_the_hull_of_the_messages_and_zero(
    name: str, u: Tensor
) -> None:
    result = PRE_AGGREGATORS[name](u)
    assert result.dtype == u.dtype
    assert result.isfinite().all()
    low, high = u.amin(dim=0), u.amax(dim=0)
    if name in ("clipping", "arc"):
        low, high = low.clamp(max=0), high.clamp(min=0)
    assert (result.double() >= low.double() - rounding(u)).all()
    assert (result.double() <= high.double() + rounding(u)).all()


@every_pre_aggregator
@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("d", [3, 20_000])
def test_largest_floats_do_not_overflow(name: str, n: int, d: int) -> None:
    u = torch.full((n, d), MAX)
    u[-1] = -MAX
    assert PRE_AGGREGATORS[name](u).isfinite().all()


@every_pre_aggregator
@given(u=matrices(limit=1e6), data=st.data())
@quick
def test_new_rows_do_not_depend_on_the_order_of_the_messages(
    name: str, u: Tensor, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(u))))
    result, reordered = PRE_AGGREGATORS[name](u), PRE_AGGREGATORS[name](u[order])
    # Clipping and mixing keep the rows in their order; buckets are drawn in the same order either way.
    expected = result if name == "bucketing" else result[order]
    assert_close(reordered, expected, rounding(u))


@every_pre_aggregator
@given(u=matrices())
@quick
def test_messages_are_not_changed(name: str, u: Tensor) -> None:
    before = u.clone()
    PRE_AGGREGATORS[name](u).fill_(0)  # nor is the result a view of them
    assert torch.equal(u, before)


@every_pre_aggregator
def test_single_short_message_is_not_changed(name: str) -> None:
    u = torch.tensor([[0.5, -0.25, 1.0]])
    assert torch.equal(PRE_AGGREGATORS[name](u), u)


@given(matrices(limit=1e6), st.sampled_from([1e-3, 1.0, 1e4]))
@quick
def test_clipped_rows_are_at_most_as_long_as_the_limit(u: Tensor, max_norm: float) -> None:
    result = clipping(u, max_norm=max_norm)
    assert (result.norm(dim=1) <= max_norm * (1 + 1e-5)).all()
    short = u.double().norm(dim=1) <= max_norm
    assert torch.equal(result[short], u[short])


@given(matrices(min_rows=2, limit=1e3), st.sampled_from([0.0, 0.1, 0.3, 0.5]))
@quick
def test_nnm_agrees_with_a_loop_over_the_rows(u: Tensor, byzantine: float) -> None:
    k = max(1, len(u) - ceil(round(byzantine * len(u), 6)))
    mixed = []
    for row in u.double():
        distances = (u.double() - row).norm(dim=1)
        near = distances <= distances.sort().values[k - 1] * (1 + 1e-9)
        mixed.append(u[near].double().mean(dim=0))
    assert_close(nnm(u, byzantine=byzantine), torch.stack(mixed), rounding(u))


@pytest.mark.parametrize(
    "options",
    [
        {"name": "nnm", "byzantine": 1.1},
        {"name": "bucketing", "size": 0},
        {"name": "clipping", "max_norm": 0.0},
    ],
)
def test_options_out_of_range_are_rejected(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"must be [<>]"):
        OneOf(PRE_AGGREGATORS).validate(options)
