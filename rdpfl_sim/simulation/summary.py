"""The summary of a run: the content of summary.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rdpfl_sim.files import JsonObject
from rdpfl_sim.records import metrics
from rdpfl_sim.records.schema import SCHEMA
from rdpfl_sim.scenario.component_list import describe_scenario
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.simulation.evaluation import EvaluationLog
from rdpfl_sim.simulation.telemetry import Telemetry
from rdpfl_sim.world.adversary.threat_model import Neighbourhoods
from rdpfl_sim.world.mailbox import MAILBOX_FULL, TOO_OLD

WALL = ("seconds", "device", "trained_on", "threads")
"""Keys whose values describe the computation and may differ between runs with the same digest."""

DIVERGED = "honest clients whose models have diverged: {}"

MAX_DISCARDED = 0.2
"""The fraction of discarded messages between honest clients above which a run has a warning."""

DISCARDED = (
    "more than a fifth of the messages that honest clients delivered to honest clients were discarded: "
)
"""The beginning of this warning."""


@dataclass(frozen=True)
class RunOutcome:
    """The values of a summary that are not in the scenario. `verify` recomputes them from the records."""

    status: str
    byzantine: Sequence[int]
    neighbourhoods: Neighbourhoods
    num_parameters: int
    num_rounds: Sequence[int]
    """The number of finished rounds per client."""
    messages: dict[str, int]
    telemetry: JsonObject
    scores: EvaluationLog
    theory: JsonObject | None
    num_faults: int
    simulated_s: float
    wall: JsonObject
    digest: str
    warnings: Sequence[str]


def summarise_run(scenario: Scenario, outcome: RunOutcome) -> JsonObject:
    """Return the content of summary.json."""
    latest = outcome.scores.latest
    by_hops = metrics.with_accuracy(outcome.telemetry["by_hops"], latest.values())
    return {
        "schema": SCHEMA,
        "name": scenario.name,
        "status": outcome.status,
        "seed": scenario.seed,
        "rounds": scenario.rounds,
        "rounds_done": [min(outcome.num_rounds), max(outcome.num_rounds)],
        "num_clients": scenario.clients.count,
        "byzantine": outcome.byzantine,
        **describe_scenario(scenario),
        "num_parameters": outcome.num_parameters,
        "accuracy": metrics.accuracy(row for _, row in sorted(latest.items())),
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
