"""Rows of matrices: of each the result has the same bits in any batch, with any number of threads."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from rdpfl_sim.execution.determinism import deterministic_torch
from rdpfl_sim.maths import batched as together
from rdpfl_sim.maths.aggregators import AGGREGATORS
from rdpfl_sim.maths.vectors import bb_coefficient, norm


def aggregated(name: str, x: Tensor) -> Tensor:
    """Aggregates of five messages for each row."""
    return together.aggregate_together(AGGREGATORS[name], torch.stack([x * k - k for k in range(1, 6)]))


def clipped(x: Tensor) -> Tensor:
    lengths = together.norms(x)
    limits = torch.full_like(lengths, x.shape[1] ** 0.5)  # about half of the rows are longer
    rows, yes = together.clip_rows(x, limits, lengths)
    return torch.cat([rows, yes.unsqueeze(1)], dim=1)


BANDS = [name for name, aggregator in AGGREGATORS.items() if together.can_aggregate(aggregator, 5)]
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    **{f"aggregate_together: {name}": partial(aggregated, name) for name in BANDS},
    "norms": together.norms,
    "clip_rows": clipped,
    "bb_coefficients": lambda x: together.bb_coefficients(x, x.square() - x.roll(1, 1), 1e-8, 10.0),
    "column": lambda x: x * together.column(x[:, 0].tolist(), x),
}
"""What is computed for a row each of x (n, d)."""


@pytest.mark.parametrize("num_threads", [1, 2, 3, 4])
@pytest.mark.parametrize("d", [1, 37, 8193, 32_769, 200_000])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_row_has_the_same_bits_in_any_batch(name: str, d: int, num_threads: int) -> None:
    function = FUNCTIONS[name]
    x = torch.randn(40 if d < 100_000 else 12, d, generator=torch.Generator().manual_seed(d))
    with deterministic_torch(num_threads):
        alone = torch.cat([function(row.unsqueeze(0).clone()) for row in x])
        for n in (2, 3, 7, len(x)):
            assert torch.equal(function(x[:n].clone()), alone[:n]), f"{n} rows"


def test_every_function_is_tested() -> None:
    functions = [
        name
        for name, function in inspect.getmembers(together, inspect.isfunction)
        if function.__module__ == together.__name__ and not name.startswith("_") and name != "can_aggregate"
    ]
    assert {name.split(":")[0] for name in FUNCTIONS} == set(functions)
    assert BANDS == ["mean", "median", "trimmed_mean"]


def test_coefficients_and_norms_are_those_of_the_estimator() -> None:
    generator = torch.Generator().manual_seed(0)
    s, y = torch.randn(2, 3, 20_000, generator=generator)
    assert together.bb_coefficients(s, y + s, 1e-8, 10.0).tolist() == pytest.approx(
        [bb_coefficient(*rows, 1e-8, 10.0) for rows in zip(s, y + s, strict=True)], rel=1e-12
    )
    assert together.norms(s).tolist() == pytest.approx([norm(row) for row in s], rel=1e-12)
