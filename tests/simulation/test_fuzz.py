"""Random scenarios finish, their message counts add up, and repeated runs have the same records.

`make fuzz` tries 500 new ones and prints failures as TOML.
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from math import inf
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch
from hypothesis import HealthCheck, assume, given, note, settings

from rdpfl_sim import Scenario, ScenarioError
from rdpfl_sim.errors import Problem
from rdpfl_sim.simulation.simulation import Result, Simulation
from tests.fuzzing import RandomScenario, random_scenarios
from tests.runs import Mail, lived
from tests.support import cheap

NUM_SCENARIOS = 40 if settings().derandomize else 500
NUM_RESUMED = 8


def loaded(path: Path) -> tuple[Any, list[Problem]]:
    """Return the built scenario, or its problems."""
    try:
        return cheap(Scenario.load(path)), []
    except ScenarioError as error:
        return None, error.problems


def check_accounts(account: dict[str, int], records: list[dict[str, Any]], scenario: Scenario) -> None:
    assert account["sent"] == account["delivered"] + account["lost"] + account["in_flight"]
    outcomes = ("used", "stale", "duplicate", "rejected")
    assert account["delivered"] == sum(account[outcome] for outcome in outcomes) + account["left_over"]
    if scenario.output.events and scenario.output.message_events == 1:
        counts = Counter(record["event"] for record in records)
        assert counts["message_sent"] + counts["message_copied"] == account["sent"]
        for outcome in ("lost", "delivered", *outcomes):
            assert counts[f"message_{outcome}"] == account[outcome], outcome


def check_records(records: list[dict[str, Any]], scenario: Scenario) -> None:
    times = [record["time_s"] for record in records]
    assert times == sorted(times), "time goes backwards"
    for event in ("round_finished", "estimate"):
        for client in range(scenario.clients.count):
            found = [r["round"] for r in records if r["event"] == event and r["client"] == client]
            assert found == sorted(set(found)), f"client {client} has two records {event} of a round"
            assert all(1 <= round_ <= scenario.rounds for round_ in found)
    method: Any = scenario.method
    if method.name == "rdpfl":
        limit = method.max_norm * (1 + 1e-5)
        assert all(r["d_norm"] <= limit for r in records if r["event"] == "estimate"), "Lemma 3 is violated"


def check_messages(records: list[dict[str, Any]]) -> None:
    """Check that each recorded message is sent, delivered and used at most once, in this order."""
    stages: dict[int, str] = {}
    before = {"message_delivered": ("message_sent", "message_copied"), "message_used": ("message_delivered",)}
    for record in records:
        if record["event"] in ("message_sent", "message_copied", *before):
            number, stage = record["message"], record["event"]
            assert stages.get(number) in before.get(stage, (None,)), f"message {number} is out of order"
            stages[number] = stage


def check_stopped_clients(records: list[dict[str, Any]]) -> None:
    """Check that crashed and absent clients neither act nor receive messages."""
    causes: Counter[int] = Counter()
    for record in records:
        if record["event"] == "fault":
            stops = record["kind"] in ("crash", "absence", "leave")
            down = (1 if record["phase"] == "start" else -1) if stops else 0
            causes.update(dict.fromkeys(record.get("clients", ()), down))
        elif record["event"] in ("training_started", "training_finished", "round_finished"):
            assert not causes[record["client"]], f"client {record['client']} is down"
        elif record["event"] in ("message_sent", "message_delivered"):
            client = record["sender" if record["event"] == "message_sent" else "recipient"]
            assert not causes[client], f"client {client} is down"


def check_end(simulation: Simulation, result: Result) -> None:
    status, scenario = result.summary["status"], simulation.scenario
    if status == "finished" and not scenario.faults:
        assert result.summary["rounds_done"] == [scenario.rounds] * 2
    if status == "out of time":
        assert result.summary["simulated_s"] == scenario.timing.max_time_s
        assert simulation.kernel.peek() < inf, "deadlock: the event queue is empty"
    for client in simulation.clients:
        for queue in client.mailbox.queues.values():
            assert len(queue.unread) <= scenario.timing.mailbox_per_sender


def check_models(simulation: Simulation, result: Result, mail: Mail) -> None:
    """Check that honest models are finite if no step can exceed the range of float32.

    The entries of an honest direction are at most 2: 1, and as much for rounding. The contribution of
    neighbours is bounded by Lemma 3 in R-DPFL, and by the received messages in the undefended method. The
    methods that exchange models stay between received models, which are finite.
    """
    scenario, experiment = simulation.scenario, simulation.experiment
    method: Any = scenario.method
    num_steps = max(experiment.settings.num_steps(len(shard)) for shard in experiment.train_shards)
    gamma, added = scenario.training.learning_rate * num_steps, 0.0
    if method.name in ("rdpfl", "direct"):
        gamma = method.step if method.step != "local" else method.coefficient * gamma
        arrives = inf if experiment.deployment.byzantine or mail else 2.0
        added = method.lambda_ * (method.max_norm if method.name == "rdpfl" else arrives)
    elif gamma > 1e30:  # less is lost in the rounding of the largest number
        return
    honest = [
        w for client, w in enumerate(result.models.vectors) if client not in experiment.deployment.byzantine
    ]
    num_diverged = sum(not torch.isfinite(w).all() for w in honest)
    if scenario.rounds * gamma * (2.0 + added) < 1e37:
        assert num_diverged == 0, "an honest model has diverged"
    warned = f"honest clients whose models have diverged: {num_diverged}" in result.summary["warnings"]
    assert warned == (num_diverged > 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@pytest.mark.slow
@settings(max_examples=NUM_SCENARIOS, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=random_scenarios())
def test_any_scenario_finishes_and_has_the_same_records_when_resumed(
    folder: Path, drawn: RandomScenario
) -> None:
    files = {**drawn.files, "fuzz.toml": tomli_w.dumps(drawn.scenario)}
    for name, text in files.items():
        (folder / name).write_text(text)
        note(f"--- {name}\n{text}")
    experiment, problems = loaded(folder / "fuzz.toml")
    assert all(problem.path and problem.message for problem in problems)
    assume(experiment is not None)
    scenario = experiment.scenario
    note(f"--- odd messages\n{drawn.odd_messages}")
    once = lived(experiment, mail=drawn.odd_messages)
    simulation, result = once.simulation, once.result
    records = [json.loads(line) for line in once.folder.events.getvalue().splitlines()]
    check_accounts(result.summary["messages"], records, scenario)
    check_records(records, scenario)
    check_messages(records)
    check_stopped_clients(records)
    check_end(simulation, result)
    check_models(simulation, result, drawn.odd_messages)
    resolved = tomllib.loads(tomli_w.dumps(scenario.to_dict()))
    pause = 1 + once.num_events // NUM_RESUMED
    again = lived(cheap(Scenario.from_dict(resolved)), lambda event: event % pause == 0, drawn.odd_messages)
    assert again.traces == once.traces, "the same scenario gives another run if it is left and resumed"
