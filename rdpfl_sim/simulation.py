"""The only place that knows every part: it builds a scenario, runs it, and writes down what happened."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, floor
from pathlib import Path
from statistics import NormalDist
from typing import Any, Protocol

import networkx as nx
import torch
from torch import Tensor

from rdpfl_sim.errors import Problem, ScenarioError, located
from rdpfl_sim.execution.inline import Inline
from rdpfl_sim.execution.inline import Settings as TrainingSettings
from rdpfl_sim.interruption import on_interrupt
from rdpfl_sim.learning.datasets import Dataset, Shard
from rdpfl_sim.learning.evaluation import evaluate
from rdpfl_sim.learning.models import FlatModel
from rdpfl_sim.learning.partition import split_test
from rdpfl_sim.maths.types import Payload
from rdpfl_sim.methods.base import Method, Settings
from rdpfl_sim.randomness import Streams, uniform
from rdpfl_sim.records import summary as summaries
from rdpfl_sim.records.folder import RunFolder
from rdpfl_sim.records.recorder import Recorder
from rdpfl_sim.registry import Component
from rdpfl_sim.scenario import Scenario
from rdpfl_sim.world.adversary import Adversary
from rdpfl_sim.world.client import Client, Life, Surroundings
from rdpfl_sim.world.kernel import DEADLINE, Kernel
from rdpfl_sim.world.mailbox import Mailbox
from rdpfl_sim.world.network import Network
from rdpfl_sim.world.placement import byzantine_fraction, outside_threat_model
from rdpfl_sim.world.topology import neighbours as neighbours_of

SMALL_MODEL = 50_000
"""Below this many parameters a training step is too short for a second thread to help."""


class Progress(Protocol):
    """Somebody who wants to know how far the run is."""

    def update(self, rounds_done: int, time_s: float, accuracy: float | None, messages: int) -> None:
        """A client finished a round."""


@dataclass(frozen=True)
class Result:
    """What a run gives back: its summary, every evaluation, the final models, and where the files are."""

    summary: dict[str, Any]
    metrics: list[dict[str, Any]]
    models: list[Tensor]
    folder: Path | None


def simulate(
    scenario: Scenario, folder: str | Path | None = None, progress: Progress | None = None
) -> Result:
    """Run a scenario; with `folder`, write a run folder into it."""
    return Simulation(scenario).run(folder, progress)


class Simulation:
    """A scenario, built and ready to run. Building raises `ScenarioError` and writes nothing."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.streams = Streams(scenario.seed)
        self.device = _device(scenario.execution.device)
        self.graph = self._graph()
        self.neighbours = neighbours_of(self.graph)
        self.byzantine = self._byzantine()
        self._build_learning()
        self._build_compute_times()

    @property
    def warnings(self) -> list[str]:
        """What a user should know before believing the result."""
        fractions = byzantine_fraction(self.graph, self.byzantine)
        isolated = list(nx.isolates(self.graph))
        num_components = nx.number_connected_components(self.graph)
        outside = outside_threat_model(self.graph, self.byzantine)
        found = []
        if outside:
            found.append(
                f"{len(outside)} of {len(fractions)} honest clients have at least half Byzantine neighbours "
                f"({_listed(outside)}): outside the paper's threat model"
            )
        if isolated:
            found.append(
                f"{len(isolated)} isolated clients have no neighbours ({_listed(isolated)}): they learn alone"
            )
        if num_components > 1:
            found.append(f"the graph is disconnected: {num_components} components")
        return found

    def run(self, folder: str | Path | None = None, progress: Progress | None = None) -> Result:
        """Simulate from time zero until every client has finished its rounds."""
        files = None if folder is None else RunFolder.create(Path(folder), self.scenario.name)
        threads_before = torch.get_num_threads()
        torch.set_num_threads(self.num_threads)
        try:
            return _Run(self, files, progress).finish()
        finally:
            torch.set_num_threads(threads_before)
            if files is not None:
                files.close()

    @property
    def num_threads(self) -> int:
        """Torch threads: as the scenario says, or one for a small model, which more would only slow down."""
        if self.scenario.execution.threads is not None:
            return self.scenario.execution.threads
        return 1 if self.model.num_parameters < SMALL_MODEL else torch.get_num_threads()

    def _graph(self) -> nx.Graph:
        topology = self.scenario.topology
        with located("topology", topology):
            graph: nx.Graph = topology.bind()(self.scenario.clients.count, self.streams.generator("topology"))
        return graph

    def _byzantine(self) -> list[int]:
        adversary = self.scenario.adversary
        if adversary.ids is not None:
            return sorted(adversary.ids)
        count = floor(
            adversary.fraction * self.scenario.clients.count + 1e-9
        )  # 0.29 * 100 is a little less than 29
        chosen: list[int] = adversary.placement.bind()(self.graph, count, self.streams.generator("placement"))
        return chosen

    def _build_learning(self) -> None:
        scenario, streams = self.scenario, self.streams
        with located("data", scenario.data):
            data: Dataset = scenario.data.bind()(streams.generator("data"))
        labels = data.y_train.numpy()
        with located("partition", scenario.partition):
            shards = scenario.partition.bind()(labels, scenario.clients.count, streams.generator("partition"))
        with located("model", scenario.model):
            self.model = FlatModel(scenario.model.bind()(data.shape, data.num_classes), self.device)
        personal = split_test(
            labels, shards, data.y_test.numpy(), data.num_classes, streams.generator("test split")
        )
        x_train, y_train, x_test, y_test = (
            tensor.to(self.device) for tensor in (data.x_train, data.y_train, data.x_test, data.y_test)
        )
        self.train_shards = [Shard(x_train, y_train, torch.from_numpy(s).to(self.device)) for s in shards]
        self.personal_tests = [Shard(x_test, y_test, torch.from_numpy(s).to(self.device)) for s in personal]
        self.global_test = Shard(x_test, y_test, torch.arange(len(y_test), device=self.device))
        self.trainer = Inline(
            self.model,
            self.train_shards,
            TrainingSettings(**scenario.training.model_dump(exclude={"start"})),
            streams,
        )
        self.method: Method = scenario.method.bind()(
            Settings(scenario.training.learning_rate, scenario.rounds)
        )

    def _build_compute_times(self) -> None:
        timing = self.scenario.timing
        with located("timing.compute", timing.compute):
            compute, key = timing.compute.bind(), self.streams.key("speed")
            self.compute_s: list[float] = [
                compute(uniform(key, client), client)
                * (self.trainer.settings.num_steps(len(shard)) if timing.compute_per == "step" else 1)
                for client, shard in enumerate(self.train_shards)
            ]

    def initial_model(self, client: int) -> Tensor:
        """The model with which a client starts."""
        index = () if self.scenario.training.start == "same" else (client,)
        return self.model.initial(self.streams.key("start", *index))

    def duration_s(self, client: int, round_: int) -> float:
        """How long a client's local training takes in a round."""
        jitter = self.scenario.timing.jitter
        if jitter == 0:
            return self.compute_s[client]
        z = NormalDist().inv_cdf(uniform(self.streams.key("jitter", client), round_))
        return self.compute_s[client] * exp(jitter * z)


class _Run:
    """One run of a simulation: the live world and its records."""

    def __init__(self, simulation: Simulation, files: RunFolder | None, progress: Progress | None) -> None:
        scenario = simulation.scenario
        self.simulation, self.scenario, self.files, self.progress = simulation, scenario, files, progress
        self.byzantine = frozenset(simulation.byzantine)
        self.kernel = Kernel(initial_time=0.0)
        self.done = self.kernel.event()
        self.recorder = Recorder(
            lambda: self.kernel.now,
            simulation.streams,
            files.events if files is not None and scenario.output.events else None,
            scenario.output.message_events,
            self.byzantine,
        )
        self.network = Network(
            self.kernel,
            simulation.neighbours,
            simulation.streams,
            self.recorder,
            latency=scenario.network.latency.bind(),
            loses=scenario.network.loss.bind(),
            transmission_s=scenario.network.bandwidth.bind(),
        )
        self.clients = self._clients()
        self.network.receivers = [client.receive for client in self.clients]
        self.metrics: list[dict[str, Any]] = []
        self.latest: dict[int, dict[str, Any]] = {}
        self.accuracy_sum = 0.0
        self.rounds_done = 0
        self.num_finished = 0
        self.status = "finished"

    def finish(self) -> Result:
        """Run to the end, or until interrupted, and write everything down."""
        started = time.monotonic()
        self._write_beginning()
        with on_interrupt(self._interrupt):
            self._simulate()
        summary = self._summary(time.monotonic() - started)
        if self.files is not None:
            self.files.flush()
            self.files.write_json("summary.json", summary)
        models = [client.life.learning.w for client in self.clients]
        return Result(summary, self.metrics, models, None if self.files is None else self.files.path)

    def _simulate(self) -> None:
        for client in self.clients:
            self._evaluate(client, round_=0)
            self.kernel.process(client.run())
        if self.scenario.timing.max_time_s is not None:
            self.kernel.call_later(self.scenario.timing.max_time_s, lambda _: self._end(), priority=DEADLINE)
        self.kernel.run(until=self.done)

    def _clients(self) -> list[Client]:
        simulation, scenario, timing = self.simulation, self.scenario, self.scenario.timing
        world = Surroundings(
            kernel=self.kernel,
            network=self.network,
            trainer=simulation.trainer,
            method=simulation.method,
            adversary=self._adversary(),
            observer=self.recorder,
            wait=timing.wait.bind()(),
            staleness=timing.staleness.bind()(),
            rounds=scenario.rounds,
            duration_s=simulation.duration_s,
            on_round=self._on_round,
        )
        same = simulation.initial_model(0)
        form = Payload(same).form  # today's methods send vectors of the model's size
        clients = []
        for client, neighbours in enumerate(simulation.neighbours):
            w = same if scenario.training.start == "same" else simulation.initial_model(client)
            mailbox = Mailbox(
                neighbours,
                self.recorder,
                form=form,
                last_round=scenario.rounds,
                capacity=timing.mailbox_per_sender,
                prefer=timing.prefer,
            )
            life = Life(simulation.method.start(w), mailbox)
            clients.append(Client(client, neighbours, client in self.byzantine, life, world))
        return clients

    def _adversary(self) -> Adversary:
        section = self.scenario.adversary
        target: Any = type(section.attack).target
        return Adversary(
            self.kernel,
            section.attack.bind(),
            self.simulation.neighbours,
            self.simulation.byzantine,
            self.simulation.streams,
            sees_honest=bool(self.byzantine) and getattr(target, "sees_honest", False),
            sees_victim=getattr(target, "sees_victim", False),
            patience_s=section.patience_s,
            expects=lambda client: self.simulation.method.expects(self.clients[client].life.learning),
        )

    def _on_round(self, client: Client) -> None:
        round_ = client.life.round
        if round_ % self.scenario.evaluation.every == 0 or round_ == self.scenario.rounds:
            self._evaluate(client, round_)
        self.rounds_done += 1
        if round_ == self.scenario.rounds:
            self.num_finished += 1
            if self.num_finished == len(self.clients):
                self._end()
        if self.progress is not None:
            num_honest = len(self.clients) - len(self.byzantine)
            self.progress.update(
                self.rounds_done, self.kernel.now, self.accuracy_sum / num_honest, self.network.num_sent
            )

    def _interrupt(self) -> None:
        self.status = "interrupted"
        self._end()

    def _end(self) -> None:
        if not self.done.triggered:
            self.done.succeed()

    def _evaluate(self, client: Client, round_: int) -> None:
        simulation, w = self.simulation, client.life.learning.w
        personal = evaluate(simulation.model, w, simulation.personal_tests[client.id])
        everything = (
            evaluate(simulation.model, w, simulation.global_test)
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
        row = {
            "time_s": self.kernel.now,
            "client": client.id,
            "byzantine": int(client.byzantine),
            "round": round_,
            **scores,
        }
        if not client.byzantine:
            before = self.latest[client.id]["personal_accuracy"] if client.id in self.latest else 0.0
            self.accuracy_sum += personal.accuracy - before
        self.latest[client.id] = row
        if self.files is None:
            self.metrics.append(row)
        else:
            self.files.write_metrics(row)

    def _write_beginning(self) -> None:
        simulation = self.simulation
        if self.files is not None:
            self.files.write_scenario(self.scenario.to_dict())
            self.files.write_json(
                "topology.json",
                {
                    "num_clients": len(self.clients),
                    "edges": sorted(sorted(edge) for edge in simulation.graph.edges),
                    "byzantine": simulation.byzantine,
                },
            )
        self.recorder.event(
            "run_started",
            scenario=self.scenario.name,
            seed=self.scenario.seed,
            num_parameters=simulation.model.num_parameters,
            byzantine=simulation.byzantine,
        )

    def _summary(self, wall_s: float) -> dict[str, Any]:
        simulation, scenario = self.simulation, self.scenario
        mailboxes = [client.life.mailbox for client in self.clients]
        messages = summaries.messages(
            self.network.num_sent,
            self.network.num_delivered,
            self.network.num_lost,
            len(self.network.in_flight),
            sum((mailbox.fates for mailbox in mailboxes), Counter()),
            sum(1 for mailbox in mailboxes for _ in mailbox.leftovers()),
        )
        accuracy = summaries.accuracy(self.latest[client] for client in sorted(self.latest))
        self.recorder.event("run_finished", status=self.status, **messages)
        for client in self.clients:
            self.recorder.model(client.id, client.life.learning.w)
        return {
            "name": scenario.name,
            "status": self.status,
            "seed": scenario.seed,
            "rounds": scenario.rounds,
            "num_clients": scenario.clients.count,
            "byzantine": simulation.byzantine,
            "method": _described(scenario.method),
            "attack": scenario.adversary.attack.name if self.byzantine else "none",
            "topology": scenario.topology.name,
            "num_parameters": simulation.model.num_parameters,
            "accuracy": accuracy,
            "messages": messages,
            "neighbourhood": {
                "byzantine_fraction": byzantine_fraction(simulation.graph, simulation.byzantine),
                "outside_threat_model": outside_threat_model(simulation.graph, simulation.byzantine),
                "isolated": sorted(nx.isolates(simulation.graph)),
                "num_components": nx.number_connected_components(simulation.graph),
            },
            "estimator": self.recorder.estimator_statistics(),
            "simulated_s": self.kernel.now,
            "wall": {"seconds": wall_s, "device": str(simulation.device), "threads": torch.get_num_threads()},
            "digest": self.recorder.digest.hexdigest(),
            "warnings": simulation.warnings,
        }


def _described(method: Component) -> str:
    aggregator = getattr(method, "aggregator", None)
    return method.name if aggregator is None else f"{method.name} ({aggregator.name})"


def _listed(clients: Sequence[int]) -> str:
    shown = ", ".join(map(str, clients[:10]))
    return shown if len(clients) <= 10 else f"{shown}, ..."


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ScenarioError(
            [Problem("execution.device", "no CUDA device is available; allowed: auto, cpu", name)]
        )
    return torch.device(name)
