"""The status of a run in summary.json and in the record `run_finished`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from rdpfl_sim.errors import RunError


class RunStatus(StrEnum):
    """The state of a run."""

    FINISHED = "finished"
    """Every client has finished its rounds or has stopped permanently."""
    OUT_OF_TIME = "out of time"
    """The simulated time limit `timing.max_time_s` was reached."""
    INTERRUPTED = "interrupted"
    """A signal stopped the run after a checkpoint was written."""
    FAILED = "failed"
    """An error stopped the run."""
    UNFINISHED = "unfinished"
    """There is no summary: the run is running, or its process was killed. No file contains this value."""

    @property
    def is_complete(self) -> bool:
        """Whether the run has reached its end, so that its results are final."""
        return self in (RunStatus.FINISHED, RunStatus.OUT_OF_TIME)

    @property
    def can_resume(self) -> bool:
        """Whether `rdpfl-sim resume` can continue the run."""
        return not self.is_complete

    @classmethod
    def of_summary(cls, summary: Mapping[str, Any] | None) -> RunStatus:
        """Return the status in a summary, or raise `RunError` if it has none or an unknown one."""
        if summary is None:
            return cls.UNFINISHED
        try:
            return cls(str(summary.get("status")))
        except ValueError as error:
            raise RunError(f"summary.json has no valid status: {error}") from error
