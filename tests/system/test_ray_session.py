"""Connections that cannot be made. (Real clusters are in the tests of executors and sweeps.)"""

from __future__ import annotations

import pytest

from rdpfl_sim.errors import RunError
from rdpfl_sim.methods.exchange import Work
from rdpfl_sim.simulation.experiment import Experiment
from tests.support import small_scenario

pytest.importorskip("ray")


def test_executor_without_a_cluster_at_its_address_ends_the_run_with_a_reason() -> None:
    there = {"executor": {"name": "ray", "address": "127.0.0.1:1"}}
    trainer = Experiment(small_scenario(execution=there)).trainer
    with pytest.raises(RunError, match="no Ray cluster can be used"):
        trainer.submit(0, 1, Work(trainer.model.initial(1)))
