"""Messages clipped around the own vector, and how far from it an aggregate of them can be."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from rdpfl_sim import vectors
from rdpfl_sim.aggregators import AGGREGATORS, aggregate, median
from rdpfl_sim.aggregators.aggregator import all_options
from rdpfl_sim.aggregators.coordinatewise import median_bound
from rdpfl_sim.vectors import LARGEST, norm
from tests.aggregators.matrices import MAX, matrices


@st.composite
def heard(draw: st.DrawFn) -> tuple[Tensor, Tensor, float]:
    """An own vector, messages of any size, and a radius."""
    messages = draw(matrices(max_rows=7))
    entries = st.floats(-100, 100, width=32)
    u = torch.from_numpy(draw(arrays(np.float32, messages.shape[1], elements=entries)))
    return u, messages, draw(st.floats(0, 100))


def clip_around(u: Tensor, messages: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """Clip the messages of one client."""
    limit = torch.tensor([radius], dtype=torch.float64)
    [clipped], [factors] = vectors.clip_around(u.unsqueeze(0), messages.unsqueeze(0), limit)
    return clipped, factors


def slack(u: Tensor, radius: float) -> float:
    return 1e-5 * (norm(u) + radius) + 1e-12


def test_message_equal_to_the_own_vector_is_not_changed_by_a_radius_of_zero() -> None:
    u = torch.tensor([1.0, -2.0])
    held, factors = clip_around(u, torch.stack([u, u + 1]), 0.0)
    assert held.tolist() == [[1.0, -2.0], [1.0, -2.0]]
    assert factors.tolist() == [1.0, 0.0]


@given(heard())
def test_clipped_message_is_within_the_radius_on_the_line_to_the_own_vector(given_) -> None:
    u, messages, radius = given_
    before = messages.clone()
    held, factors = clip_around(u, messages, radius)
    assert torch.equal(messages, before)
    assert torch.isfinite(held).all()
    for row, message, factor in zip(held, messages.clamp(-LARGEST, LARGEST), factors.tolist(), strict=True):
        assert norm(row - u) <= radius + slack(u, radius)
        assert 0 <= factor <= 1
        if factor == 1:
            torch.testing.assert_close(row, message, rtol=1e-5, atol=1e-4)
        else:
            way = message.double() - u.double()
            assert norm(u.double() + radius * way / norm(way) - row.double()) <= slack(u, radius)


@pytest.mark.parametrize("name", AGGREGATORS)
def test_no_message_moves_an_aggregate_farther_from_the_own_vector_than_its_bound(name: str) -> None:
    bound = AGGREGATORS.facts(name).distance_bound
    assert bound is not None

    @given(heard())
    def holds(given_) -> None:
        u, messages, radius = given_
        d = aggregate(AGGREGATORS[name], clip_around(u, messages, radius)[0], u)
        limit = bound(len(messages), **all_options(AGGREGATORS[name]))
        assert norm(d - u) <= limit * radius + slack(u, radius)

    holds()


def test_median_can_be_farther_away_than_every_message() -> None:
    u = torch.zeros(3)
    messages = MAX * torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    d = median(clip_around(u, messages, 2.0)[0])
    assert norm(d) == pytest.approx(median_bound(3) * 2.0)
    assert norm(d) == pytest.approx(sqrt(6))
