"""Torch settings for reproducible results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

from rdpfl_sim.execution.devices import CPU
from rdpfl_sim.execution.process_settings import ProcessWide

BACKEND_FLAGS = True, False, False, False
"""cuDNN: deterministic, benchmark, allow_tf32. Matrix products on a GPU: allow_tf32."""

DETERMINISTIC_ALGORITHMS = True, True
"""Use deterministic algorithms on a GPU, and warn where none exists."""


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
