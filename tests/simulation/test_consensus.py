"""The average of the honest clients' models: its times, its accuracy, and the distance from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import torch

from rdpfl_sim import Run, simulate
from rdpfl_sim.learning.evaluation import evaluate
from rdpfl_sim.simulation.consensus import ConsensusMonitor
from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.verification.replay import replay
from rdpfl_sim.verification.verify import verify
from tests.runs import Lived, lived
from tests.simulation.test_snapshot import SMALL, assert_same
from tests.support import cheap, small_scenario
from tests.verification.changed_runs import index, read, violated, write

ASYNCHRONOUS = {
    "timing": {
        "wait": "none",
        "staleness": "keep",
        "compute": {"name": "uniform", "low_s": 0.5, "high_s": 2.0},
    }
}


def experiment_with(every: int = 2, **changes: Any) -> Experiment:
    return cheap(small_scenario(**{"evaluation": {"every": every, "consensus": True}, **changes}))


def records_of(run: Lived, event: str) -> list[dict[str, Any]]:
    records = map(orjson.loads, run.folder.events.getvalue().splitlines())
    return [record for record in records if record["event"] == event]


def test_average_is_due_at_the_start_at_multiples_and_at_the_end() -> None:
    run = lived(experiment_with(every=2, rounds=5))
    assert [record["round"] for record in records_of(run, "consensus")] == [0, 2, 4, 5]


def test_average_follows_the_slowest_honest_client() -> None:
    run = lived(experiment_with(every=2, rounds=5, adversary={"ids": [1]}, **ASYNCHRONOUS))
    due = {}
    for record in records_of(run, "evaluated"):
        if record["client"] != 1:
            due[record["round"]] = record["time_s"]  # of the last client
    assert {r["round"]: r["time_s"] for r in records_of(run, "consensus")} == due
    assert due.keys() == {0, 2, 4, 5}


def test_numbers_are_those_of_a_slow_computation(tmp_path: Path) -> None:
    experiment = Experiment(
        small_scenario(
            evaluation={"every": 2, "consensus": True, "moments": "updated"},
            adversary={"ids": [4], "attack": "noise"},
        )
    )
    result = simulate(experiment, tmp_path)
    honest = [w.double().numpy() for client, w in enumerate(result.models.vectors) if client != 4]
    mean = sum(honest) / 5
    distance = np.mean([np.sqrt(((w - mean) ** 2).sum()) for w in honest])
    scores = evaluate(experiment.model, torch.from_numpy(mean).float(), experiment.global_test)
    found = result.summary["consensus"]
    assert found["round"] == 4
    assert found["distance"] == pytest.approx(distance, rel=1e-9)
    assert found["accuracy"] == scores.accuracy
    assert found["loss"] == pytest.approx(scores.loss, rel=1e-5)
    assert result.folder is not None
    assert Run(result.folder).value("consensus.distance") == found["distance"]
    last = Run(result.folder).events("consensus").collect().row(-1, named=True)
    assert {key: last[key] for key in found} == found


def test_equal_starts_have_distance_zero() -> None:
    same, different = (
        records_of(lived(experiment_with(training={"start": start})), "consensus")[0]
        for start in ("same", "different")
    )
    assert same["distance"] == 0 < different["distance"]


def test_hand_computed_distance() -> None:
    monitor = ConsensusMonitor(experiment_with())
    w = torch.zeros(monitor.model.num_parameters)
    for client, value in enumerate((0.0, 3.0, 6.0)):
        monitor.observe(client, 2, torch.cat([torch.tensor([value]), w[1:]]))
    assert monitor.is_due(is_last=False)
    assert monitor.evaluate()["distance"] == pytest.approx((3 + 0 + 3) / 3)
    assert not monitor.is_due(is_last=True)


def test_model_that_has_diverged_gives_no_number() -> None:
    monitor = ConsensusMonitor(experiment_with())
    monitor.observe(0, 0, torch.full((monitor.model.num_parameters,), torch.nan))
    found = monitor.evaluate()
    assert found["accuracy"] == 0
    assert np.isnan(found["distance"])


def test_run_without_the_option_has_no_average(tmp_path: Path) -> None:
    result = simulate(small_scenario(), tmp_path)
    assert "consensus" not in result.summary
    assert result.folder is not None
    assert b"consensus" not in (result.folder / "events.jsonl").read_bytes()


def test_average_of_clients_that_leave_is_evaluated_at_the_end() -> None:
    faults = [{"name": "leave", "clients": [2], "at_s": 2.5}]
    run = lived(experiment_with(rounds=5, faults=faults, **ASYNCHRONOUS))
    rounds = [record["round"] for record in records_of(run, "consensus")]
    assert rounds[-1] < 5, "the client has left"
    assert records_of(run, "consensus")[-1]["time_s"] == run.result.summary["simulated_s"]


@pytest.mark.parametrize("name", SMALL)
def test_average_is_the_same_after_restoring_at_any_event(name: str) -> None:
    experiment = experiment_with(**{**SMALL[name], "rounds": 3})
    once = lived(experiment)
    assert_same(once, lived(experiment, leave_after=lambda event: True))


@pytest.mark.parametrize("name", SMALL)
def test_run_verifies_and_repeats(tmp_path: Path, name: str) -> None:
    scenario = small_scenario(**{**SMALL[name], "evaluation": {"every": 2, "consensus": True}})
    folder = simulate(scenario, tmp_path).folder
    assert folder is not None
    assert [check.as_dict() for check in verify(folder) if check.outcome == "violated"] == []
    assert replay(folder).first is None


def test_verify_reports_an_average_that_is_missing_at_any_time(tmp_path: Path) -> None:
    scenario = small_scenario(rounds=5, evaluation={"every": 2, "consensus": True})
    folder = simulate(scenario, tmp_path).folder
    assert folder is not None
    complete = read(folder)
    for round_ in (0, 2, 4, 5):
        records = complete[:]
        del records[index(records, "consensus", round=round_)]
        write(folder, records)
        assert "evaluations" in violated(folder), round_
