"""Schedules, momentum over rounds, clipping, bfloat16 and dropout in whole runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rdpfl_sim import Scenario, ScenarioError, resume, simulate
from rdpfl_sim.execution import arithmetic
from rdpfl_sim.execution.arithmetic import VARIABLES
from rdpfl_sim.plugins import model
from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.simulation.simulation import Simulation
from tests.registries import temporary_components
from tests.runs import interrupt, left, lived
from tests.simulation.test_snapshot import assert_same
from tests.support import small_scenario

ROUNDS, CLIENTS, ETA, MOMENTUM, DECAY, CLIP, LAMBDA, MU = 6, 4, 0.5, 0.8, 0.01, 0.3, 0.7, 0.4


def synchronous(method: dict[str, Any]) -> Scenario:
    """Return a scenario without latency, in which the rate is halved from the fourth round on."""
    return small_scenario(
        rounds=ROUNDS,
        clients={"count": CLIENTS},
        topology="complete",
        method=method,
        network={"latency": {"name": "constant", "seconds": 0.0}},
        training={
            "batch_size": 16,
            "learning_rate": ETA,
            "momentum": MOMENTUM,
            "momentum_over_rounds": True,
            "weight_decay": DECAY,
            "clip_gradient": CLIP,
            "schedule": {"name": "step", "every": 3, "factor": 0.5},
        },
        evaluation={"every": 100, "moments": "updated"},
    )


class Learner:
    """A linear model with an own optimiser of torch, which keeps its velocity."""

    def __init__(self, sim: Experiment, client: int) -> None:
        self.sim, self.client, self.shard = sim, client, sim.train_shards[client]
        self.layer = nn.Linear(8, 3)
        self.optimiser = torch.optim.SGD(
            self.layer.parameters(), lr=ETA, momentum=MOMENTUM, weight_decay=DECAY
        )
        self.w = sim.initial_model(client)

    @property
    def w(self) -> Tensor:
        return nn.utils.parameters_to_vector(self.layer.parameters()).detach()

    @w.setter
    def w(self, value: Tensor) -> None:
        with torch.no_grad():  # `vector_to_parameters` would keep views of the value
            self.layer.weight.copy_(value[:24].view(3, 8))
            self.layer.bias.copy_(value[24:])

    def train(self, t: int, centre: Tensor | None = None) -> int:
        """Train in round t, and return the number of steps."""
        self.optimiser.param_groups[0]["lr"] = ETA if t <= 3 else ETA / 2
        generator = torch.Generator().manual_seed(self.sim.streams.key("training", self.client, t))
        batches = torch.randperm(len(self.shard), generator=generator).split(16)
        for positions in batches:
            x, y = self.shard.take(positions)
            self.optimiser.zero_grad()
            torch.autograd.backward(cross_entropy(self.layer(x), y))
            nn.utils.clip_grad_norm_(self.layer.parameters(), CLIP)
            if centre is not None:
                offset = MU * (self.w - centre)
                self.layer.weight.grad += offset[:24].view(3, 8)
                self.layer.bias.grad += offset[24:]
            self.optimiser.step()
        return len(batches)


def direct(sim: Experiment) -> list[Tensor]:
    learners = [Learner(sim, i) for i in range(CLIENTS)]
    for t in range(1, ROUNDS + 1):
        before = [each.w for each in learners]
        lengths = [(ETA if t <= 3 else ETA / 2) * each.train(t) for each in learners]
        u = [(w - each.w) / length for w, each, length in zip(before, learners, lengths, strict=True)]
        for i, each in enumerate(learners):
            d_bar = torch.stack([u[j] for j in range(CLIENTS) if j != i]).mean(dim=0)
            each.w = before[i] - lengths[i] * (u[i] + LAMBDA * d_bar)
    return [each.w for each in learners]


def ditto(sim: Experiment) -> list[Tensor]:
    shared, personal = ([Learner(sim, i) for i in range(CLIENTS)] for _ in range(2))
    for t in range(1, ROUNDS + 1):
        for x, v in zip(shared, personal, strict=True):
            v.train(t, centre=x.w)
            x.train(t)
        mean = torch.stack([x.w for x in shared]).mean(dim=0)  # Metropolis weights on a complete graph
        for x in shared:
            x.w = mean
    return [v.w for v in personal]


@pytest.mark.parametrize(
    ("method", "loop"),
    [
        ({"name": "direct", "lambda": LAMBDA, "aggregator": "mean"}, direct),
        ({"name": "ditto", "mu": MU}, ditto),
    ],
)
def test_training_of_all_rounds_equals_one_optimiser_of_torch_per_model(
    method: dict[str, Any], loop: Any
) -> None:
    experiment = Experiment(synchronous(method))
    for w, expected in zip(simulate(experiment).models.vectors, loop(experiment), strict=True):
        torch.testing.assert_close(w, expected, rtol=1e-4, atol=1e-5)
        assert not torch.allclose(w, experiment.initial_model(0), atol=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["rdpfl", "ditto", "dispfl"])
def test_velocity_is_part_of_a_checkpoint(method: str) -> None:
    training = {"momentum": 0.9, "momentum_over_rounds": True, "schedule": "cosine", "clip_gradient": 0.5}
    faults = [{"name": "crash", "clients": [1, 2], "at_s": 3.0, "recover_after_s": 1.5, "state": "fresh"}]
    timing = {"compute": "uniform", "wait": {"name": "all", "timeout_s": 1.5}}
    experiment = Experiment(
        small_scenario(method=method, rounds=6, training=training, faults=faults, timing=timing)
    )
    assert_same(lived(experiment), lived(experiment, leave_after=lambda event: event % 7 == 0))


def test_velocity_survives_a_crash_but_not_a_fresh_start() -> None:
    experiment = Experiment(synchronous({"name": "dpsgd"}))
    simulation = Simulation(experiment, None, None)
    simulation.begin()
    client = simulation.clients[0]
    while client.state.num_rounds < 2:
        simulation.kernel.step()
    velocity = client.state.job.updated.velocity
    assert velocity is not None
    assert velocity.shape == (1, 1, 27)
    assert velocity.norm() > 0
    client.stop()
    assert torch.equal(client.state.job.updated.velocity, velocity)
    client.start_afresh(experiment.initial_state(0))
    assert client.state.job.updated.velocity is None


def problems(**training: Any) -> list[str]:
    method, theory = training.pop("method", "rdpfl"), training.pop("theory", False)
    try:
        small_scenario(method=method, training=training, evaluation={"theory": theory})
    except ScenarioError as error:
        return [str(problem) for problem in error.problems]
    return []


def test_momentum_that_cannot_continue_is_rejected() -> None:
    assert problems(momentum_over_rounds=True) == [
        "training.momentum_over_rounds: has no effect without training.momentum (given: True)"
    ]
    assert problems(momentum_over_rounds=True, momentum=0.5, method="dfedavgm") == [
        "training.momentum_over_rounds: the momentum of 'dfedavgm' starts at zero in every round "
        "(method.theta) (given: True)"
    ]
    assert problems(momentum_over_rounds=True, momentum=0.5, method="ditto") == []


def test_theory_requires_a_constant_learning_rate_and_plain_gradients() -> None:
    assert problems(theory=True, precision="bfloat16", schedule="constant") == []
    assert problems(theory=True, schedule="cosine") == [
        "training.schedule: evaluation.theory requires a constant learning rate without warm-up "
        "(given: 'cosine')"
    ]
    assert len(problems(theory=True, schedule={"name": "constant", "warmup": 2})) == 1
    assert len(problems(theory=True, momentum=0.5, clip_gradient=1.0)) == 2


def test_schedule_without_effect_causes_a_warning() -> None:
    def warnings(**schedule: Any) -> list[str]:
        return Experiment(small_scenario(rounds=4, training={"schedule": schedule})).warnings

    assert "training.schedule = 'step' has no effect: rounds = 4" in warnings(name="step", every=4)
    assert "training.schedule.warmup = 5 never ends: rounds = 4" in warnings(name="cosine", warmup=5)
    for schedule in ({"name": "step", "every": 3}, {"name": "cosine"}, {"name": "constant", "warmup": 4}):
        assert not any("schedule" in warning for warning in warnings(**schedule))


BFLOAT16 = """
import json, sys
from pathlib import Path
from rdpfl_sim import resume, simulate
from tests.runs import interrupt, left
from tests.support import small_scenario
images = {"name": "synthetic", "shape": [3, 8, 8], "num_classes": 3, "num_train": 200, "num_test": 40}
model = {"name": "cnn", "width": 4, "hidden": 8}
def on(executor, precision="bfloat16"):
    return small_scenario(data=images, model=model, training={"precision": precision, "batch_size": 16},
        rounds=3, checkpoint={"every_rounds": 1},
        execution={"executor": executor, "arithmetic": "native" if precision == "float32" else "portable"})
results = [simulate(on(each)) for each in ("inline", "inline", {"name": "threads", "workers": 2}, "stacked")]
results.append(resume(left(on("inline"), Path(sys.argv[1]), 13, interrupt)))
results.append(simulate(on("inline", "float32")))
provenance = json.loads((results[4].folder / "provenance.json").read_text())
print(json.dumps({
    "digests": [result.summary["digest"] for result in results],
    "warnings": results[0].summary["warnings"],
    "dtypes": [str(w.dtype) for w in results[0].models.vectors],
    "session": provenance["sessions"][0],
}))
"""


@pytest.mark.slow
def test_bfloat16_is_native_and_has_one_digest_in_all_executors_and_after_resuming(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key not in VARIABLES}
    command = [sys.executable, "-c", BFLOAT16, str(tmp_path)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    *of_bfloat16, float32 = found["digests"]
    assert len(set(of_bfloat16)) == 1
    assert float32 not in of_bfloat16
    assert set(found["dtypes"]) == {"torch.float32"}
    assert found["session"]["arithmetic"] == "native"
    assert any("training.precision is 'bfloat16'" in warning for warning in found["warnings"])


def test_bfloat16_causes_warnings_about_portability_and_missing_instructions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arithmetic, "use", lambda name: None)  # a process cannot change its arithmetic
    scenario = small_scenario(training={"precision": "bfloat16"})
    assert scenario.arithmetic == "native"
    slow = "this processor has no bfloat16 arithmetic"
    for has_bfloat16 in (True, False):
        monkeypatch.setattr(arithmetic, "has_bfloat16", lambda has_bfloat16=has_bfloat16: has_bfloat16)
        experiment = Experiment(scenario)
        assert experiment.arithmetic == "native"
        assert any(warning.startswith(slow) for warning in experiment.warnings) != has_bfloat16
        assert any("training.precision is 'bfloat16'; execution" in w for w in experiment.warnings)


@pytest.mark.slow
def test_run_with_dropout_has_one_digest_in_all_executors_and_after_resuming(tmp_path: Path) -> None:
    with temporary_components():

        @model
        def dropping(shape: list[int], num_classes: int) -> nn.Module:
            return nn.Sequential(nn.Linear(shape[0], 9), nn.Dropout(0.4), nn.Linear(9, num_classes))

        def on(executor: Any) -> Scenario:
            return small_scenario(
                model="dropping", execution={"executor": executor}, checkpoint={"every_rounds": 1}
            )

        results = [simulate(on(each)) for each in ("inline", {"name": "threads", "workers": 2}, "stacked")]
        results.append(resume(left(on("inline"), tmp_path, 13, interrupt)))
        assert len({result.summary["digest"] for result in results}) == 1
        assert any("the model has dropout" in warning for warning in results[2].summary["warnings"])
        experiment = Experiment(on("inline"))
        shard, w = experiment.train_shards[0], experiment.initial_model(0)
        again = [experiment.model(shard.x).detach() for _ in range(2)]
        assert torch.equal(*again)
        jobs = [experiment.training_data.batch(experiment.model, 0, 1).gradient(w) for _ in range(2)]
        assert torch.equal(*jobs)
