"""The simulated GPU rejects the operations that CUDA rejects, and its counts are correct."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.execution.simulated_gpu import PURGE_EVERY, Counts, SimulatedGpu

GPU = torch.device("cuda", 0)


@pytest.fixture
def gpu() -> Iterator[SimulatedGpu]:
    with SimulatedGpu() as simulated:
        yield simulated


@pytest.fixture
def x(gpu: SimulatedGpu) -> Tensor:
    """Return 0, 1, ..., 5 on the GPU; the copy is not counted."""
    on_gpu = torch.arange(6.0).to("cuda")
    gpu.counts = Counts()
    return on_gpu


def test_outside_the_context_there_is_no_gpu() -> None:
    before = torch.cuda.is_available(), threading.Thread.run
    with SimulatedGpu(num_devices=2):
        assert torch.cuda.is_available()
        assert torch.cuda.device_count() == 2
        x = torch.ones(2, device="cuda")
    assert (torch.cuda.is_available(), threading.Thread.run) == before
    assert x.device.type == "cpu"


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(3).to("cuda"),
        lambda: torch.ones(3).to(torch.device("cuda"), torch.float64),
        lambda: torch.ones(3).to(device="cuda:0"),
        lambda: torch.ones(3).to(torch.zeros(1, device="cuda")),
        lambda: torch.ones(3).cuda(),
        lambda: torch.ones(3, device="cuda"),
        lambda: torch.tensor([1, 2], device="cuda"),
        lambda: torch.arange(3, device=GPU),
        lambda: torch.ones(3, device="cuda").new_tensor([1.0]),
        lambda: torch.ones(3, device="cuda").new_zeros(2),
        lambda: torch.zeros_like(torch.ones(3, device="cuda")),
        lambda: torch.zeros_like(torch.ones(3), device="cuda"),
        lambda: torch.ones(3, device="cuda")[1:].view(2, 1).T,
        lambda: torch.ones(3, device="cuda").sum(),
        lambda: torch.ones(3, device="cuda") * torch.tensor(2.0),
        lambda: deepcopy(torch.ones(3, device="cuda")),
        lambda: nn.Linear(3, 2).to("cuda").weight,
        lambda: deepcopy(nn.Linear(3, 2).to("cuda")).weight.data,
        lambda: torch.stack([torch.ones(3, device="cuda")] * 2),
        lambda: torch.ones(4, device="cuda").split(2)[1],
    ],
)
@pytest.mark.usefixtures("gpu")
def test_tensors_report_the_gpu(make: Callable[[], Tensor]) -> None:
    x = make()
    assert x.device == GPU
    assert (x.is_cuda, x.is_cpu, x.get_device()) == (True, False, 0)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: torch.ones(3),
        lambda x: x.cpu(),
        lambda x: x.to("cpu"),
        lambda x: x.to(torch.ones(1)),
        lambda x: torch.zeros_like(x, device="cpu"),
        lambda x: torch.tensor(x.tolist()),
        lambda x: torch.from_numpy(x.numpy(force=True)),
        lambda x: torch.zeros(6).copy_(x),
    ],
)
def test_tensors_report_the_host(make: Callable[[Tensor], Tensor], x: Tensor) -> None:
    y = make(x)
    assert y.device == torch.device("cpu")
    assert (y.is_cuda, y.is_cpu, y.get_device()) == (False, True, -1)
    assert x.is_cuda


@pytest.mark.parametrize(
    "mix",
    [
        lambda x, y: x + y,
        lambda x, y: y.add_(x),
        lambda x, y: torch.stack([x, y]),
        lambda x, y: torch.where(x > 2, x, y),
        lambda x, y: x.index_select(0, y.long()),
        lambda x, y: y[x.long()],
        lambda x, y: torch.dot(x, y),
        lambda x, y: nn.functional.cross_entropy(x.view(2, 3), y.long()[:2]),
        lambda x, y: x.sum() + y,
    ],
)
def test_mixing_tensors_of_two_devices_is_an_error(
    mix: Callable[[Tensor, Tensor], Tensor], x: Tensor
) -> None:
    with pytest.raises(RuntimeError, match="expects all tensors on one device, found cpu and cuda:0"):
        mix(x, torch.arange(6.0))


def test_mixing_two_gpus_is_an_error() -> None:
    with SimulatedGpu(num_devices=2):
        one, other = torch.ones(2, device="cuda:0"), torch.ones(2, device="cuda:1")
        assert other.device == torch.device("cuda:1")
        with pytest.raises(RuntimeError, match="found cuda:0 and cuda:1"):
            one + other
        assert (one + other.to(one.device)).device == GPU
        with pytest.raises(RuntimeError, match="no device cuda:2"):
            torch.ones(2, device="cuda:2")


@pytest.mark.parametrize("convert", [Tensor.numpy, np.asarray, lambda x: np.add(np.ones(6), x)])
def test_numpy_rejects_tensors_of_the_gpu(convert: Callable[[Tensor], object], x: Tensor) -> None:
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        convert(x)
    convert(x.cpu())


@pytest.mark.parametrize(
    "draw",
    [
        lambda x, generator: x.normal_(generator=generator),
        lambda x, generator: torch.randn(3, generator=generator, device="cuda"),
        lambda x, generator: torch.randperm(3, generator=generator, device="cuda"),
    ],
)
def test_generator_of_the_cpu_is_rejected(
    draw: Callable[[Tensor, torch.Generator], Tensor], x: Tensor
) -> None:
    with pytest.raises(RuntimeError, match="generator"):
        draw(x, torch.Generator())


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (lambda x: x + 1, Counts(launches=1)),
        (lambda x: x.view(2, 3)[0], Counts()),
        (lambda x: torch.empty_like(x), Counts()),
        (lambda x: x[0].item(), Counts(synchronisations=1)),
        (lambda x: float(x[0]), Counts(synchronisations=1)),
        (lambda x: bool(x[0]), Counts(synchronisations=1)),
        (lambda x: int(x[0]), Counts(synchronisations=1)),
        (lambda x: x.tolist(), Counts(synchronisations=1, to_host=1)),
        (lambda x: x.cpu(), Counts(synchronisations=1, to_host=1)),
        (lambda x: torch.zeros(6).copy_(x), Counts(synchronisations=1, to_host=1)),
        (lambda x: x.copy_(torch.zeros(6)), Counts(to_device=1)),
        (lambda x: x.copy_(x.flip(0)), Counts(launches=2)),
        (lambda x: x[0].copy_(x[1]), Counts(launches=1)),
        (lambda x: torch.tensor([1.0], device="cuda"), Counts(to_device=1)),
        (lambda x: torch.zeros(1, device="cuda"), Counts(launches=1)),
        (lambda x: torch.ones(1).to(x.device), Counts(to_device=1)),
        (lambda x: x.to("cuda"), Counts()),
        (lambda x: x.double(), Counts(launches=1)),
        (lambda x: (x > 2).nonzero(), Counts(launches=2, synchronisations=1)),
        (lambda x: x[x > 2], Counts(launches=2, synchronisations=1)),
        (lambda x: x.masked_fill(x > 2, 0.0), Counts(launches=2)),
        (lambda x: x[torch.tensor([0, 1])], Counts(launches=1, to_device=1)),
        (lambda x: torch.equal(x, x + 1), Counts(launches=2, synchronisations=1)),
        (lambda x: torch.ones(3) + 1, Counts()),
    ],
)
def test_counts_are_those_of_a_gpu(
    act: Callable[[Tensor], object], expected: Counts, gpu: SimulatedGpu, x: Tensor
) -> None:
    act(x)
    assert gpu.counts == expected


def test_backward_pass_is_tracked_and_counted(gpu: SimulatedGpu, x: Tensor) -> None:
    w = x.clone().requires_grad_()
    loss = (w * w).sum()
    with gpu.counting() as backward:
        (gradient,) = torch.autograd.grad(loss, [w])
    assert gradient.device == GPU
    assert torch.equal(gradient.cpu(), 2 * torch.arange(6.0))
    assert 0 < backward.launches < gpu.counts.launches
    assert backward.synchronisations == 0


def test_new_threads_use_the_same_gpu(gpu: SimulatedGpu, x: Tensor) -> None:
    found: list[object] = []

    def inspect() -> None:
        found.append(x.device)
        try:
            x + torch.ones(6)
        except RuntimeError as error:
            found.append(str(error))
        found.append((x + 1).tolist())

    thread = threading.Thread(target=inspect)
    thread.start()
    thread.join()
    assert found == [
        GPU,
        "aten.add expects all tensors on one device, found cpu and cuda:0",
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    ]
    assert gpu.counts == Counts(launches=1, synchronisations=1, to_host=1)


def test_new_tensor_in_freed_memory_of_the_gpu_is_on_the_cpu(x: Tensor) -> None:
    for _ in range(PURGE_EVERY // 10):
        y = x + 1
        assert y.is_cuda
        del y
        assert torch.ones(6).is_cpu


def test_freed_storages_are_removed(gpu: SimulatedGpu, x: Tensor) -> None:
    for _ in range(PURGE_EVERY):
        gpu.mark(torch.empty(1), GPU)
    assert len(gpu._devices) < PURGE_EVERY / 2
    assert x.is_cuda
