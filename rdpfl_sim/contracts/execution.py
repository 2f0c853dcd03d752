"""The contract of executors."""

from __future__ import annotations

from typing import Any

from rdpfl_sim.contracts.contract import Arguments, Contract, describe
from rdpfl_sim.execution.executor import Executor


class ExecutorContract(Contract):
    """An `Executor`, from the model and the training data."""

    def flaw(self, arguments: Arguments, result: Any) -> str | None:
        """Another object."""
        return None if isinstance(result, Executor) else f"returns {describe(result)}, not an Executor"
