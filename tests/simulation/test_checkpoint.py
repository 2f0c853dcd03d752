from pathlib import Path

import pytest

from rdpfl_sim import Scenario, simulate
from rdpfl_sim.scenario.sections import CheckpointSection
from rdpfl_sim.simulation.checkpoint import MIN_PAUSE_FACTOR, CheckpointWriter
from rdpfl_sim.simulation.run_folder import RunFolder
from rdpfl_sim.simulation.simulation import Simulation
from tests.support import cheap, small_scenario


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.step_s = 0.0

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


@pytest.fixture
def files(tmp_path: Path):
    folder = RunFolder.create(tmp_path, "demo")
    yield folder
    folder.close()


def checkpoint_writer(files: RunFolder, clock: Clock, **section: float) -> CheckpointWriter:
    return CheckpointWriter(CheckpointSection(**section), num_clients=4, files=files, clock=clock)


def test_checkpoint_is_due_after_rounds_of_all_clients(files: RunFolder) -> None:
    due = checkpoint_writer(files, Clock(), every_rounds=3)
    assert [trained for trained in range(1, 40) if due.is_due(trained)] == [12, 24, 36]


def test_checkpoint_is_due_after_minutes_for_any_number_of_trainings(files: RunFolder) -> None:
    clock = Clock()
    due = checkpoint_writer(files, clock, every_minutes=2.0)
    clock.now_s = 119.0
    assert not due.is_due(12)
    clock.now_s = 120.0
    assert due.is_due(13)


def test_checkpoints_that_take_long_become_rarer(files: RunFolder) -> None:
    clock = Clock()
    simulation = Simulation(cheap(small_scenario()), files, None)
    simulation.begin()
    due = checkpoint_writer(files, clock, every_minutes=1.0)
    due.save(simulation)
    assert due.due_s == 60.0
    clock.step_s = 30.0
    due.save(simulation)
    assert due.due_s >= 30.0 * MIN_PAUSE_FACTOR


@pytest.mark.slow
def test_digest_does_not_depend_on_the_schedule_of_checkpoints(tmp_path: Path) -> None:
    # A checkpoint changes which clients are computed together. With two threads torch divides a single row of
    # more than 32,768 numbers among them, but not several rows.
    def digest(every_rounds: int) -> str:
        scenario = Scenario.load(
            Path(__file__).parents[2] / "scenarios" / "ring_30pct.toml",
            [
                "rounds=6",
                "model={name='mlp', hidden=[512]}",
                "method.warmup=2",
                "evaluation={every=100, global_test=false}",
                "execution={executor='stacked', threads=2}",
                f"checkpoint.every_rounds={every_rounds}",
            ],
        )
        result = simulate(scenario, tmp_path)
        assert result.summary["num_parameters"] > 32_768
        return str(result.summary["digest"])

    assert digest(every_rounds=1) == digest(every_rounds=1000)
