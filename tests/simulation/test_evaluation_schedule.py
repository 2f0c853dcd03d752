"""The times and data of evaluations; no model is evaluated twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import orjson
import pytest
import torch

from rdpfl_sim.execution.executor import EvalJob, EvalResult, Executor
from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.simulation.simulation import simulate
from tests.runs import lived
from tests.support import cheap, small_scenario

EVERY_SECOND = {"every": 2}


class Counting:
    """Counts the models that an executor evaluates."""

    def __init__(self, executor: Executor) -> None:
        self.evaluate_there = executor.evaluate
        self.sessions: list[list[EvalJob]] = []

    def __call__(self, eval_jobs: list[EvalJob]) -> list[EvalResult]:
        self.sessions.append(eval_jobs)
        return self.evaluate_there(eval_jobs)


def counted(**changes: Any) -> tuple[Counting, Any]:
    experiment = cheap(small_scenario(**changes))
    executor = experiment.make_executor()
    executor.evaluate = counting = Counting(executor)  # type: ignore[method-assign]
    experiment.make_executor = lambda: executor  # type: ignore[method-assign]
    return counting, lived(experiment)


def evaluations_of(state: Any, client: int) -> list[tuple[int, float, float]]:
    """Return the rounds and the times of both moments of a client's evaluations."""
    rows = [row for row in state.folder.metrics if row["client"] == client]
    times = ("trained_time_s", "updated_time_s")
    return [(row["round"], *(round(row[name], 9) for name in times)) for row in rows]


def test_all_models_of_an_instant_are_tested_together() -> None:
    counting, _ = counted(rounds=4, evaluation=EVERY_SECOND)
    sizes = [len(eval_jobs) for eval_jobs in counting.sessions if eval_jobs]
    assert sizes == [6, 12, 12]  # the initial models, and both moments of rounds 2 and 4


@pytest.mark.parametrize("moment", ["trained", "updated"])
def test_only_the_selected_moment_is_tested_and_recorded(moment: str) -> None:
    counting, state = counted(rounds=4, evaluation={**EVERY_SECOND, "moments": moment})
    assert [len(eval_jobs) for eval_jobs in counting.sessions] == [6, 6, 6]
    _, of_both = counted(rounds=4, evaluation=EVERY_SECOND)
    other = "updated" if moment == "trained" else "trained"
    for row, both in zip(state.folder.metrics, of_both.folder.metrics, strict=True):
        assert row == {**both, **dict.fromkeys(name for name in both if name.startswith(other))}


def test_models_of_both_moments_are_tested_once_without_an_exchange() -> None:
    counting, state = counted(rounds=4, evaluation=EVERY_SECOND, method="local")
    assert [len(eval_jobs) for eval_jobs in counting.sessions] == [6, 6, 6]
    for row in state.folder.metrics:
        assert row["trained_personal_loss"] == row["updated_personal_loss"]


def test_trained_model_of_ditto_is_the_personal_one_which_the_exchange_does_not_change() -> None:
    counting, state = counted(rounds=4, evaluation=EVERY_SECOND, method="ditto")
    assert [len(eval_jobs) for eval_jobs in counting.sessions] == [6, 6, 6]
    for row in state.folder.metrics:
        assert row["trained_personal_loss"] == row["updated_personal_loss"]


def test_direction_method_without_neighbours_influence_ends_a_round_with_the_trained_model() -> None:
    method = {"name": "direct", "lambda": 0.0, "aggregator": "mean"}
    result = simulate(small_scenario(rounds=4, evaluation={"every": 1}, method=method))
    for row in result.metrics:
        assert row["trained_personal_loss"] == pytest.approx(row["updated_personal_loss"], rel=1e-4)


def test_trained_moment_is_the_model_before_the_messages_are_used() -> None:
    """Without messages, D-PSGD keeps its trained model, so both moments are those of local training."""
    silent = {"latency": {"name": "constant", "seconds": 100.0}}
    timing = {"wait": {"name": "deadline", "seconds": 0.1}}
    options: dict[str, Any] = {"rounds": 1, "evaluation": {"every": 1}, "timing": timing}
    alone = simulate(small_scenario(method="dpsgd", network=silent, **options)).metrics
    together = simulate(small_scenario(method="dpsgd", **options)).metrics
    for before, after in zip(alone, together, strict=True):
        assert after["trained_personal_loss"] == before["trained_personal_loss"]
        assert before["trained_personal_loss"] == before["updated_personal_loss"]
        assert (after["updated_personal_loss"] == after["trained_personal_loss"]) is (after["round"] == 0)


def test_last_evaluations_run_together_if_clients_end_at_their_own_times() -> None:
    timing = {"compute": {"name": "uniform", "low_s": 0.5, "high_s": 2.0}, "wait": "none"}
    counting, state = counted(rounds=3, evaluation={"every": 100}, timing=timing)
    assert [len(eval_jobs) for eval_jobs in counting.sessions] == [6, 12]
    last = [row["updated_time_s"] for row in state.folder.metrics if row["round"] == 3]
    assert len(set(last)) == 6
    assert max(last) == state.simulation.kernel.now


def test_every_model_is_tested_once_after_each_round_that_is_due_also_in_asynchronous_runs() -> None:
    timing = {
        "compute": {"name": "uniform", "low_s": 0.5, "high_s": 2.0},
        "wait": "none",
        "staleness": "keep",
    }
    _, state = counted(rounds=5, evaluation=EVERY_SECOND, timing=timing)
    records = [orjson.loads(line) for line in state.folder.events.getvalue().splitlines()]
    tested = Counter((r["client"], r["round"]) for r in records if r["event"] == "evaluated")
    assert tested == Counter({(client, round_): 1 for client in range(6) for round_ in (0, 2, 4, 5)})
    times = [record["time_s"] for record in records]
    assert times == sorted(times)


def test_a_client_that_leaves_is_evaluated_with_its_last_models() -> None:
    faults = [{"name": "leave", "clients": [3], "at_s": 3.5}]
    timing = {"wait": {"name": "deadline", "seconds": 0.5}}
    _, state = counted(rounds=6, evaluation={"every": 5}, faults=faults, timing=timing)
    records = [orjson.loads(line) for line in state.folder.events.getvalue().splitlines()]
    last = [r for r in records if r["event"] == "evaluated" and r["client"] == 3][-1]
    assert last["time_s"] == records[-1]["time_s"]
    assert evaluations_of(state, 3) == [(0, 0.0, 0.0), (3, 3.2, 3.3)]


def crashed_for_good_after_catching_up(state: str) -> Any:
    """Return the run of a client that finished rounds 1 and 2 and crashed again in round 6."""
    faults = [
        {"name": "crash", "clients": [3], "at_s": 2.6, "recover_after_s": 3.0, "state": state},
        {"name": "crash", "clients": [3], "at_s": 5.7},
    ]
    timing = {"wait": {"name": "deadline", "seconds": 0.1}, "compute": {"name": "constant", "seconds": 1.0}}
    _, state = counted(rounds=6, evaluation=EVERY_SECOND, faults=faults, timing=timing)
    records = [orjson.loads(line) for line in state.folder.events.getvalue().splitlines()]
    trained = [r["round"] for r in records if r["event"] == "training_started" and r["client"] == 3]
    assert trained == [1, 2, 3, 6], "it was in round 3 when it crashed, and its neighbours in round 6 later"
    return state


def test_unchanged_model_is_not_evaluated_under_a_skipped_round() -> None:
    state = crashed_for_good_after_catching_up("kept")
    assert evaluations_of(state, 3) == [(0, 0.0, 0.0), (2, 2.1, 2.2)]


def test_initial_model_after_a_catch_up_is_evaluated_under_the_last_finished_round() -> None:
    state = crashed_for_good_after_catching_up("fresh")
    assert evaluations_of(state, 3) == [(0, 0.0, 0.0), (2, 2.1, 2.2), (2, 5.6, 5.6)]
    first, _, last = (row for row in state.folder.metrics if row["client"] == 3)
    for moment in ("trained", "updated"):
        loss = f"{moment}_personal_loss"
        assert last[loss] == first[loss], "the model with which it began"


def test_model_that_is_trained_when_the_run_ends_is_evaluated_with_the_last_updated_one() -> None:
    timing = {"max_time_s": 3.15}
    latency = {"latency": {"name": "constant", "seconds": 0.2}}
    _, state = counted(rounds=9, evaluation={"every": 100}, timing=timing, network=latency)
    for client in range(6):
        assert evaluations_of(state, client) == [(0, 0.0, 0.0), (2, 2.2, 2.4)]
    _, state = counted(rounds=9, evaluation={"every": 100}, timing={"max_time_s": 3.5}, network=latency)
    for client in range(6):
        assert evaluations_of(state, client) == [(0, 0.0, 0.0), (2, 3.4, 2.4)]


def test_last_round_before_a_catch_up_is_evaluated() -> None:
    faults = [
        {"name": "crash", "clients": [3], "at_s": 1.5, "recover_after_s": 3.0},
        {"name": "crash", "clients": [3], "at_s": 4.7},
    ]
    timing = {"wait": {"name": "deadline", "seconds": 0.1}, "compute": {"name": "constant", "seconds": 1.0}}
    _, state = counted(rounds=6, evaluation=EVERY_SECOND, faults=faults, timing=timing)
    assert evaluations_of(state, 3) == [(0, 0.0, 0.0), (1, 1.0, 1.1)]


@pytest.mark.parametrize(("every", "expected"), [(None, [0, 2, 4, 6, 7]), (4, [0, 4, 7]), (100, [0, 7])])
def test_global_test_set_can_be_used_less_often(every: int | None, expected: list[int]) -> None:
    section = EVERY_SECOND if every is None else {**EVERY_SECOND, "global_every": every}
    result = simulate(cheap(small_scenario(rounds=7, evaluation=section)))
    rows = [row for row in result.metrics if row["client"] == 0]
    assert [row["round"] for row in rows] == [0, 2, 4, 6, 7]
    for moment in ("trained", "updated"):
        tested = [row["round"] for row in rows if row[f"{moment}_global_accuracy"] is not None]
        assert tested == expected


def test_global_test_set_is_a_sample_without_repetition() -> None:
    whole, part = (
        Experiment(small_scenario(evaluation={"global_samples": number})).global_test
        for number in (10**6, 20)
    )
    assert torch.equal(whole.indices, torch.arange(60))
    assert len(part) == 20
    assert len(part.indices.unique()) == 20


def test_a_model_that_all_clients_have_is_tested_once(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = Experiment(small_scenario(execution={"executor": "inline"}))
    calls = Counter[str]()
    module = type(experiment.model)
    original = module.__call__

    def count(self: Any, x: torch.Tensor) -> torch.Tensor:
        calls["images"] += len(x)
        return original(self, x)

    monkeypatch.setattr(module, "__call__", count)
    models = [experiment.initial_state(client).w[0] for client in range(6)]
    jobs = [EvalJob(client, w, is_global=True, is_initial=True) for client, w in enumerate(models)]
    experiment.make_executor().evaluate(jobs)
    assert calls["images"] == 60  # the whole test set, once
