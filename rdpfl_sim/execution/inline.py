"""Run jobs in this process, one at a time."""

from __future__ import annotations

from rdpfl_sim.execution.executor import Executor, executor


@executor
class Inline(Executor):
    """One job at a time, in this process, without startup time or copies."""
