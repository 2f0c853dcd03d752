"""The choice of the device for training, and its settings for reproducible results."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Generic, Literal, TypeAlias, TypeVar

import torch
from annotated_types import Le
from pydantic import StringConstraints, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError

from rdpfl_sim.components.options import Count, Doc
from rdpfl_sim.errors import OptionError

if TYPE_CHECKING:
    from rdpfl_sim.execution.executor import ExecutorFacts

T = TypeVar("T")


CPU = torch.device("cpu")

SMALL_MODEL = 50_000
"""Number of parameters below which a training step is mostly overhead. On a CPU stacking reduces the overhead
(benchmarks/executors.py); on a GPU launching a kernel would take longer than its arithmetic."""

CUBLAS = "CUBLAS_WORKSPACE_CONFIG"
DETERMINISTIC_CUBLAS = (":4096:8", ":16:8")
"""Values for which cuBLAS documents reproducible results."""

log = logging.getLogger(__name__)


def _validate_device(value: object, validate: ValidatorFunctionWrapHandler) -> str:
    try:
        device: str = validate(value)
    except ValidationError:
        text = "must be 'auto', 'cpu', 'cuda', or 'cuda:1' for the second GPU, 'cuda:2' for the third ..."
        raise PydanticCustomError("device", "{text}", {"text": text}) from None
    return device


DeviceName: TypeAlias = Annotated[
    Literal["auto", "cpu", "cuda"] | Annotated[str, StringConstraints(pattern=r"^cuda:(0|[1-9][0-9]{0,2})$")],
    WrapValidator(_validate_device),
]
"""A device name in a scenario."""


def check(name: DeviceName, executor: ExecutorFacts) -> None:
    """Raise an `OptionError` if the device does not exist or the executor cannot use it."""
    if executor.is_remote:
        if name.startswith("cuda:"):
            raise OptionError("device", "Ray chooses the GPU of each worker; allowed: auto, cpu, cuda")
    elif name.startswith("cuda"):
        available = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
        if not torch.cuda.is_available() or not available:
            raise OptionError("device", "no CUDA device is available; allowed: auto, cpu")
        if name != "cuda" and name not in available:
            raise OptionError("device", f"no such GPU; allowed: auto, cpu, cuda, {', '.join(available)}")


def choose(name: DeviceName, num_parameters: int, executor: ExecutorFacts) -> torch.device:
    """Return the device of this process for a scenario's `execution.device`.

    `auto` selects a GPU for models that are large enough to benefit from one. It selects the CPU for stacked
    clients, because on a GPU the last bits of their results would depend on the other clients of the batch.
    With Ray the device is always the CPU, because workers have their own devices.
    """
    if executor.is_remote or not uses_gpu(name, num_parameters, executor):
        return CPU
    if name == "auto":
        return torch.device("cuda", 0) if torch.cuda.is_available() else CPU
    return torch.device("cuda", 0) if name == "cuda" else torch.device(name)


def uses_gpu(name: DeviceName, num_parameters: int, executor: ExecutorFacts) -> bool:
    """Return whether this model is trained on a GPU if one is available."""
    if name == "auto":
        return num_parameters >= SMALL_MODEL and not executor.is_batched
    return name != "cpu"


def describe(device: torch.device) -> str:
    """Return the name of a device, including the model of a GPU."""
    return str(device) if device.type == "cpu" else f"{device} ({torch.cuda.get_device_name(device)})"


def kind(device: torch.device) -> str:
    """Return the GPU model, on which the last bits of results depend, or `cpu`."""
    return "cpu" if device.type == "cpu" else torch.cuda.get_device_name(device)


def prepare(device: torch.device) -> None:
    """Configure cuBLAS for reproducible results. Call this before CUDA is initialized."""
    if device.type == "cpu":
        return
    value = os.environ.get(CUBLAS)
    if value is None:
        os.environ[CUBLAS] = DETERMINISTIC_CUBLAS[0]
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            log.warning(
                "CUDA was initialized before %s was set, so results may differ between runs; "
                "set it to %s in the environment",
                CUBLAS,
                DETERMINISTIC_CUBLAS[0],
            )
    elif value not in DETERMINISTIC_CUBLAS:
        log.warning(
            "%s is %s: results may differ between runs; for reproducible results, set it to %s",
            CUBLAS,
            value,
            " or ".join(DETERMINISTIC_CUBLAS),
        )


BACKEND_FLAGS = True, False, False, False
"""cuDNN: deterministic, benchmark, allow_tf32. Matrix products on a GPU: allow_tf32."""

DETERMINISTIC_ALGORITHMS = True, True
"""Use deterministic algorithms on a GPU, and warn where none exists."""


class ProcessWide(Generic[T]):
    """A setting that the first concurrent run changes and the last one restores."""

    def __init__(self, value: T, get: Callable[[], T], set_: Callable[[T], None]) -> None:
        self.value = value
        self.get = get
        self.set = set_
        self.num_runs = 0
        self.previous = value
        self.lock = Lock()

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Apply the value inside a context."""
        with self.lock:
            if self.num_runs == 0:
                self.previous = self.get()
                self.set(self.value)
            self.num_runs += 1
        try:
            yield
        finally:
            with self.lock:
                self.num_runs -= 1
                if self.num_runs == 0:
                    self.set(self.previous)


def make_torch_deterministic(num_threads: int, device: torch.device = CPU) -> None:
    """Set the number of torch threads, and disable operations whose results vary between runs.

    The last bits of a sum depend on how it is split among threads, so the number of threads is part of the
    experiment. The setting applies to the calling thread and to threads started later.
    """
    torch.set_num_threads(num_threads)
    _set_backend_flags(BACKEND_FLAGS)
    if device.type == "cuda":
        _set_algorithms(DETERMINISTIC_ALGORITHMS)


@contextmanager
def deterministic_torch(num_threads: int, device: torch.device = CPU) -> Iterator[None]:
    """Apply the settings of `make_torch_deterministic` inside a context, then restore the previous ones."""
    threads_before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        with _backend_flags.applied(), _algorithms.applied() if device.type == "cuda" else nullcontext():
            yield
    finally:
        torch.set_num_threads(threads_before)


def _get_backend_flags() -> tuple[bool, bool, bool, bool]:
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    return cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32


def _set_backend_flags(values: tuple[bool, bool, bool, bool]) -> None:
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = values


def _get_algorithms() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _set_algorithms(values: tuple[bool, bool]) -> None:
    if values == DETERMINISTIC_ALGORITHMS and _get_algorithms() == (True, False):
        return  # the user has chosen errors instead of warnings
    is_enabled, warn_only = values
    torch.use_deterministic_algorithms(is_enabled, warn_only=warn_only)


_backend_flags = ProcessWide(BACKEND_FLAGS, _get_backend_flags, _set_backend_flags)
_algorithms = ProcessWide(DETERMINISTIC_ALGORITHMS, _get_algorithms, _set_algorithms)


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3)."""

MAX_MMAP_THRESHOLD = 32 << 20
"""The largest value that glibc accepts for M_MMAP_THRESHOLD."""

GC_THRESHOLDS = 100_000, 50, 100
"""Thresholds of Python's garbage collector during a run. They make collections rare."""

_thresholds = ProcessWide(GC_THRESHOLDS, gc.get_threshold, lambda thresholds: gc.set_threshold(*thresholds))


def gc_paused() -> AbstractContextManager[None]:
    """Return a context in which Python rarely collects garbage."""
    return _thresholds.applied()


def keep_freed_memory() -> None:
    """Keep freed memory in this process for reuse. This has no effect without glibc."""
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, MAX_MMAP_THRESHOLD)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


MAX_WORKERS = 1024
"""Upper limit of the option. More workers than cores use memory without a speed-up."""

Workers: TypeAlias = Annotated[
    Annotated[Count, Le(MAX_WORKERS)] | None, Doc("clients trained at the same time; default: one per core")
]


def num_cores() -> int:
    """Return the number of cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
