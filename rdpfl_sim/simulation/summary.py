"""The summary of a run: the content of summary.json."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import torch

from rdpfl_sim.files import JsonObject
from rdpfl_sim.methods.base import is_finite
from rdpfl_sim.records import metrics
from rdpfl_sim.records.schema import SCHEMA
from rdpfl_sim.scenario.component_list import describe_scenario
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.simulation.telemetry import Telemetry
from rdpfl_sim.world.client import Client
from rdpfl_sim.world.mailbox import MAILBOX_FULL, TOO_OLD

if TYPE_CHECKING:
    from rdpfl_sim.simulation.simulation import Simulation

WALL = ("seconds", "device", "trained_on", "threads")
"""Keys whose values describe the computation and may differ between runs with the same digest."""

DIVERGED = "honest clients whose models have diverged: {}"

MAX_DISCARDED = 0.2
"""The fraction of discarded messages between honest clients above which a run has a warning."""

DISCARDED = (
    "more than a fifth of the messages that honest clients delivered to honest clients were discarded: "
)
"""The beginning of this warning."""


def summarise(simulation: Simulation) -> JsonObject:
    """Return the content of summary.json. `verify` recomputes it from the records."""
    scenario, experiment, deployment = (
        simulation.scenario,
        simulation.experiment,
        simulation.experiment.deployment,
    )
    evaluations, telemetry = simulation.evaluations, simulation.telemetry.summary()
    latest, theory, consensus = evaluations.latest, evaluations.theory, evaluations.consensus
    headline, *others = evaluations.moments
    times_s = metrics.times_to_accuracy(
        simulation.evaluated_rows(), evaluations.moments, evaluations.num_honest
    )
    rows = [row for _, row in sorted(latest.items())]
    num_rounds = [client.state.num_rounds for client in simulation.clients]
    return {
        "schema": SCHEMA,
        "name": scenario.name,
        "status": simulation.status,
        "seed": scenario.seed,
        "rounds": scenario.rounds,
        "rounds_done": [min(num_rounds), max(num_rounds)],
        "num_clients": scenario.clients.count,
        "byzantine": deployment.byzantine,
        **describe_scenario(scenario),
        "num_parameters": experiment.model.num_parameters,
        "moment": headline,
        "accuracy": metrics.accuracy(rows, headline),
        "messages": simulation.count_messages(),
        "neighbourhood": asdict(deployment.neighbourhoods),
        "telemetry": {
            **telemetry,
            "by_hops": metrics.with_accuracy(telemetry["by_hops"], latest.values(), headline),
        },
        **({} if theory is None else {"theory": theory.summary(dict(enumerate(num_rounds)))}),
        **({} if consensus is None else {"consensus": consensus.latest}),
        "num_faults": simulation.world.num_changes,
        "simulated_s": simulation.kernel.now,
        "time_to_accuracy_s": times_s[headline],
        **{
            moment: {
                "accuracy": metrics.accuracy(rows, moment),
                "time_to_accuracy_s": times_s[moment],
            }
            for moment in others
        },
        "wall": {
            "seconds": time.monotonic() - simulation.started_s,
            "device": str(experiment.device),
            "trained_on": simulation.executor.device_kind,
            "threads": torch.get_num_threads(),
        },
        "digest": simulation.recorder.digest.value.hex(),
        "warnings": [
            *experiment.warnings,
            *warnings_of_models(simulation.clients),
            *warnings_of_messages(scenario, simulation.telemetry),
            *warnings_of_rounds(simulation.telemetry, num_rounds),
            *simulation.warnings,
        ],
    }


def warnings_of_models(clients: Sequence[Client]) -> list[str]:
    """Return a warning if models of honest clients have diverged."""
    num_diverged = sum(
        client.adversary is None and not is_finite(client.state.learning.w[0]) for client in clients
    )
    return [DIVERGED.format(num_diverged)] if num_diverged else []


def warnings_of_messages(scenario: Scenario, telemetry: Telemetry) -> list[str]:
    """Return a warning if clients discarded many messages of honest clients that they could have used.

    With timing.prefer = "newest", a full mailbox drops only messages that a newer one replaces anyway.
    """
    options = {TOO_OLD: "as too old (timing.staleness)"}
    if scenario.timing.prefer == "round":
        options[MAILBOX_FULL] = "because a mailbox was full (timing.mailbox_per_sender)"
    counts = {text: telemetry.discarded[reason] for reason, text in options.items()}
    if sum(counts.values()) <= MAX_DISCARDED * telemetry.num_delivered:
        return []
    parts = [f"{num:,} of {telemetry.num_delivered:,} {text}" for text, num in counts.items() if num > 0]
    return [DISCARDED + ", ".join(parts)]


def warnings_of_rounds(telemetry: Telemetry, num_rounds: Sequence[int]) -> list[str]:
    """Return warnings about rounds with too few messages and about clients without a finished round."""
    num_idle = sum(num == 0 for client, num in enumerate(num_rounds) if client not in telemetry.byzantine)
    num_honest, num_trimmed_less = telemetry.rounds["all"].num_rounds, telemetry.num_trimmed_less
    too_few = (
        f"in {num_trimmed_less:,} of {num_honest:,} rounds of honest clients, too few messages arrived for "
        "the trimmed mean: it removed fewer than ceil(trim n) of n at each end"
    )
    return [
        *([too_few] if num_trimmed_less else []),
        *([f"honest clients that have not finished a single round: {num_idle}"] if num_idle else []),
    ]
