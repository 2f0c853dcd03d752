from __future__ import annotations

import itertools

import pytest
import torch

from rdpfl_sim.aggregators.coordinatewise import median, trimmed_mean
from rdpfl_sim.aggregators.order_statistics import band_mean, program, sorted_rows
from tests.aggregators.matrices import assert_close


@pytest.mark.parametrize("n", range(1, 11))
def test_network_finds_every_band_of_every_sequence_of_zeros_and_ones(n: int) -> None:
    # By the zero-one principle it then finds every band of all sequences.
    u = torch.tensor(list(itertools.product([0.0, 1.0], repeat=n))).T.repeat(1, 2 ** (12 - n))
    for low, high in itertools.combinations(range(n + 1), 2):
        expected = u.sort(dim=0).values[low:high].sum(dim=0) / (high - low)
        assert torch.equal(band_mean(u, low, high), expected), f"band {low}..{high - 1} of {n}"


@pytest.mark.parametrize("n", [11, 16, 17, 31, 50])
def test_network_finds_the_median_and_the_trimmed_mean_of_many_rows(n: int) -> None:
    u = torch.randn(n, 40_000, generator=torch.Generator().manual_seed(n))
    in_order = u.double().sort(dim=0).values
    assert_close(median(u), in_order[(n - 1) // 2 : n // 2 + 1].mean(dim=0), 1e-6)
    cut = -(-3 * n // 10)
    assert_close(trimmed_mean(u), in_order[cut : n - cut].mean(dim=0), 1e-6)


def test_network_omits_exchanges_that_a_band_does_not_need() -> None:
    assert len(program(3, 1, 2).steps) == 4  # the median of three: max(min(a, b), min(max(a, b), c))
    assert len(program(9, 0, 1).steps) == 8  # n - 1 comparisons are necessary and sufficient for a minimum
    assert program(9, 0, 9).steps == []  # the sum of all rows needs no order
    # Every sorting network for nine rows has at least 25 exchanges of two operations each.
    assert len(program(9, 4, 5).steps) < 2 * 25


@pytest.mark.parametrize("n", range(1, 11))
def test_network_sorts_every_sequence_of_zeros_and_ones(n: int) -> None:
    u = torch.tensor(list(itertools.product([0.0, 1.0], repeat=n))).T.repeat(1, 2 ** (12 - n))
    assert torch.equal(torch.stack(sorted_rows(u)), u.sort(dim=0).values)


@pytest.mark.parametrize("d", [5, 3000])
def test_rows_are_sorted_in_each_column_and_not_changed(d: int) -> None:
    u = torch.randn(7, d, generator=torch.Generator().manual_seed(d))
    before = u.clone()
    assert torch.equal(torch.stack(sorted_rows(u)), u.sort(dim=0).values)
    assert torch.equal(u, before)
