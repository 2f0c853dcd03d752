"""Failed connections. The tests of executors and sweeps use real clusters."""

from __future__ import annotations

import pytest

from rdpfl_sim.errors import RunError
from rdpfl_sim.methods.base import TrainingTask
from rdpfl_sim.simulation.experiment import Experiment
from tests.support import small_scenario

pytest.importorskip("ray")


def test_unreachable_cluster_ends_the_run_with_a_reason() -> None:
    execution = {"executor": {"name": "ray", "address": "127.0.0.1:1"}}
    trainer = Experiment(small_scenario(execution=execution)).trainer
    with pytest.raises(RunError, match="cannot connect to a Ray cluster"):
        trainer.submit(0, 1, TrainingTask(trainer.model.initial(1).unsqueeze(0)))
