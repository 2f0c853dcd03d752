"""The run itself: it lets a blueprint come to life, evaluates models, and writes down what happened."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from simpy.core import EmptySchedule
from torch import Tensor

from rdpfl_sim.blueprint import Blueprint
from rdpfl_sim.checkpointing import Checkpointer
from rdpfl_sim.errors import OUT_OF_MEMORY, Problem, RunError, ScenarioError, is_out_of_memory
from rdpfl_sim.execution.arithmetic import repeatable
from rdpfl_sim.interruption import on_interrupt
from rdpfl_sim.learning.evaluation import evaluate
from rdpfl_sim.learning.training import Trained
from rdpfl_sim.maths.types import Payload
from rdpfl_sim.methods.base import Home, State
from rdpfl_sim.provenance import provenance
from rdpfl_sim.records import summary as summaries
from rdpfl_sim.records.folder import PROVENANCE, SUMMARY, TOPOLOGY, RunFolder, read_metrics
from rdpfl_sim.records.recorder import Recorder
from rdpfl_sim.records.scoreboard import Scoreboard
from rdpfl_sim.records.telemetry import Telemetry
from rdpfl_sim.registry import Component
from rdpfl_sim.scenario import Scenario
from rdpfl_sim.sections import AdversarySection
from rdpfl_sim.snapshot import Snapshot, restore
from rdpfl_sim.theory import TheoryMonitor
from rdpfl_sim.world.adversary import Adversary
from rdpfl_sim.world.client import Client, Life, Surroundings
from rdpfl_sim.world.kernel import Alarm, Kernel
from rdpfl_sim.world.mailbox import Mailbox
from rdpfl_sim.world.network import Network
from rdpfl_sim.world.world import World


class Progress(Protocol):
    """Somebody who wants to know how far the run is."""

    def update(self, rounds_done: int, time_s: float, accuracy: float | None, messages: int) -> None:
        """A client finished the training of a round; `rounds_done` is the sum over all clients."""


@dataclass(frozen=True)
class Result:
    """What a run gives back: its summary, every evaluation, the final models, and where the files are."""

    summary: dict[str, Any]
    rows: list[dict[str, Any]]
    models: list[Tensor]
    folder: Path | None

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One row per client and evaluation, read from metrics.csv if there is a folder."""
        return self.rows if self.folder is None else read_metrics(self.folder)


def simulate(
    scenario: Scenario | Blueprint, folder: str | Path | None = None, progress: Progress | None = None
) -> Result:
    """Run a scenario until every client has finished; with `folder`, write a run folder into it."""
    blueprint = Blueprint(scenario) if isinstance(scenario, Scenario) else scenario
    files = None if folder is None else _folder(Path(folder), blueprint.scenario.name)
    try:
        with failure_noted(files), repeatable(blueprint.num_threads):
            return Simulation(blueprint, files, progress).run()
    finally:
        if files is not None:
            files.close()


@contextmanager
def failure_noted(files: RunFolder | None) -> Iterator[None]:
    """Say in the run folder that the run has failed, if it does."""
    try:
        yield
    except Exception as error:
        told = _told(error, files)
        if files is not None:
            files.abandon(str(told) if isinstance(told, RunError) else f"{type(told).__name__}: {told}")
        if told is error:
            raise
        raise told from error


class Simulation:
    """One run: the live world and its records."""

    STATE = ("num_trained", "wall_s")

    def __init__(self, blueprint: Blueprint, files: RunFolder | None, progress: Progress | None) -> None:
        scenario = blueprint.scenario
        self.blueprint, self.scenario, self.files, self.progress = blueprint, scenario, files, progress
        self.byzantine = frozenset(blueprint.byzantine)
        self.kernel = Kernel(initial_time=0.0)
        self.time_limit = Alarm(self.kernel, self._run_out_of_time)
        self.telemetry = Telemetry(self.byzantine, blueprint.hops)
        self.recorder = Recorder(
            lambda: self.kernel.now,
            blueprint.streams,
            files.events if files is not None and scenario.output.events else None,
            scenario.output.message_events,
            self.telemetry,
            inspects=scenario.output.telemetry,
        )
        self.network = self._network()
        self.clients: list[Client] = []
        self.adversaries = self._adversaries()
        self.clients += self._clients()
        self.network.receivers = [client.receive for client in self.clients]
        self.world = World(
            self.kernel,
            self.network,
            self.clients,
            self.recorder,
            changes=blueprint.changes(),
            fresh_state=lambda client: self._fresh_state(client, blueprint.initial_model(client)),
            on_gone=self._evaluate_once_more,
            on_end=lambda: self._end("finished"),
        )
        self.metrics: list[dict[str, Any]] = []
        self.scores = Scoreboard(
            self.byzantine,
            len(self.clients) - len(self.byzantine),
            self.metrics.append if files is None else files.write_metrics,
        )
        self.theory = TheoryMonitor(blueprint) if scenario.evaluation.theory else None
        self.checkpointer = (
            None if files is None else Checkpointer(scenario.checkpoint, scenario.clients.count, files)
        )
        self.is_checkpoint_due = False
        self.num_trained = 0
        self.started_s = time.monotonic()
        self.wall_s = 0.0
        """How long the run has taken, with all its parts if it was interrupted."""
        self.status: str | None = None
        """How the run has ended; None while it goes on."""

    def run(self, snapshot: Snapshot | None = None) -> Result:
        """Run to the end, or until interrupted, and write everything down.

        With a snapshot of an earlier run of the same scenario, go on from there.
        """
        with on_interrupt(self._interrupt):
            self.begin(snapshot)
            self._live()
        return self.finish()

    def begin(self, snapshot: Snapshot | None = None) -> None:
        """Prepare the first event, or the first after a snapshot."""
        if self.files is not None:
            about = provenance(self.files.path, self.scenario.hash, self.blueprint.device)
            self.files.write_json(PROVENANCE, about)
        if snapshot is None:
            self._write_beginning()
            for client in self.clients:
                self._evaluate(client, round_=0)
            if self.scenario.timing.max_time_s is not None:
                self.time_limit.set(self.scenario.timing.max_time_s)
            self.world.start()
        else:
            restore(self, snapshot)
            self.started_s -= self.wall_s
        self._show_progress()

    def finish(self) -> Result:
        """What has come of it, after the last event."""
        if self.status == "interrupted":
            self._checkpoint()
        else:
            self._evaluate_the_unfinished()
        self._show_progress()
        summary = self._summary()
        if self.files is not None:
            self.files.sync()
            self.files.write_json(SUMMARY, summary)
        if self.checkpointer is not None and self.status != "interrupted":
            self.checkpointer.clear()
        models = [client.life.learning.w for client in self.clients]
        return Result(summary, self.metrics, models, None if self.files is None else self.files.path)

    def _live(self) -> None:
        """Let one event after the other happen, with pauses for checkpoints."""
        try:
            while self.status is None:
                self.kernel.run_on()
                if self.is_checkpoint_due:
                    self._checkpoint()
        except EmptySchedule:
            raise AssertionError("everybody waits, and nothing will ever happen") from None

    def _network(self) -> Network:
        section = self.scenario.network
        unlimited = section.bandwidth.name == "unlimited"
        return Network(
            self.kernel,
            self.scenario.clients.count,
            self.recorder,
            self.blueprint.link,
            bandwidth=None if unlimited else section.bandwidth.bind()(self.kernel),
            transport=section.transport.bind()(),
            duplication=section.duplication,
            compression=section.compression,
        )

    def _clients(self) -> list[Client]:
        blueprint, scenario, timing = self.blueprint, self.scenario, self.scenario.timing
        self.surroundings = surroundings = Surroundings(
            kernel=self.kernel,
            network=self.network,
            trainer=blueprint.trainer,
            method=blueprint.method,
            onlookers=[adversary for adversary in self.adversaries if adversary.sees_updates_of],
            observer=self.recorder,
            degree=lambda client: len(self.clients[client].neighbours),
            seed=blueprint.streams.key,
            wait=timing.wait.bind()(),
            staleness=timing.staleness.bind()(),
            rounds=scenario.rounds,
            duration_s=lambda client, round_: (
                blueprint.duration_s(client, round_) * self.world.slowdown(client)
            ),
            on_training=self._on_training,
            on_round=self._on_round,
            on_finish=lambda client: self.world.finish(client),
        )
        adversary_of = {member: adversary for adversary in self.adversaries for member in adversary.members}
        same = blueprint.initial_model(0)
        clients = []
        for client, neighbours in enumerate(blueprint.neighbours):
            w = same if scenario.training.start == "same" else blueprint.initial_model(client)
            home = Home(client, 0, surroundings)
            learning = blueprint.method.start(w, home)
            if client == 0:  # all messages are of one form
                _, example = blueprint.method.outgoing(learning, Trained(w, 1, 0.0), home)
            mailbox = Mailbox(
                neighbours,
                self.recorder,
                form=example.form,
                last_round=scenario.rounds,
                capacity=timing.mailbox_per_sender,
                prefer=timing.prefer,
            )
            life = Life(learning, mailbox)
            clients.append(Client(client, neighbours, adversary_of.get(client), life, surroundings))
        return clients

    def _fresh_state(self, client: int, w: Tensor) -> State:
        return self.blueprint.method.start(w, Home(client, 0, self.surroundings))

    def _adversaries(self) -> list[Adversary]:
        return [
            Adversary(
                plan,
                members,
                self.byzantine,
                self.kernel,
                self.network,
                self.clients,
                self.blueprint.streams,
                method=self.blueprint.method,
            )
            for plan, members in zip(self.blueprint.plans(), self.blueprint.groups, strict=True)
            if members
        ]

    def _on_round(self, client: Client) -> None:
        round_ = client.life.round
        if round_ % self.scenario.evaluation.every == 0 or round_ == self.scenario.rounds:
            self._evaluate(client, round_)

    def _on_training(self) -> None:
        self.num_trained += 1
        self._show_progress()
        if self.checkpointer is not None and self.checkpointer.is_due(self.num_trained):
            self.is_checkpoint_due = True
            self.kernel.pause()

    def _checkpoint(self) -> None:
        self.is_checkpoint_due = False
        self.wall_s = time.monotonic() - self.started_s
        if self.checkpointer is not None:
            self.checkpointer.save(self)

    def _show_progress(self) -> None:
        if self.progress is not None:
            self.progress.update(
                self.num_trained, self.kernel.now, self.scores.honest_mean, self.network.num_sent
            )

    def _interrupt(self) -> None:
        self._end("interrupted")

    def _run_out_of_time(self) -> None:
        self._end("out of time")

    def _end(self, status: str) -> None:
        if self.status is None:
            self.status = status
            self.kernel.pause()

    def _evaluate(self, client: Client, round_: int) -> None:
        blueprint, w = self.blueprint, client.life.learning.w
        personal = evaluate(blueprint.model, w, blueprint.personal_tests[client.id])
        everything = (
            evaluate(blueprint.model, w, blueprint.global_test)
            if self.scenario.evaluation.global_test
            else None
        )
        scores = {
            "personal_accuracy": personal.accuracy,
            "personal_loss": personal.loss,
            "global_accuracy": None if everything is None else everything.accuracy,
            "global_loss": None if everything is None else everything.loss,
        }
        self.recorder.event("evaluation", client=client.id, round=round_, **scores)
        if self.theory is not None and client.adversary is None:
            self.recorder.event("theory", client=client.id, round=round_, **self.theory.look(client.id, w))
        details = {"hops": self.blueprint.hops[client.id], **self.telemetry.since_last_evaluation(client.id)}
        self.scores.add(self.kernel.now, client.id, round_, {**scores, **details})

    def _evaluate_the_unfinished(self) -> None:
        """A run ends with an evaluation of every model, also of clients that did not come to the end."""
        for client in self.clients:
            self._evaluate_once_more(client)

    def _evaluate_once_more(self, client: Client) -> None:
        """Evaluate a model that will not change any more, if it has changed since the last time."""
        done = client.life.round - 1
        if self.scores.latest[client.id]["round"] < done:
            self._evaluate(client, done)

    def _write_beginning(self) -> None:
        blueprint = self.blueprint
        if self.files is not None:
            self.files.write_scenario(self.scenario.to_dict())
            self.files.write_json(
                TOPOLOGY,
                {
                    "num_clients": len(self.clients),
                    "edges": sorted(sorted(edge) for edge in blueprint.graph.edges),
                    "byzantine": blueprint.byzantine,
                },
            )
        self.recorder.event(
            "run_started",
            seed=self.scenario.seed,
            num_parameters=blueprint.model.num_parameters,
            byzantine=blueprint.byzantine,
        )

    def _theory(self) -> dict[str, Any]:
        if self.theory is None:
            return {}
        return {"theory": self.theory.summary({client.id: client.life.num_rounds for client in self.clients})}

    def _warnings(self) -> list[str]:
        diverged = [
            c.id for c in self.clients if c.adversary is None and not Payload(c.life.learning.w).is_finite
        ]
        idle = [c.id for c in self.clients if c.adversary is None and c.life.num_rounds == 0]
        return [
            *([f"the models of {len(diverged)} honest clients have diverged"] if diverged else []),
            *([f"{len(idle)} honest clients have not finished a single round"] if idle else []),
        ]

    def _summary(self) -> dict[str, Any]:
        blueprint, scenario = self.blueprint, self.scenario
        mailboxes = [client.life.mailbox for client in self.clients]
        network, telemetry = self.network, self.telemetry.summary()
        messages = summaries.messages(
            network.num_sent,
            network.num_delivered,
            network.num_lost,
            network.num_in_flight,
            sum((mailbox.fates for mailbox in mailboxes), Counter()),
            sum(1 for mailbox in mailboxes for _ in mailbox.leftovers()),
        )
        rounds_done = [client.life.num_rounds for client in self.clients]
        accuracy = summaries.accuracy(row for _, row in sorted(self.scores.latest.items()))
        messages |= {
            "copied": network.num_copied,
            "reordered": network.num_reordered,
            "bytes": round(network.num_bytes),
        }
        telemetry["by_hops"] = summaries.with_accuracy(telemetry["by_hops"], self.scores.latest.values())
        for client in self.clients:
            self.recorder.model(client.id, client.life.learning.w)
        self.recorder.event("run_finished", status=self.status, **messages)
        return {
            "name": scenario.name,
            "status": self.status,
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
            **self._theory(),
            "num_faults": self.world.num_changes,
            "simulated_s": self.kernel.now,
            "wall": {
                "seconds": time.monotonic() - self.started_s,
                "device": str(blueprint.device),
                "threads": torch.get_num_threads(),
            },
            "digest": self.recorder.digest.value.hex(),
            "warnings": [*blueprint.warnings, *self._warnings()],
        }


def _folder(parent: Path, name: str) -> RunFolder:
    try:
        return RunFolder.create(parent, name)
    except OSError as error:
        problem = Problem("output.folder", f"no run folder can be made there: {error.strerror}", str(parent))
        raise ScenarioError([problem]) from error


def _told(error: Exception, files: RunFolder | None) -> Exception:
    """An error as a user should see it: what the machine lacks is no fault of the program."""
    if isinstance(error, OSError) and files is not None:
        return RunError(f"the run's files cannot be written to {files.path}: {error.strerror or error}")
    return RunError(OUT_OF_MEMORY) if is_out_of_memory(error) else error


def _attack_described(section: AdversarySection) -> str:
    """An attack in a few words: what is said, when and to whom, as far as it is unusual."""
    parts = (section.attack, section.timing, section.equivocation)
    names = [part.name for part in parts if part.name != "none"]
    return " + ".join(names) or "none"


def _described(method: Component) -> str:
    aggregator = getattr(method, "aggregator", None)
    return method.name if aggregator is None else f"{method.name} ({aggregator.name})"
