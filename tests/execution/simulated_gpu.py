"""A GPU simulated on the CPU, for machines without one.

Inside `SimulatedGpu`, tensors that were moved to `cuda` are CPU tensors that report `cuda:0`. Operations that
CUDA rejects raise an error: tensors of two devices, `.numpy()`, a CPU generator. Kernel launches, copies
between host and device, and synchronisations (the host waits for the device) are counted.

    with SimulatedGpu() as gpu:
        run()
    assert gpu.counts.synchronisations <= 10

Two modes of torch do the work. The function mode intercepts calls from Python: it answers queries about
devices and replaces `device="cuda"`, which torch would reject. The dispatch mode intercepts the operations
below, including those of the backward pass: it tracks the device of every storage, compares devices, and
counts. Modes are local to a thread, so every new thread enters them when it starts.

Not simulated: rounding, memory limits, streams, kernels that run concurrently with the host.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from types import TracebackType
from typing import Any, Self
from unittest.mock import patch

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten

CPU = torch.device("cpu")
NAME = "Simulated GPU"

WAITS = {
    *("_local_scalar_dense", "equal", "is_nonzero", "nonzero", "masked_select", "bincount", "_unique2"),
    *("unique_consecutive", "repeat_interleave", "_linalg_eigh", "_linalg_svd", "_linalg_solve_ex"),
}
"""Operations that make the host wait for the device, because it needs the result or its size."""

NO_KERNEL = {"_local_scalar_dense", "empty", "empty_like", "empty_strided", "new_empty", "detach", "set_"}
"""Operations that are not views and launch no kernel."""

INDEXING = {"index", "index_put", "index_put_", "_unsafe_index", "_index_put_impl_"}

PURGE_EVERY = 10_000
"""Entries of freed storages are removed whenever this many new ones were added."""


@dataclass
class Counts:
    """Numbers of kernel launches, synchronisations and copies."""

    launches: int = 0
    synchronisations: int = 0
    to_device: int = 0
    to_host: int = 0

    def __sub__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(Counts)))


class SimulatedGpu:
    """A context in which `torch.cuda` has `num_devices` simulated GPUs."""

    def __init__(self, num_devices: int = 1) -> None:
        self.num_devices = num_devices
        self.counts = Counts()
        self._devices: dict[int, tuple[StorageWeakRef, torch.device]] = {}
        """Devices of storages that are not on the CPU. The weak reference prevents reuse of the address."""
        self._num_marked = 0
        self._lock = threading.Lock()
        self._contexts = ExitStack()

    def __enter__(self) -> Self:
        run = threading.Thread.run

        def run_simulated(thread: threading.Thread) -> None:
            with self.modes():
                run(thread)

        self._contexts.enter_context(patch.object(threading.Thread, "run", run_simulated))
        self._contexts.enter_context(patch.dict(os.environ))  # a run sets variables for CUDA
        for name, answer in self._answers().items():
            self._contexts.enter_context(patch.object(torch.cuda, name, answer))
        self._contexts.enter_context(self.modes())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._contexts.close()

    def _answers(self) -> dict[str, Callable[..., Any]]:
        return {
            "is_available": lambda: True,
            "device_count": lambda: self.num_devices,
            "current_device": lambda: 0,
            "get_device_name": lambda device=None: NAME,
            "is_initialized": lambda: False,
            "synchronize": lambda device=None: self.count("synchronisations"),
        }

    @contextmanager
    def modes(self) -> Iterator[None]:
        """Simulate the GPU in the current thread."""
        operations = Operations(self)
        with operations, Calls(self, operations):
            yield

    @contextmanager
    def counting(self) -> Iterator[Counts]:
        """Count within this block; the counts are complete when it ends."""
        before, counts = self.counts - Counts(), Counts()
        yield counts
        for name, value in vars(self.counts - before).items():
            setattr(counts, name, value)

    def count(self, kind: str, number: int = 1) -> None:
        """Increase a count; any thread may call this."""
        with self._lock:
            setattr(self.counts, kind, getattr(self.counts, kind) + number)

    def device_of(self, tensor: Tensor) -> torch.device:
        """Return the simulated device of a tensor."""
        entry = self._devices.get(tensor.untyped_storage()._cdata)
        return CPU if entry is None else entry[1]

    def mark(self, results: Any, device: torch.device) -> None:
        """Assign all tensors in the results to a device."""
        for tensor in tensors_in(results):
            storage = tensor.untyped_storage()
            with self._lock:
                self._devices[storage._cdata] = StorageWeakRef(storage), device
                self._num_marked += 1
                if self._num_marked % PURGE_EVERY == 0:
                    alive = {key: entry for key, entry in self._devices.items() if not entry[0].expired()}
                    self._devices = alive

    def canonical(self, device: Any) -> torch.device:
        """Return a device as tensors report it: `cuda` is `cuda:0`."""
        device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
        if device.type == "cpu":
            return CPU
        index = device.index or 0
        if device.type != "cuda" or index >= self.num_devices:
            raise RuntimeError(f"there is no device {device}")
        return torch.device("cuda", index)


def simulate_in_this_process() -> None:
    """Simulate a GPU until this process ends: a setup hook for Ray's workers."""
    SimulatedGpu().__enter__()


class Calls(TorchFunctionMode):
    """Answers queries about devices, and moves tensors between them."""

    def __init__(self, gpu: SimulatedGpu, operations: Operations) -> None:
        super().__init__()
        self.gpu = gpu
        self.operations = operations
        tensor: Any = Tensor
        self.special: dict[Any, Callable[..., Any]] = {
            tensor.device.__get__: gpu.device_of,
            tensor.is_cuda.__get__: lambda x: gpu.device_of(x).type == "cuda",
            tensor.is_cpu.__get__: lambda x: gpu.device_of(x).type == "cpu",
            tensor.get_device: lambda x: -1 if gpu.device_of(x) == CPU else gpu.device_of(x).index,
            tensor.to: self._to,
            tensor.cpu: lambda x, *args, **kwargs: self._move(x, CPU),
            tensor.cuda: lambda x, device="cuda", *args, **kwargs: self._move(x, gpu.canonical(device)),
            tensor.numpy: self._numpy,
            tensor.__array__: lambda x, *args, **kwargs: self._host(x).__array__(*args, **kwargs),
            tensor.tolist: self._tolist,
            tensor.new_tensor: self._new_tensor,
            torch.tensor: self._tensor,
        }

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in self.special:
            return self.special[func](*args, **kwargs)
        given = list(tensors_in((args, kwargs)))
        devices = {self.gpu.device_of(tensor) for tensor in given} - {CPU}
        if kwargs.get("device") is not None:
            return self._create(func, args, kwargs)
        before = {id(tensor) for tensor in given}
        results = func(*args, **kwargs)
        if devices:  # some, such as deepcopy, make new storages without any operation
            new = [result for result in tensors_in(results) if id(result) not in before]
            self.gpu.mark([x for x in new if self.gpu.device_of(x) == CPU], next(iter(devices)))
        return results

    def _create(self, func: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Create a tensor on the device that the call names."""
        device = self.gpu.canonical(kwargs["device"])
        if device != CPU and kwargs.get("generator") is not None:
            raise RuntimeError(f"expected a '{device}' generator, found one of the CPU")
        with self.operations.paused():
            results = func(*args, **{**kwargs, "device": "cpu"})
        if device != CPU:
            self.gpu.mark(results, device)
            self.gpu.count("launches")
        return results

    def _to(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        copies = kwargs.pop("copy", False)
        device, dtype, _, memory_format = torch._C._nn._parse_to(*args, **kwargs)
        if isinstance(next(iter(args), kwargs.get("other")), Tensor):
            device = self.gpu.device_of(args[0] if args else kwargs["other"])
        options = {} if memory_format is None else {"memory_format": memory_format}
        if device is not None and self.gpu.canonical(device) != self.gpu.device_of(x):
            x, copies = self._move(x, self.gpu.canonical(device)), False
        return x.to(dtype=x.dtype if dtype is None else dtype, copy=copies, **options)

    def _move(self, x: Tensor, device: torch.device) -> Tensor:
        here = self.gpu.device_of(x)
        if here == device:
            return x
        with self.operations.paused():
            copy = x.clone()
        self.operations.copied(here, device)
        if device != CPU:
            self.gpu.mark(copy, device)
        return copy

    def _numpy(self, x: Tensor, *, force: bool = False) -> Any:
        return (self._move(x, CPU) if force else self._host(x)).numpy(force=force)

    def _host(self, x: Tensor) -> Tensor:
        """Return the tensor if numpy can access it; otherwise raise the error of CUDA."""
        device = self.gpu.device_of(x)
        if device != CPU:
            raise TypeError(f"can't convert {device} device type tensor to numpy")
        return x

    def _tolist(self, x: Tensor) -> Any:
        device = self.gpu.device_of(x)
        if device != CPU:
            self.operations.copied(device, CPU)
        with self.operations.paused():
            return x.tolist()

    def _tensor(self, data: Any, **options: Any) -> Tensor:
        """Create a tensor from data of the host and copy it to a device."""
        device = self.gpu.canonical(options.pop("device", None) or CPU)
        with self.operations.paused():
            made = torch.tensor(data, **options)
        return self._move(made, device)

    def _new_tensor(self, x: Tensor, data: Any, **options: Any) -> Tensor:
        return self._tensor(data, **{"dtype": x.dtype, "device": self.gpu.device_of(x), **options})


class Operations(TorchDispatchMode):
    """Tracks devices through operations, rejects what CUDA rejects, and counts."""

    def __init__(self, gpu: SimulatedGpu) -> None:
        super().__init__()
        self.gpu = gpu
        self.is_paused = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Suspend counting and tracking."""
        before, self.is_paused = self.is_paused, True
        try:
            yield
        finally:
            self.is_paused = before

    def copied(self, source: torch.device, target: torch.device) -> None:
        """Count a copy. A copy to the host is also a synchronisation."""
        if target == CPU:
            self.gpu.count("to_host")
            self.gpu.count("synchronisations")
        elif source == CPU:
            self.gpu.count("to_device")

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.is_paused:
            return func(*args, **kwargs)
        name = func.overloadpacket.__name__
        device = self._device(name, args, kwargs)
        results = func(*args, **kwargs)
        if device == CPU:
            return results
        if name == "copy_":
            source = self.gpu.device_of(args[1])
            if source != device or self.gpu.device_of(args[0]) != device:
                self.copied(source, self.gpu.device_of(args[0]))
                return results
        given = {x.untyped_storage()._cdata for x in tensors_in((args, kwargs))}
        self.gpu.mark([x for x in tensors_in(results) if x.untyped_storage()._cdata not in given], device)
        if name in WAITS or (name in INDEXING and self._has_mask(args[1])):
            self.gpu.count("synchronisations")
        if not (func.is_view or name in NO_KERNEL):
            self.gpu.count("launches")
        return results

    def _device(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> torch.device:
        """Return the device on which an operation runs; raise an error if its tensors are on two."""
        given = list(tensors_in((args, kwargs)))
        devices = {self.gpu.device_of(x) for x in given} - {CPU}
        if not devices:
            return CPU
        if name in INDEXING and self.gpu.device_of(args[0]) != CPU:  # indices may be on the CPU
            indices = [x for x in tensors_in(args[1]) if self.gpu.device_of(x) == CPU]
            self.gpu.count("to_device", len(indices))
            given = [args[0], *tensors_in(args[2:])]
        on_cpu = [x for x in given if x.dim() and self.gpu.device_of(x) == CPU]
        if name != "copy_" and (len(devices) > 1 or on_cpu):
            found = sorted({str(self.gpu.device_of(x)) for x in given})
            raise RuntimeError(f"aten.{name} expects all tensors on one device, found {' and '.join(found)}")
        if kwargs.get("generator") is not None or any(isinstance(x, torch.Generator) for x in args):
            raise RuntimeError(f"aten.{name} expects a generator of {devices.pop()}, found one of the CPU")
        return devices.pop()

    def _has_mask(self, indices: Any) -> bool:
        return any(x.dtype in (torch.bool, torch.uint8) for x in tensors_in(indices))


def tensors_in(values: Any) -> Iterator[Tensor]:
    """Yield all tensors in nested lists, tuples and dictionaries."""
    return (leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor))
