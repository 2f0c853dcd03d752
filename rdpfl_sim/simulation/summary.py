"""What has come of a run, in one table: summary.json."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from rdpfl_sim.methods.payload import Payload
from rdpfl_sim.records import statistics as summaries
from rdpfl_sim.records.evaluation_log import EvaluationLog
from rdpfl_sim.records.summary_file import message_counts
from rdpfl_sim.records.telemetry import Telemetry
from rdpfl_sim.scenario.description import describe_scenario
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.world.adversary.threat_model import Neighbourhoods

if TYPE_CHECKING:
    from rdpfl_sim.simulation.simulation import Simulation

WALL = ("seconds", "device", "trained_on", "threads")
"""What is told of the computation itself; no other run need have the same."""

DIVERGED = "the models of {} honest clients have diverged"


@dataclass(frozen=True)
class Outcome:
    """All that a summary says and a scenario does not; `verify` finds it again in the records."""

    status: str
    byzantine: Sequence[int]
    neighbourhoods: Neighbourhoods
    num_parameters: int
    num_rounds: Sequence[int]
    """Of every client, the rounds that it has finished."""
    messages: dict[str, int]
    telemetry: dict[str, Any]
    scores: EvaluationLog
    theory: dict[str, Any] | None
    num_faults: int
    simulated_s: float
    wall: dict[str, Any]
    digest: str
    warnings: Sequence[str]


def sum_up(run: Simulation) -> dict[str, Any]:
    """The summary of a run; its last records, with the hashes of its final models, are written on the way."""
    experiment, messages = run.experiment, _messages(run)
    for client in run.clients:
        run.recorder.model(client.id, client.state.learning.w[0])
    run.recorder.event("run_finished", status=run.status, **messages)
    theory, num_rounds = run.evaluations.theory, [client.state.num_rounds for client in run.clients]
    diverged = [
        c.id for c in run.clients if c.adversary is None and not Payload(c.state.learning.w[0]).is_finite
    ]
    wall_s, trained_on = time.monotonic() - run.started_s, experiment.trainer.device_kind
    assert run.status is not None
    outcome = Outcome(
        status=run.status,
        byzantine=experiment.byzantine,
        neighbourhoods=experiment.neighbourhoods,
        num_parameters=experiment.model.num_parameters,
        num_rounds=num_rounds,
        messages=messages,
        telemetry=run.telemetry.summary(),
        scores=run.scores,
        theory=None if theory is None else theory.summary(dict(enumerate(num_rounds))),
        num_faults=run.world.num_changes,
        simulated_s=run.kernel.now,
        wall=dict(
            zip(WALL, (wall_s, str(experiment.device), trained_on, torch.get_num_threads()), strict=True)
        ),
        digest=run.recorder.digest.value.hex(),
        warnings=[
            *experiment.warnings,
            *([DIVERGED.format(len(diverged))] if diverged else []),
            *warnings_of_rounds(run.telemetry, num_rounds),
            *run.warnings,
        ],
    )
    return summary(run.scenario, outcome)


def summary(scenario: Scenario, outcome: Outcome) -> dict[str, Any]:
    """The content of summary.json."""
    latest = outcome.scores.latest
    by_hops = summaries.with_accuracy(outcome.telemetry["by_hops"], latest.values())
    return {
        "name": scenario.name,
        "status": outcome.status,
        "seed": scenario.seed,
        "rounds": scenario.rounds,
        "rounds_done": [min(outcome.num_rounds), max(outcome.num_rounds)],
        "num_clients": scenario.clients.count,
        "byzantine": outcome.byzantine,
        **describe_scenario(scenario),
        "num_parameters": outcome.num_parameters,
        "accuracy": summaries.accuracy(row for _, row in sorted(latest.items())),
        "messages": outcome.messages,
        "neighbourhood": asdict(outcome.neighbourhoods),
        "telemetry": {**outcome.telemetry, "by_hops": by_hops},
        **({} if outcome.theory is None else {"theory": outcome.theory}),
        "num_faults": outcome.num_faults,
        "simulated_s": outcome.simulated_s,
        "time_to_accuracy_s": outcome.scores.time_to_accuracy_s,
        "wall": outcome.wall,
        "digest": outcome.digest,
        "warnings": outcome.warnings,
    }


def warnings_of_rounds(telemetry: Telemetry, num_rounds: Sequence[int]) -> list[str]:
    """What a user should know of the rounds that clients have finished, or have not."""
    num_idle = sum(num == 0 for client, num in enumerate(num_rounds) if client not in telemetry.byzantine)
    num_honest, num_trimmed_less = telemetry.rounds["all"].num_rounds, telemetry.num_trimmed_less
    too_few = (
        f"in {num_trimmed_less:,} of {num_honest:,} rounds of honest clients too few messages arrived for "
        "the trimmed mean: it cut fewer than ceil(trim n) of n per side"
    )
    return [
        *([too_few] if num_trimmed_less else []),
        *([f"{num_idle} honest clients have not finished a single round"] if num_idle else []),
    ]


def _messages(run: Simulation) -> dict[str, int]:
    """What became of all messages."""
    mailboxes, network = [client.state.mailbox for client in run.clients], run.network
    return message_counts(
        network.num_sent,
        network.num_delivered,
        network.num_lost,
        network.num_in_flight,
        sum((mailbox.outcomes for mailbox in mailboxes), Counter()),
        sum(1 for mailbox in mailboxes for _ in mailbox.unread()),
    ) | {
        "copied": network.num_copied,
        "reordered": network.num_reordered,
        "bytes": round(network.num_bytes),
    }
