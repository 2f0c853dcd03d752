"""Settings of torch under which the same numbers come out every time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

from rdpfl_sim.execution.devices import CPU
from rdpfl_sim.execution.process_settings import ProcessWide

WITHOUT_SHORTCUTS = True, False, False, False
"""Of cuDNN and of matrix products on a GPU: deterministic, benchmark, and twice allow_tf32."""

DETERMINISTIC = True, True
"""Of all operations on a GPU: choose one that can be repeated, and warn if there is none."""


def set_repeatable(num_threads: int, device: torch.device = CPU) -> None:
    """Compute with so many threads, and on a GPU without shortcuts that differ from run to run.

    How a sum is split among threads decides its last bits, so their number is part of the experiment. It
    concerns the calling thread, and threads that are started later.
    """
    torch.set_num_threads(num_threads)
    _set_shortcuts(WITHOUT_SHORTCUTS)
    if device.type == "cuda":
        _set_algorithms(DETERMINISTIC)


@contextmanager
def deterministic_torch(num_threads: int, device: torch.device = CPU) -> Iterator[None]:
    """The same for a while."""
    threads_before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        with _shortcuts.held(), _algorithms.held() if device.type == "cuda" else nullcontext():
            yield
    finally:
        torch.set_num_threads(threads_before)


def _get_shortcuts() -> tuple[bool, bool, bool, bool]:
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    return cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32


def _set_shortcuts(values: tuple[bool, bool, bool, bool]) -> None:
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = values


def _get_algorithms() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _set_algorithms(values: tuple[bool, bool]) -> None:
    if values == DETERMINISTIC and _get_algorithms() == (True, False):
        return  # the user has asked for errors instead of warnings
    is_on, only_warns = values
    torch.use_deterministic_algorithms(is_on, warn_only=only_warns)


_shortcuts = ProcessWide(WITHOUT_SHORTCUTS, _get_shortcuts, _set_shortcuts)
_algorithms = ProcessWide(DETERMINISTIC, _get_algorithms, _set_algorithms)
