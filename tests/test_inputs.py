"""Writes to the inputs of components are detected."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from rdpfl_sim.aggregators import Aggregation, mean
from rdpfl_sim.attacks import View
from rdpfl_sim.inputs import Inputs, call_read_only
from rdpfl_sim.methods.base import State
from rdpfl_sim.methods.batching import UpdateInput, update_in_batches
from rdpfl_sim.methods.direct import Direct
from rdpfl_sim.plugins import RunInfo
from rdpfl_sim.world.adversary.adversary import Plan
from tests.support import CLIENT, TinyWorld, trained

BY_TORCH: list[Callable[[Tensor], object]] = [
    lambda v: v.add_(0.0),
    lambda v: v.__setitem__(0, 1.0),
    lambda v: v[1:].detach().zero_(),
]
NOT_BY_TORCH: list[Callable[[Tensor], object]] = [
    lambda v: v.numpy().__setitem__(0, 2.5),
    lambda v: v.numpy()[::-1].sort(),
    lambda v: v.data.mul_(2),
]


def vector() -> Tensor:
    return torch.tensor([1.0, torch.nan, 3.0])


@pytest.mark.parametrize("write", BY_TORCH)
@pytest.mark.parametrize("bitwise", [False, True])
def test_write_by_torch_is_detected(write: Callable[[Tensor], object], bitwise: bool) -> None:
    v = vector()
    inputs = Inputs(v, bitwise=bitwise)
    assert not inputs.are_modified()
    write(v)
    assert inputs.are_modified()


@pytest.mark.parametrize("write", NOT_BY_TORCH)
def test_other_write_is_detected_bitwise(write: Callable[[Tensor], object]) -> None:
    v = vector()
    inputs = Inputs(v, bitwise=True)
    write(v)
    assert inputs.are_modified()


def test_tensors_in_the_fields_of_an_argument_are_inputs() -> None:
    view = View(vector(), origin=vector())
    inputs = Inputs("text", 1, view)
    assert view.origin is not None
    view.origin[0] = 2.0
    assert inputs.are_modified()


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(torch.nan),
        torch.zeros(0, 3),
        torch.tensor([True, False]),
        torch.arange(6.0).view(2, 3).t(),
        torch.zeros(3, 1).expand(3, 4),
        torch.zeros(3, dtype=torch.float64, requires_grad=True),
    ],
)
def test_every_kind_of_tensor_can_be_an_input(tensor: Tensor) -> None:
    assert not Inputs(tensor, bitwise=True).are_modified()


def test_tensor_of_inference_mode_can_be_an_input() -> None:
    with torch.inference_mode():
        tensor = torch.zeros(3)
    assert not Inputs(tensor, bitwise=True).are_modified()


def test_component_that_only_reads_returns_its_result() -> None:
    assert torch.equal(call_read_only(torch.neg, torch.ones(2)), -torch.ones(2))


# Built-in components are checked in every run.


def test_aggregator_that_writes_to_messages_is_an_error() -> None:
    with pytest.raises(AssertionError, match="modifies its arguments"):
        Aggregation(lambda u: u.mul_(2).mean(dim=0))(torch.ones(1, 3, 2), torch.ones(1, 2))


def test_attack_that_writes_to_its_view_is_an_error() -> None:
    world = TinyWorld(byzantine=[0], plan=Plan(lambda view: view.own.mul_(2)))
    with pytest.raises(AssertionError, match="modifies its arguments"):
        world.run()


def test_method_that_writes_to_its_state_is_an_error() -> None:
    class Writing(Direct):
        def update(self, state, trained, inbox, clients):  # type: ignore[no-untyped-def]
            state.w.add_(1)
            return super().update(state, trained, inbox, clients)

    method = Writing(RunInfo(rounds=1), aggregator=mean)
    one = UpdateInput(State(torch.zeros(1, 2)), trained(torch.ones(2)), [], CLIENT)
    with pytest.raises(AssertionError, match="modifies its arguments"):
        update_in_batches(method, [one], with_message_stats=True)
