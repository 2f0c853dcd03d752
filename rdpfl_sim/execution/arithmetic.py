"""Settings of torch under which the same numbers come out every time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def repeatable(num_threads: int) -> Iterator[None]:
    """Compute with so many threads, and on a GPU without shortcuts that differ from run to run.

    How a sum is split among threads decides its last bits, so their number is part of the experiment.
    """
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    threads_before = torch.get_num_threads()
    before = cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32
    torch.set_num_threads(num_threads)
    cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = True, False, False, False
    try:
        yield
    finally:
        torch.set_num_threads(threads_before)
        cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = before
