"""Matrices of messages and reference results for the tests of aggregators."""

from __future__ import annotations

from math import ceil

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

MAX = torch.finfo(torch.float32).max
quick = settings(max_examples=25, deadline=None)


def matrices(min_rows: int = 1, limit: float = MAX, max_rows: int = 11) -> st.SearchStrategy[Tensor]:
    shapes = st.tuples(st.integers(min_rows, max_rows), st.integers(1, 4))
    entries = st.floats(-limit, limit, width=32) | st.integers(-3, 3).map(float)
    return shapes.flatmap(lambda shape: arrays(np.float32, shape, elements=entries)).map(torch.from_numpy)


def widened(u: Tensor) -> Tensor:
    """Repeat the columns until there are enough for the network and for several blocks."""
    return u.repeat(1, ceil(70_000 / u.shape[1]))


def rounding(u: Tensor) -> Tensor:
    return u.abs().amax(dim=0).double() * 1e-5 + 1e-44  # the last for floats too small to be halved


def assert_close(a: Tensor, b: Tensor, tolerance: Tensor | float) -> None:
    assert ((a.double() - b.double()).abs() <= tolerance).all(), (
        f"{a} and {b} differ by more than {tolerance}"
    )


@st.composite
def attacked(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Honest rows in [-1, 1], and the same with fewer arbitrary rows than that among them."""
    num_honest, d = draw(st.integers(2, 7)), draw(st.integers(1, 4))
    num_byzantine = draw(st.integers(1, num_honest - 1))
    honest = draw(arrays(np.float32, (num_honest, d), elements=st.floats(-1, 1, width=32)))
    sent = draw(arrays(np.float32, (num_byzantine, d), elements=st.floats(-MAX, MAX, width=32)))
    order = draw(st.permutations(range(num_honest + num_byzantine)))
    return torch.from_numpy(honest), torch.from_numpy(np.concatenate([honest, sent])[order])
