import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rdpfl_sim.maths.vectors import LARGEST, bb_coefficient, clip, next_threshold, norm

entries = st.floats(-LARGEST, LARGEST, width=32)
vectors = st.lists(entries, min_size=1, max_size=6).map(torch.tensor)


def test_norm_of_huge_entries_is_finite() -> None:
    assert norm(torch.tensor([3e38, 3e38])) == pytest.approx(math.sqrt(2) * 3e38, rel=1e-6)


def test_clip_leaves_short_vectors_alone() -> None:
    v = torch.tensor([3.0, 4.0])
    assert clip(v, 5.0) == (v, False)


def test_clip_of_zero_to_zero_is_zero() -> None:
    v, active = clip(torch.zeros(3), 0.0)
    assert v.tolist() == [0.0, 0.0, 0.0]
    assert not active


@given(vectors, st.floats(1e-6, 1e6))
def test_clip_bounds_the_norm_and_keeps_the_direction(v: torch.Tensor, limit: float) -> None:
    clipped, active = clip(v, limit)
    assert norm(clipped) <= limit * (1 + 1e-5)
    assert active == (norm(v) > limit)
    assert torch.all(clipped * v >= 0)


def test_coefficient_is_clamped_on_both_sides() -> None:
    s = torch.tensor([1.0, 0.0])
    assert bb_coefficient(s, torch.tensor([50.0, 1.0]), 1e-8, 10.0) == 10.0
    assert bb_coefficient(s, torch.tensor([-50.0, 1.0]), 1e-8, 10.0) == -10.0


def test_coefficient_of_a_standstill_is_zero() -> None:
    assert bb_coefficient(torch.zeros(3), torch.ones(3), 1e-8, 10.0) == 0.0


@given(vectors, st.floats(-10, 10))
def test_coefficient_is_finite_whatever_happens(s: torch.Tensor, scale: float) -> None:
    assert abs(bb_coefficient(s, s * scale, 1e-8, 10.0)) <= 10.0


def test_threshold_is_a_moving_average_of_tolerated_deviations() -> None:
    assert next_threshold(1.0, 0.0, alpha=0.9, c=1.5) == pytest.approx(0.9)
    assert next_threshold(0.9, 2.0, alpha=0.9, c=1.5) == pytest.approx(0.81 + 0.3)
