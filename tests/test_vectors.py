"""Norms, clipping and the prediction coefficient; a row has the same bits in any batch."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from decimal import Context, Decimal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rdpfl_sim import vectors
from rdpfl_sim.execution.devices import deterministic_torch
from rdpfl_sim.methods.rdpfl import bb_coefficients
from rdpfl_sim.vectors import LARGEST, clip_rows, norm, row_norms

entries = st.floats(-LARGEST, LARGEST, width=32)
some_vectors = st.lists(entries, min_size=1, max_size=6).map(torch.tensor)


def clip(v: Tensor, limit: float) -> tuple[Tensor, bool]:
    """Clip one vector."""
    rows = v.unsqueeze(0)
    [clipped], active = clip_rows(rows, torch.tensor([limit], dtype=torch.float64), row_norms(rows))
    return clipped, bool(active)


def coefficient(s: Tensor, y: Tensor, epsilon: float = 1e-8, limit: float = 10.0) -> float:
    """Return beta of one client."""
    return bb_coefficients(s.unsqueeze(0), y.unsqueeze(0), epsilon, limit).item()


def test_norm_of_huge_entries_is_finite() -> None:
    huge = torch.tensor([3e38, 3e38])
    assert norm(huge) == pytest.approx(math.sqrt(2) * 3e38, rel=1e-6)
    assert row_norms(huge.unsqueeze(0)).item() == norm(huge)


def test_clip_does_not_change_short_vectors() -> None:
    v, active = clip(torch.tensor([3.0, 4.0]), 5.0)
    assert (v.tolist(), active) == ([3.0, 4.0], False)


def test_clip_of_zero_to_zero_is_zero() -> None:
    v, active = clip(torch.zeros(3), 0.0)
    assert (v.tolist(), active) == ([0.0, 0.0, 0.0], False)


@given(some_vectors, st.floats(1e-6, 1e6))
def test_clip_bounds_the_norm_and_keeps_the_direction(v: Tensor, limit: float) -> None:
    clipped, active = clip(v, limit)
    assert norm(clipped) <= limit * (1 + 1e-5)
    assert active == (norm(v) > limit)
    assert torch.all(clipped * v >= 0)


def test_coefficient_is_clamped_on_both_sides() -> None:
    s = torch.tensor([1.0, 0.0])
    assert coefficient(s, torch.tensor([50.0, 1.0])) == 10.0
    assert coefficient(s, torch.tensor([-50.0, 1.0])) == -10.0


def test_coefficient_is_zero_if_the_model_did_not_move() -> None:
    assert coefficient(torch.zeros(3), torch.ones(3)) == 0.0


@given(some_vectors, st.floats(-10, 10))
def test_coefficient_is_within_its_limits(s: Tensor, scale: float) -> None:
    assert abs(coefficient(s, s * scale)) <= 10.0


def test_coefficients_and_norms_agree_with_numpy() -> None:
    s, y = torch.randn(2, 3, 20_000, generator=torch.Generator().manual_seed(0))
    pairs = zip(s.double().numpy(), (y + s).double().numpy(), strict=True)
    expected = [np.dot(a, b) / (np.dot(a, a) + 1e-8) for a, b in pairs]
    assert bb_coefficients(s, y + s, 1e-8, 10.0).tolist() == pytest.approx(expected, rel=1e-12)
    lengths = np.linalg.norm(s.double().numpy(), axis=1)
    assert row_norms(s).tolist() == pytest.approx(lengths.tolist(), rel=1e-12)


def clip_some(x: Tensor) -> Tensor:
    lengths = row_norms(x)
    limits = torch.full_like(lengths, x.shape[1] ** 0.5)  # about half of the rows are longer
    rows, active = clip_rows(x, limits, lengths)
    return torch.cat([rows, active.unsqueeze(1)], dim=1)


def clip_around_rows(x: Tensor) -> Tensor:
    messages = torch.stack([x * 2, -x, x * 0.5], dim=1)
    return vectors.clip_around(x, messages, row_norms(x))[0].flatten(1)


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "row_norms": row_norms,
    "clip_rows": clip_some,
    "clip_around": clip_around_rows,
    "square_root": lambda x: vectors.square_root(x.abs()),
    "clamp_finite": vectors.clamp_finite,
    "message_distances": lambda x: vectors.message_distances(torch.stack([x, 2 * x, x**3], dim=1), x.cos()),
    "bb_coefficients": lambda x: bb_coefficients(x, x.square() - x.roll(1, 1), 1e-8, 10.0),
}
"""Functions of x (n, d) that compute something for every row."""


@pytest.mark.parametrize("num_threads", [1, 2, 3, 4])
@pytest.mark.parametrize("d", [1, 37, 8193, 32_769, 200_000])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_row_has_the_same_bits_in_any_batch(name: str, d: int, num_threads: int) -> None:
    function = FUNCTIONS[name]
    x = torch.randn(40 if d < 100_000 else 12, d, generator=torch.Generator().manual_seed(d))
    with deterministic_torch(num_threads):
        alone = torch.cat([function(row.unsqueeze(0).clone()) for row in x])
        for n in (2, 3, 7, len(x)):
            assert torch.equal(function(x[:n].clone()), alone[:n]), f"{n} rows"


def test_every_function_on_rows_is_tested() -> None:
    functions = {
        name
        for name, function in inspect.getmembers(vectors, inspect.isfunction)
        if function.__module__ == vectors.__name__
    }
    of_pairs = {"squared_distances", "distances_to", "norms", "blocks"}  # see test_distances.py
    tested = {*FUNCTIONS, "norm", "product", *of_pairs}
    assert {name for name in functions if not name.startswith("_")} <= tested


def test_square_root_is_correctly_rounded() -> None:
    values = [0.0, 2.0, 1e-38, 3e38, math.inf, *(k / 7 for k in range(1, 1000))]
    for dtype in (torch.float32, torch.float64):
        x = torch.tensor(values, dtype=dtype)
        exact = [float(Decimal(value).sqrt(Context(prec=60))) for value in x.double().tolist()]
        assert vectors.square_root(x).tolist() == torch.tensor(exact, dtype=dtype).tolist()
    assert vectors.square_root(torch.tensor(4.0)).item() == 2.0  # no dimension


def test_product_is_the_matrix_product() -> None:
    a, b = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([5.0, 6.0])
    assert vectors.product(a, b).tolist() == [17.0, 39.0]
    assert vectors.product(b, b) == 61.0
