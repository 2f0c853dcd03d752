from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import combinations, permutations
from math import ceil

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from rdpfl_sim.aggregators.aggregation import aggregator_weights
from rdpfl_sim.aggregators.selection import caf, krum, mda, monna, multi_krum, smea
from tests.aggregators.matrices import MAX, assert_close, matrices, quick, rounding


def slow_krum_scores(u: Tensor, f: int) -> list[float]:
    rows = u.tolist()
    scores = []
    for i, a in enumerate(rows):
        others = [b for j, b in enumerate(rows) if j != i]
        distances = sorted(sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) for b in others)
        scores.append(sum(distances[: max(1, len(rows) - f - 2)]))
    return scores


def test_krum_is_the_row_with_the_closest_neighbours() -> None:
    # f = 1 of 5, so two neighbours count. Scores: 0: 1 + 4, 1: 1 + 1, 2: 1 + 4, 10: 64 + 81, -9: 81 + 100.
    u = torch.tensor([[10.0], [0.0], [1.0], [2.0], [-9.0]])
    assert krum(u, byzantine=0.2).item() == 1.0


def test_krum_averages_rows_with_the_same_score() -> None:
    # f = 2 of 4 leaves one neighbour: 1 and 3 are each other's nearest.
    assert krum(torch.tensor([[1.0], [10.0], [3.0], [-8.0]]), byzantine=0.3).item() == 2.0


def test_krum_averages_rows_whose_scores_differ_by_rounding_only() -> None:
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


def test_multi_krum_keeps_no_extra_row_when_the_fraction_is_not_exact_in_binary() -> None:
    u = torch.arange(100.0).square().unsqueeze(1)
    assert ceil(0.07 * 100) == 8, "binary arithmetic rounds 0.07 * 100 up"
    scores = slow_krum_scores(u, 90)
    assert multi_krum(u, byzantine=0.9, keep=0.07).item() == pytest.approx(
        sum(u[i].item() for i in sorted(range(100), key=scores.__getitem__)[:7]) / 7
    )


def test_krum_distinguishes_rows_that_are_close_together_and_far_from_the_origin() -> None:
    offsets = torch.tensor([[0.0], [2.0], [3.0], [6.0], [9.0]]) * 2**-10  # scores 13, 5, 10, 18, 45
    u = (4096 + offsets).repeat(1, 1000)  # exact in float32, while the squares are not
    assert torch.equal(krum(u, byzantine=0.2), u[1])


def test_krum_distinguishes_rows_whose_squares_vanish_in_float32() -> None:
    u = torch.tensor([[9.0], [0.0], [1.0], [2.5], [-9.0]]) * 1e-30
    assert krum(u, byzantine=0.2).item() == u[2].item()


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


# MoNNA.


def test_monna_averages_the_rows_nearest_to_the_own_vector() -> None:
    u = torch.tensor([[0.0, 0.0], [3.0, 4.0], [1.0, 0.0], [-9.0, 1.0], [2.0, 2.0]])
    own = torch.tensor([3.0, 3.0])  # squared distances: 18, 1, 13, 148, 2
    assert_close(monna(u, own, byzantine=0.6), torch.tensor([2.5, 3.0]), 1e-6)
    assert_close(monna(u, own, byzantine=0.4), torch.tensor([2.0, 2.0]), 1e-6)
    assert torch.equal(monna(u, own, byzantine=1.0), u[1])


def test_monna_keeps_rows_that_tie_with_the_last_one_kept() -> None:
    assert monna(torch.tensor([[1.0], [-1.0], [5.0]]), torch.tensor([0.0]), byzantine=0.6).item() == 0.0


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_monna_averages_all_rows_if_the_own_vector_is_not_finite(value: float) -> None:
    u = torch.tensor([[1.0, 2.0], [2.0, 5.0], [6.0, 2.0]])
    assert_close(monna(u, torch.tensor([0.0, value])), torch.tensor([3.0, 3.0]), 1e-6)


def test_monna_ignores_a_colluding_majority_that_is_far_from_the_own_vector() -> None:
    honest = torch.randn(4, 50, generator=torch.Generator().manual_seed(0))
    u = torch.cat([honest, torch.full((6, 50), 100.0)])  # attackers are the majority
    assert_close(monna(u, honest[0], byzantine=0.6), honest.mean(dim=0), 1e-6)


# MDA and SMEA.


def test_mda_averages_the_rows_with_the_least_diameter() -> None:
    # Three of five: {0, 1, 2.5} and {7, 8, 9.4} are 2.5 and 2.4 wide.
    u = torch.tensor([[0.0], [8.0], [1.0], [7.0], [2.5], [9.4]])
    assert mda(u, byzantine=0.5).item() == pytest.approx((7 + 8 + 9.4) / 3)
    assert mda(u, byzantine=0.0).item() == pytest.approx(27.9 / 6)


def test_mda_averages_sets_with_the_same_diameter() -> None:
    # Two of four: {0, 1} and {10, 11}.
    assert mda(torch.tensor([[10.0], [0.0], [11.0], [1.0]]), byzantine=0.5).item() == 5.5


def test_smea_averages_the_rows_with_the_least_variance_in_the_worst_direction() -> None:
    # Three of four, and the triangle that is flat in one direction is long in the other: its variance is
    # 2 * 25 / 3 along the first axis, while the other three have at most 2 * 9 / 3 in any direction.
    u = torch.tensor([[-5.0, 0.0], [5.0, 0.0], [0.0, 0.0], [0.0, 3.0]])
    kept = {tuple(sorted(s)): largest_variance(u[list(s)]) for s in combinations(range(4), 3)}
    assert kept[0, 1, 2] == pytest.approx(50 / 3)
    assert kept[0, 2, 3] == kept[1, 2, 3] == min(kept.values())
    assert_close(smea(u, byzantine=0.25), u[[0, 2, 3, 1, 2, 3]].mean(dim=0), 1e-6)


def largest_variance(rows: Tensor) -> float:
    x = (rows - rows[0]).double()  # equal rows have variance zero, whatever their mean is rounded to
    x = x - x.mean(dim=0)
    return torch.linalg.eigvalsh(x.T @ x / len(x))[-1].item()


def mda_weights(u: Tensor, byzantine: float, max_subsets: int) -> Tensor:
    w = aggregator_weights(partial(mda, byzantine=byzantine, max_subsets=max_subsets), u, u[0])
    assert w is not None
    return w


def diameter(rows: Tensor) -> float:
    return max(((a - b).norm().item() for a, b in combinations(rows.double(), 2)), default=0.0)


def mean_of_best_sets(u: Tensor, k: int, score: Callable[[Tensor], float]) -> Tensor:
    """Return the mean over all sets of k rows with the least score, with a loop over sets."""
    scores = {kept: score(u[list(kept)]) for kept in combinations(range(len(u)), k)}
    best = [kept for kept, value in scores.items() if value <= min(scores.values()) * (1 + 1e-9)]
    return torch.stack([u[list(kept)].double().mean(dim=0) for kept in best]).mean(dim=0)


@pytest.mark.parametrize(("aggregator", "score"), [(mda, diameter), (smea, largest_variance)])
@given(u=matrices(limit=1e3, max_rows=7), byzantine=st.sampled_from([0.0, 0.1, 0.3, 0.5, 1.0]))
@quick
def test_mda_and_smea_average_the_best_of_all_sets(
    aggregator: Callable[..., Tensor], score: Callable[[Tensor], float], u: Tensor, byzantine: float
) -> None:
    k = max(1, len(u) - ceil(round(byzantine * len(u), 6)))
    assert_close(aggregator(u, byzantine=byzantine), mean_of_best_sets(u, k, score), rounding(u).max())


@given(st.integers(0, 10**6), st.integers(4, 10))
@quick
def test_mda_with_too_many_sets_finds_a_diameter_at_most_twice_the_least(seed: int, n: int) -> None:
    u = torch.randn(n, 3, generator=torch.Generator().manual_seed(seed))
    k = n - ceil(0.3 * n)
    kept = mda_weights(u, 0.3, max_subsets=1) > 0
    assert kept.sum() >= k
    assume(kept.sum() == k)  # two sets with the same farthest pair have the same diameter, and both count
    assert diameter(u[kept]) <= 2 * min(diameter(u[list(s)]) for s in combinations(range(n), k)) + 1e-6


def test_mda_tries_all_sets_up_to_max_subsets() -> None:
    # The best three are the corners of the small triangle, of which none has both others as its nearest rows.
    corner = torch.tensor([[1.0, 0.0], [-0.5, 0.75**0.5], [-0.5, -(0.75**0.5)]])
    u = torch.cat([corner, corner * 1.8])  # sides of 1.73, and 0.8 from corner to outer corner
    assert_close(mda(u, byzantine=0.5, max_subsets=20), torch.zeros(2), 1e-6)
    exact = mda_weights(u, 0.5, 20)
    assert exact.tolist() == pytest.approx([1 / 3] * 3 + [0] * 3)
    assert mda_weights(u, 0.5, 19).tolist() != pytest.approx(exact.tolist())


@pytest.mark.parametrize("aggregator", [mda, smea, caf])
def test_aggregate_of_a_hundred_rows_is_close_to_the_honest_mean(aggregator: Callable[..., Tensor]) -> None:
    honest = torch.randn(70, 50, generator=torch.Generator().manual_seed(0))
    u = torch.cat([torch.full((30, 50), 50.0), honest])
    assert (aggregator(u, byzantine=0.3) - honest.mean(dim=0)).norm() < 1.0


# CAF.


def test_caf_takes_weight_from_rows_far_out_along_the_direction_of_most_variance() -> None:
    # f = 1 of 5. mu = 2, squared deviations 4, 4, 1, 0, 49 of which the last loses all, the others 4/49 ...
    u = torch.tensor([[0.0], [0.0], [1.0], [2.0], [9.0]])
    squares = [(x - 2.4) ** 2 for x in (0, 0, 1, 2, 9)]
    c = [1 - square / max(squares) for square in squares]
    assert sum(c) > 3
    mu = sum(weight * x for weight, x in zip(c, (0, 0, 1, 2, 9), strict=True)) / sum(c)
    # ... which leaves more than n - 2 f = 3, so that this mu, of less variance, counts; after it 2 loses all.
    assert caf(u, byzantine=0.2).item() == pytest.approx(mu)


def test_caf_of_honest_rows_only_is_their_mean() -> None:
    u = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    assert_close(caf(u, byzantine=0.0), u.mean(dim=0), 1e-6)


def test_caf_treats_directions_of_the_same_variance_alike() -> None:
    u = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0], [0.0, 0.0]])
    for order in permutations(range(5)):
        assert_close(caf(u[list(order)], byzantine=0.3), torch.zeros(2), 1e-6)


def slow_caf(u: Tensor, f: int) -> Tensor:
    """Apply the filter to the full covariance matrix (d, d)."""
    x = u.double()
    c = torch.ones(len(x), dtype=torch.float64)
    best, least = x.mean(dim=0), torch.inf
    while c.sum() > len(x) - 2 * f or least == torch.inf:
        mu = (c / c.sum()) @ x
        covariance = (x - mu).T @ torch.diag(c / c.sum()) @ (x - mu)
        eigenvalues, vectors = torch.linalg.eigh(covariance)
        if eigenvalues[-1] < least:
            best, least = mu, eigenvalues[-1].item()
        tau = ((x - mu) @ vectors[:, -1]) ** 2
        c = c * (1 - tau / tau[c > 0].max()).clamp(min=0)
    return best


@given(st.integers(0, 10**6), st.integers(3, 12), st.integers(1, 5), st.sampled_from([0.0, 0.2, 0.3, 0.45]))
@quick
def test_caf_agrees_with_the_filter_on_the_covariance_matrix(
    seed: int, n: int, d: int, byzantine: float
) -> None:
    u = torch.randn(n, d, generator=torch.Generator().manual_seed(seed))
    u[: n // 4] += 5
    assert_close(caf(u, byzantine=byzantine), slow_caf(u, ceil(round(byzantine * n, 6))), 1e-5)


# Breakdown.


@pytest.mark.parametrize("sent", [1e3, -1e12, MAX])
@pytest.mark.parametrize("aggregator", [krum, multi_krum, mda, smea, caf])
def test_assumed_fraction_of_colluding_attackers_is_ignored(
    aggregator: Callable[..., Tensor], sent: float
) -> None:
    honest = torch.randn(7, 50, generator=torch.Generator().manual_seed(0))
    u = torch.cat([torch.full((3, 50), sent), honest])
    assert aggregator(u).abs().max() <= honest.abs().max()
