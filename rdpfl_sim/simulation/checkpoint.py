"""When a run is written down, so that it can be taken up again after whatever happens to it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rdpfl_sim.records.checkpoint_file import Checkpoints
from rdpfl_sim.records.run_folder import CHECKPOINTS, RunFolder
from rdpfl_sim.records.state_codec import CodecError
from rdpfl_sim.scenario.sections import CheckpointSection
from rdpfl_sim.simulation import snapshot
from rdpfl_sim.simulation.provenance import environment

if TYPE_CHECKING:
    from rdpfl_sim.simulation.simulation import Simulation

PAUSE = 50
"""However often checkpoints are wanted by the clock, the time between two is so many times that for one."""

log = logging.getLogger(__name__)


class Checkpointer:
    """Writes checkpoints of a run into its folder, after so many rounds or minutes."""

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
        """Whether to write one now that clients have trained so often, all together."""
        by_rounds = self.every_trained is not None and num_trained % self.every_trained == 0
        return by_rounds or self.clock() >= self.due_s

    def save(self, simulation: Simulation) -> None:
        """Write one; if that is not possible, the run goes on without it."""
        began_s = self.clock()
        try:
            state, tensors = snapshot.take(simulation)
            about = {
                "environment": environment(simulation.experiment.trainer.device_kind),
                "scenario": self.files.scenario,
                "records": self.files.sync(),
            }
            self.checkpoints.save({"about": about, "run": state}, tensors)
        except (OSError, CodecError) as error:
            log.warning("no checkpoint could be written, but the run goes on: %s", error)
        self.due_s = self.clock() + max(self.every_s, PAUSE * (self.clock() - began_s))

    def clear(self) -> None:
        """Remove all checkpoints of a run that is complete."""
        self.checkpoints.clear()
