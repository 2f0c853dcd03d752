"""Write checkpoints so that an interrupted run can be resumed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rdpfl_sim.records.checkpoint_file import Checkpoints
from rdpfl_sim.records.run_folder import CHECKPOINTS, RunFolder
from rdpfl_sim.records.state_codec import CodecError
from rdpfl_sim.scenario.sections import CheckpointSection
from rdpfl_sim.simulation.provenance import environment
from rdpfl_sim.simulation.snapshot import take_snapshot

if TYPE_CHECKING:
    from rdpfl_sim.simulation.simulation import Simulation

MIN_PAUSE_FACTOR = 50
"""Minimum time between two timed checkpoints, as a multiple of the time to write a checkpoint."""

log = logging.getLogger(__name__)


class CheckpointWriter:
    """Writes checkpoints into the run folder at intervals of rounds or minutes."""

    def __init__(
        self,
        section: CheckpointSection,
        num_clients: int,
        files: RunFolder,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.files = files
        self.checkpoints = Checkpoints(files.path / CHECKPOINTS)
        self.every_trained = None if section.every_rounds is None else section.every_rounds * num_clients
        self.every_s = 60.0 * section.every_minutes
        self.clock = clock
        self.due_s = clock() + self.every_s

    def is_due(self, num_trained: int) -> bool:
        """Return whether a checkpoint is due. `num_trained` counts the local training of all clients."""
        by_rounds = self.every_trained is not None and num_trained % self.every_trained == 0
        return by_rounds or self.clock() >= self.due_s

    def save(self, simulation: Simulation) -> None:
        """Write a checkpoint. If it cannot be written, log a warning and continue the run."""
        started_s = self.clock()
        try:
            state, tensors = take_snapshot(simulation)
            about = {
                "environment": environment(simulation.executor.device_kind, simulation.experiment.arithmetic),
                "scenario": self.files.scenario,
                "records": self.files.sync(),
            }
            self.checkpoints.save({"about": about, "run": state}, tensors)
        except (OSError, CodecError) as error:
            log.warning("cannot write a checkpoint; the run continues without it: %s", error)
        self.due_s = self.clock() + max(self.every_s, MIN_PAUSE_FACTOR * (self.clock() - started_s))

    def clear(self) -> None:
        """Remove all checkpoints of a complete run."""
        self.checkpoints.clear()
