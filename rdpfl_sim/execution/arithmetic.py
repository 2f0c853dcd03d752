"""Settings of torch under which the same numbers come out every time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def set_repeatable(num_threads: int) -> None:
    """Compute with so many threads, and on a GPU without shortcuts that differ from run to run.

    How a sum is split among threads decides its last bits, so their number is part of the experiment.
    """
    torch.set_num_threads(num_threads)
    _set_shortcuts((True, False, False, False))


@contextmanager
def repeatable(num_threads: int) -> Iterator[None]:
    """The same for a while."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    threads_before = torch.get_num_threads()
    before = cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32
    set_repeatable(num_threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads_before)
        _set_shortcuts(before)


def _set_shortcuts(values: tuple[bool, bool, bool, bool]) -> None:
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = values
