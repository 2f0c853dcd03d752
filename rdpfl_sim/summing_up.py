"""What has come of a run, in one table: summary.json."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch

from rdpfl_sim.maths.types import Payload
from rdpfl_sim.records import summary as summaries
from rdpfl_sim.registry import Component
from rdpfl_sim.sections import AdversarySection

if TYPE_CHECKING:
    from rdpfl_sim.simulation import Simulation


def summary(run: Simulation) -> dict[str, Any]:
    """All of it; the run's last records, with the hashes of its final models, are written on the way."""
    blueprint, scenario = run.blueprint, run.scenario
    mailboxes = [client.life.mailbox for client in run.clients]
    network, telemetry = run.network, run.telemetry.summary()
    messages = summaries.messages(
        network.num_sent,
        network.num_delivered,
        network.num_lost,
        network.num_in_flight,
        sum((mailbox.fates for mailbox in mailboxes), Counter()),
        sum(1 for mailbox in mailboxes for _ in mailbox.leftovers()),
    )
    rounds_done = [client.life.num_rounds for client in run.clients]
    accuracy = summaries.accuracy(row for _, row in sorted(run.scores.latest.items()))
    messages |= {
        "copied": network.num_copied,
        "reordered": network.num_reordered,
        "bytes": round(network.num_bytes),
    }
    telemetry["by_hops"] = summaries.with_accuracy(telemetry["by_hops"], run.scores.latest.values())
    for client in run.clients:
        run.recorder.model(client.id, client.life.learning.w)
    run.recorder.event("run_finished", status=run.status, **messages)
    return {
        "name": scenario.name,
        "status": run.status,
        "seed": scenario.seed,
        "rounds": scenario.rounds,
        "rounds_done": [min(rounds_done), max(rounds_done)],
        "num_clients": scenario.clients.count,
        "byzantine": blueprint.byzantine,
        "method": _described(scenario.method),
        "attack": ", ".join(_attack_described(section) for section in scenario.adversary) or "none",
        "topology": scenario.topology.name,
        "num_parameters": blueprint.model.num_parameters,
        "accuracy": accuracy,
        "messages": messages,
        "neighbourhood": asdict(blueprint.neighbourhoods),
        "telemetry": telemetry,
        **_theory(run),
        "num_faults": run.world.num_changes,
        "simulated_s": run.kernel.now,
        "time_to_accuracy_s": run.scores.time_to_accuracy_s,
        "wall": {
            "seconds": time.monotonic() - run.started_s,
            "device": str(blueprint.device),
            "threads": torch.get_num_threads(),
        },
        "digest": run.recorder.digest.value.hex(),
        "warnings": [*blueprint.warnings, *_warnings(run)],
    }


def _theory(run: Simulation) -> dict[str, Any]:
    theory = run.examination.theory
    if theory is None:
        return {}
    return {"theory": theory.summary({client.id: client.life.num_rounds for client in run.clients})}


def _warnings(run: Simulation) -> list[str]:
    diverged = [c.id for c in run.clients if c.adversary is None and not Payload(c.life.learning.w).is_finite]
    idle = [c.id for c in run.clients if c.adversary is None and c.life.num_rounds == 0]
    return [
        *([f"the models of {len(diverged)} honest clients have diverged"] if diverged else []),
        *([f"{len(idle)} honest clients have not finished a single round"] if idle else []),
    ]


def _attack_described(section: AdversarySection) -> str:
    """An attack in a few words: what is said, when and to whom, as far as it is unusual."""
    parts = (section.attack, section.timing, section.equivocation)
    names = [part.name for part in parts if part.name != "none"]
    return " + ".join(names) or "none"


def _described(method: Component) -> str:
    aggregator = getattr(method, "aggregator", None)
    return method.name if aggregator is None else f"{method.name} ({aggregator.name})"
