from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rdpfl_sim.aggregators import AGGREGATORS, aggregate
from rdpfl_sim.components.schema import OneOf
from tests.aggregators.matrices import MAX, assert_close, matrices, quick, rounding, widened

every_aggregator = pytest.mark.parametrize("name", AGGREGATORS)


def run(name: str, u: Tensor, own: Tensor | None = None) -> Tensor:
    """The aggregate for a client whose own vector is zero, or `own`."""
    return aggregate(AGGREGATORS[name], u, torch.zeros(u.shape[1]) if own is None else own)


@every_aggregator
@given(u=matrices())
@quick
def test_finite_messages_give_a_finite_result_inside_their_hull(name: str, u: Tensor) -> None:
    result = run(name, u)
    assert result.isfinite().all()
    assert (result.double() >= u.amin(dim=0).double() - rounding(u)).all()
    assert (result.double() <= u.amax(dim=0).double() + rounding(u)).all()


@every_aggregator
@pytest.mark.parametrize("n", [1, 2, 3, 7, 10])
@pytest.mark.parametrize("d", [3, 2000])
def test_largest_floats_do_not_overflow(name: str, n: int, d: int) -> None:
    largest = torch.full((n, d), MAX)
    assert_close(run(name, largest), largest[0], MAX * 1e-6)
    lopsided = largest * torch.linspace(0.8, 1, n).unsqueeze(1)
    lopsided[-1] = -MAX
    assert run(name, lopsided).isfinite().all()


@every_aggregator
@given(u=matrices(), data=st.data())
@quick
def test_aggregate_does_not_depend_on_the_order_of_the_messages(
    name: str, u: Tensor, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(u))))
    # The geometric median stops at a step that is short, though not in a coordinate of much smaller scale.
    tolerance = rounding(u).max() if name == "geometric_median" else rounding(u)
    assert_close(run(name, u), run(name, u[order]), tolerance)


@every_aggregator
@given(u=matrices())
@quick
def test_messages_are_not_changed(name: str, u: Tensor) -> None:
    for v in (u, widened(u)):
        before = v.clone()
        run(name, v).fill_(0)  # nor is the result a view of them
        assert torch.equal(v, before)


@every_aggregator
@pytest.mark.parametrize("d", [1, 5, 2000])
def test_aggregate_of_one_message_is_that_message(name: str, d: int) -> None:
    u = torch.linspace(-3, 5, d).unsqueeze(0)
    assert torch.equal(run(name, u), u[0])


@every_aggregator
@pytest.mark.parametrize("d", [1, 5, 2000])
def test_aggregate_of_two_messages_is_their_mean(name: str, d: int) -> None:
    u = torch.stack([torch.linspace(-3, 5, d), torch.full((d,), 2.0)])
    midpoint = (u[0] + u[1]) / 2
    assert_close(run(name, u, own=midpoint), midpoint, 1e-6)


@every_aggregator
def test_result_is_a_vector_of_the_type_of_the_messages(name: str) -> None:
    result = run(name, torch.randn(5, 7).T.contiguous().T)
    assert (result.shape, result.dtype) == ((7,), torch.float32)


@every_aggregator
def test_one_attacker_moves_only_the_mean_without_bound(name: str) -> None:
    u = torch.zeros(5, 2000)
    u[3] = 1e30
    assert (run(name, u).max() > 1e20) == (name == "mean")


@pytest.mark.parametrize(
    "options",
    [
        {"name": "trimmed_mean", "trim": 0.5},
        {"name": "trimmed_mean", "trim": -0.1},
        {"name": "geometric_median", "iterations": 0},
        {"name": "krum", "byzantine": 1.1},
        {"name": "multi_krum", "keep": 0.0},
        {"name": "meamed", "byzantine": -0.1},
        {"name": "mda", "max_subsets": 0},
        {"name": "smea", "max_subsets": 10**6},
        {"name": "centred_clipping", "iterations": 0},
    ],
)
def test_options_out_of_range_are_rejected(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"must be [<>]"):
        OneOf(AGGREGATORS).validate(options)
