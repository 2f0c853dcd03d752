"""Messages held near the own vector, and how far from it an aggregate of them can be."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from rdpfl_sim.maths.aggregators import AGGREGATORS, aggregate, median
from rdpfl_sim.maths.aggregators.coordinatewise import num_trimmed
from rdpfl_sim.maths.aggregators.weighting import num_trusted
from rdpfl_sim.maths.vectors import LARGEST, clip_around, norm
from tests.maths.aggregators.matrices import MAX, matrices


def one(n: int) -> float:
    """For a convex combination of the rows: a ball is convex."""
    return 1.0


def of_the_median(n: int) -> float:
    """At each coordinate n // 2 + 1 rows are as far away or farther: (n // 2 + 1) |d - u|^2 <= n tau^2."""
    return sqrt(n / (n // 2 + 1))


def of_centred_clipping(n: int) -> float:
    """It mixes the rows and their median."""
    return of_the_median(n)


def of_means(num_kept: Callable[[int], int]) -> Callable[[int], float]:
    """For a mean of so many rows, others at each coordinate: kept |d - u|^2 <= n tau^2, by convexity."""
    return lambda n: sqrt(n / num_kept(n))


FARTHEST: dict[str, Callable[[int], float]] = {
    **dict.fromkeys(("mean", "geometric_median", "krum", "multi_krum", "monna", "mda", "smea", "caf"), one),
    "median": of_the_median,
    "centred_clipping": of_centred_clipping,
    "trimmed_mean": of_means(lambda n: n - 2 * num_trimmed(n, 0.3)),
    "meamed": of_means(lambda n: num_trusted(n, 0.3)),
}
"""|d - u| / tau is at most this, for n messages."""


@st.composite
def heard(draw: st.DrawFn) -> tuple[Tensor, Tensor, float]:
    """An own vector, messages of any size, and a radius."""
    messages = draw(matrices(max_rows=7))
    entries = st.floats(-100, 100, width=32)
    u = torch.from_numpy(draw(arrays(np.float32, messages.shape[1], elements=entries)))
    return u, messages, draw(st.floats(0, 100))


def slack(u: Tensor, radius: float) -> float:
    return 1e-5 * (norm(u) + radius) + 1e-12


def test_message_at_the_own_vector_stays_also_if_the_radius_is_zero() -> None:
    u = torch.tensor([1.0, -2.0])
    held, factors = clip_around(u, torch.stack([u, u + 1]), 0.0)
    assert held.tolist() == [[1.0, -2.0], [1.0, -2.0]]
    assert factors.tolist() == [1.0, 0.0]


@given(heard())
def test_every_message_is_within_the_radius_and_on_its_way_to_the_own_vector(given_) -> None:
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
def test_no_message_moves_an_aggregate_far_from_the_own_vector(name: str) -> None:
    @given(heard())
    def holds(given_) -> None:
        u, messages, radius = given_
        d = aggregate(AGGREGATORS[name], clip_around(u, messages, radius)[0], u)
        assert norm(d - u) <= FARTHEST[name](len(messages)) * radius + slack(u, radius)

    holds()


def test_median_can_be_farther_away_than_every_message() -> None:
    u = torch.zeros(3)
    messages = MAX * torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    d = median(clip_around(u, messages, 2.0)[0])
    assert norm(d) == pytest.approx(of_the_median(3) * 2.0)
    assert norm(d) == pytest.approx(sqrt(6))
