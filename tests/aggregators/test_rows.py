"""Aggregates of many clients together: one row per client, the same bits in any batch."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from rdpfl_sim.aggregators import AGGREGATORS, aggregate, aggregate_rows, aggregator, trimmed_mean
from tests.registries import temporary_components

every_aggregator = pytest.mark.parametrize("name", AGGREGATORS)
BY_ORDER_STATISTICS = {name for name in AGGREGATORS if AGGREGATORS.facts(name).order_statistics}


def random_messages(n: int, m: int, d: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n + m + d)
    return torch.randn(n, m, d, generator=generator), torch.randn(n, d, generator=generator)


@every_aggregator
@pytest.mark.parametrize("m", [1, 2, 5, 13, 40])
def test_row_is_the_aggregate_of_its_client(name: str, m: int) -> None:
    if name in ("mda", "smea") and m > 16:
        m = 16  # beyond that they try a few sets of rows only
    messages, own = random_messages(3, m, 40)
    rows = aggregate_rows(AGGREGATORS[name], messages, own)
    alone = torch.stack([aggregate(AGGREGATORS[name], u, one) for u, one in zip(messages, own, strict=True)])
    torch.testing.assert_close(rows, alone)
    assert torch.equal(rows, alone) or name in BY_ORDER_STATISTICS


@every_aggregator
def test_bits_of_a_row_do_not_depend_on_the_other_rows(name: str) -> None:
    messages, own = random_messages(7, 5, 300)
    rows = aggregate_rows(AGGREGATORS[name], messages, own)
    for n in (1, 2, 5):
        assert torch.equal(aggregate_rows(AGGREGATORS[name], messages[:n], own[:n]), rows[:n])


@every_aggregator
def test_row_whose_sum_overflows_is_finite_and_does_not_affect_the_others(name: str) -> None:
    messages, own = random_messages(3, 5, 20)
    expected = aggregate_rows(AGGREGATORS[name], messages, own)
    messages[1] = torch.finfo(torch.float32).max
    rows = aggregate_rows(AGGREGATORS[name], messages, own)
    assert rows.isfinite().all()
    assert torch.equal(rows[::2], expected[::2])


def test_options_apply_to_every_row() -> None:
    messages, own = random_messages(3, 6, 20)
    function = partial(trimmed_mean, trim=0.4)
    alone = [aggregate(function, u, one) for u, one in zip(messages, own, strict=True)]
    torch.testing.assert_close(aggregate_rows(function, messages, own), torch.stack(alone))


def test_aggregator_written_for_rows_is_called_with_rows() -> None:
    with temporary_components():

        @aggregator(rows=True, needs_own=True)
        def halfway(messages: Tensor, own: Tensor) -> Tensor:
            return (messages.mean(dim=1) + own) / 2

        messages, own = random_messages(2, 3, 4)
        expected = (messages.mean(dim=1) + own) / 2
        assert torch.equal(aggregate_rows(halfway, messages, own), expected)
        assert torch.equal(aggregate(halfway, messages[1], own[1]), expected[1])
