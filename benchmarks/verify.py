"""The time that `rdpfl-sim verify` takes for a million records.

100 clients on a 6-regular graph with late, lost and stale messages; there is no training, but everything is
recorded. Seconds are processor seconds, which depend least on other programs. Memory includes that of torch.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import resource
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from table import Row, show

from rdpfl_sim import Scenario, simulate
from rdpfl_sim.execution.executor import TrainingData, TrainingJob
from rdpfl_sim.learning.models import FlatModel
from rdpfl_sim.methods.base import Trained
from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.verification.verify import verify

SCENARIO = {
    "rounds": 530,
    "clients": {"count": 100},
    "topology": {"name": "k_regular", "k": 6},
    "data": {"name": "synthetic", "shape": [4], "num_train": 2000, "num_test": 500},
    "partition": "iid",
    "model": "softmax",
    "network": {"latency": "exponential", "loss": {"name": "bernoulli", "probability": 0.1}},
    "timing": {"wait": {"name": "deadline", "seconds": 0.2}, "compute": "lognormal", "staleness": "keep"},
    "evaluation": {"every": 100, "global_test": False},
    "output": {"telemetry": False},
    "execution": {"executor": "inline"},
}


class FakeTrainingData(TrainingData):
    """Data on which models are evaluated but not trained."""

    def train(self, model: FlatModel, job: TrainingJob) -> Trained:
        """Return a slightly smaller model."""
        return Trained(job.task.w * 0.999, num_steps=(1,), losses=(0.0,), learning_rates=(job.learning_rate,))


def rows() -> list[Row]:
    """Simulate a run and verify it."""
    experiment = Experiment(Scenario.from_dict(SCENARIO))
    data = FakeTrainingData(**vars(experiment.training_data))
    experiment.computation = replace(experiment.computation, training_data=data)
    with tempfile.TemporaryDirectory() as folder:
        started = time.process_time()
        run = simulate(experiment, folder).folder
        assert run is not None
        made_s = time.process_time() - started
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        started = time.process_time()
        checks = verify(Path(run))
        verified_s = time.process_time() - started
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        size = (Path(run) / "events.jsonl").stat().st_size
    num_records = checks[0].num_items
    assert all(check.outcome == "ok" for check in checks), [c.as_dict() for c in checks if c.outcome != "ok"]
    work = f"verify {num_records:,} records ({size / 1e6:.0f} MB), memory grows by {after - before:.0f} MB"
    million = f"{1e6 * verified_s / num_records:.1f} s per million"
    return [Row(work, f"{verified_s:.1f} s, {million}", f"simulation {made_s:.1f} s", verified_s / made_s)]


if __name__ == "__main__":
    show(rows())
