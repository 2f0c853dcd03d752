"""Failed connections. The tests of executors and sweeps use real clusters."""

from __future__ import annotations

import pytest

from rdpfl_sim.errors import RunError
from rdpfl_sim.simulation.experiment import Experiment
from tests.support import round_job, small_scenario

pytest.importorskip("ray")


def test_unreachable_cluster_ends_the_run_with_a_reason() -> None:
    execution = {"executor": {"name": "ray", "address": "127.0.0.1:1"}}
    experiment = Experiment(small_scenario(execution=execution))
    job = round_job(0, 1, experiment.initial_state(0))
    with pytest.raises(RunError, match="cannot connect to a Ray cluster"):
        experiment.make_executor().submit(job)
