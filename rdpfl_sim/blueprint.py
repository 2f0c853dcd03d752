"""From a scenario to everything that a run needs: graph, attackers, shards, model, trainer, compute times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import exp, inf
from statistics import NormalDist

import networkx as nx
import numpy as np
import torch
from torch import Tensor, nn

from rdpfl_sim.checks import num_of
from rdpfl_sim.errors import Problem, ScenarioError, located
from rdpfl_sim.execution.executor import Executor
from rdpfl_sim.execution.jobs import Materials
from rdpfl_sim.execution.jobs import Settings as TrainingSettings
from rdpfl_sim.learning.data import Dataset, Shard
from rdpfl_sim.learning.models import FlatModel
from rdpfl_sim.learning.partition import Indices, split_test
from rdpfl_sim.methods.base import Layer, Method, Settings
from rdpfl_sim.options import client_ids
from rdpfl_sim.randomness import Streams, uniform
from rdpfl_sim.registry import Component, specialised
from rdpfl_sim.scenario import Scenario
from rdpfl_sim.sections import AdversarySection
from rdpfl_sim.world.adversary import Plan
from rdpfl_sim.world.changes import Change
from rdpfl_sim.world.faults import Setting, merged
from rdpfl_sim.world.links import Link
from rdpfl_sim.world.neighbourhoods import Neighbourhoods, hops_to
from rdpfl_sim.world.topology import neighbours as neighbours_of

SMALL_TEST = 5
"""A personal test set with fewer images is worth a warning."""


class Blueprint:
    """A scenario made concrete. What cannot be built raises a `ScenarioError`; nothing is written."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.streams = Streams(scenario.seed)
        problems: list[Problem] = []
        with _gathered(problems):
            self.device = _device(scenario.execution.device)
        with _gathered(problems):
            self._build_graph()
        with _gathered(problems):
            self._build_links()
        module: nn.Module | None = None
        with _gathered(problems), located("data", scenario.data):
            data: Dataset = scenario.data.bind()(self.streams.generator("data"))
            with _gathered(problems), located("partition", scenario.partition):
                shards = self._shards(data)
            with _gathered(problems), located("model", scenario.model):
                module = scenario.model.bind()(data.shape, data.num_classes)
        with _gathered(problems), located("method", scenario.method):
            layers = () if module is None else layers_of(module)
            settings = Settings(scenario.training.learning_rate, scenario.rounds, layers)
            self.method: Method = scenario.method.bind()(settings)
        if problems:
            raise ScenarioError(problems)
        assert module is not None
        self._build_learning(data, shards, FlatModel(module, self.device))
        self._build_compute_times()

    @property
    def warnings(self) -> list[str]:
        """What a user should know before believing the result."""
        found = self.neighbourhoods.warnings
        smallest = min(len(shard) for shard in self.personal_tests)
        if smallest < SMALL_TEST:
            found.append(f"the smallest personal test set has {smallest} images: its accuracy is coarse")
        timing = self.scenario.timing
        if (timing.wait.name, timing.staleness.name) == ("none", "drop") and self.method.exchanges:
            found.append(
                "clients do not wait, and drop messages of earlier rounds: they will use few or none "
                "(timing.staleness = 'keep' would use them)"
            )
        return [*found, *self._options_without_effect(), *self._unlikely_faults()]

    def _options_without_effect(self) -> Iterator[str]:
        """Options that were given, but that other options make pointless."""
        scenario, network = self.scenario, self.scenario.network
        if not self.method.exchanges and self.byzantine:
            yield "nothing is exchanged, so attacks have no effect"
        if network.duplication > 0 and network.transport.name == "reliable":
            yield "network.duplication has no effect: a reliable transport drops second copies"
        if "message_events" in scenario.output.model_fields_set and not scenario.output.events:
            yield "output.message_events has no effect without output.events"
        method = scenario.method
        given = {key for key, f in type(method).model_fields.items() if getattr(method, key) != f.default}
        if getattr(method, "estimator", "paper") == "anchored":
            of_the_paper = {"predictor", "clip", "threshold", "warmup", "tau_0", "beta_limit", "epsilon"}
            for option in sorted(given & (of_the_paper | {"when_silent"})):
                yield f"method.{option} has no effect: it belongs to estimator = 'paper'"
        else:
            if getattr(method, "predictor", "bb") != "bb":
                for option in sorted(given & {"warmup", "epsilon", "beta_limit"}):
                    yield f"method.{option} has no effect: it belongs to predictor = 'bb'"
            if not getattr(method, "clip", True):
                for option in sorted(given & {"alpha", "c", "tau_0", "threshold"}):
                    yield f"method.{option} has no effect without method.clip"
        if method.name == "dfedavgm" and "momentum" in scenario.training.model_fields_set:
            yield "training.momentum has no effect: method.theta stands in its place"
        yield from self._attacks_without_effect()

    def _attacks_without_effect(self) -> Iterator[str]:
        scenario = self.scenario
        partitions = {fault.name for fault in scenario.faults} & {"partition", "random_partitions"}
        for section, members in zip(scenario.adversary, self.groups, strict=True):
            if not members:
                continue
            if section.schedule.name == "during_partitions" and not partitions:
                yield "an attack during_partitions never begins: no fault is a partition"
            from_round = getattr(section.schedule, "from_round", 1)
            if from_round > scenario.rounds:
                yield f"an attack that begins in round {from_round} never does"
            if section.equivocation.name != "none" and section.attack.name in ("none", "label_flip"):
                yield "equivocation has no effect on an attack that sends the own update"

    def _unlikely_faults(self) -> Iterator[str]:
        """Faults that are possible, but probably not what was meant."""
        linked = set(map(frozenset, self.graph.edges))
        for place, fault in enumerate(self.scenario.faults):
            for pair in getattr(fault, "links", []):
                if fault.name == "link_outage" and frozenset(pair) not in linked:
                    yield f"faults[{place}]: clients {pair[0]} and {pair[1]} are not linked at the beginning"
            mean_s, train_s = getattr(fault, "mean_time_to_fail_s", inf), min(self.compute_s)
            if fault.name == "random_crashes" and mean_s < train_s:
                yield (
                    f"faults[{place}]: clients crash every {mean_s:g} s on average and train for at least "
                    f"{train_s:g} s a round; timing.max_time_s would end such a run"
                )

    def _build_graph(self) -> None:
        topology, num_clients = self.scenario.topology, self.scenario.clients.count
        with located("topology", topology):
            self.graph: nx.Graph = topology.bind()(num_clients, self.streams.generator("topology"))
        self.neighbours = neighbours_of(self.graph)
        self.groups = self._groups(num_clients)
        self.byzantine = sorted(client for group in self.groups for client in group)
        self.neighbourhoods = Neighbourhoods.of(self.graph, self.byzantine)
        self.hops = hops_to(self.graph, self.byzantine)

    def _groups(self, num_clients: int) -> list[list[int]]:
        """The members of every group of Byzantine clients."""
        groups: list[list[int]] = []
        explicit = {
            place: client_ids("ids", section.ids, num_clients) if section.ids else ()
            for place, section in enumerate(self.scenario.adversary)
            if section.ids is not None
        }
        taken = {client for ids in explicit.values() for client in ids}
        for place, section in enumerate(self.scenario.adversary):
            if place in explicit:
                groups.append(list(explicit[place]))
                continue
            rng = self.streams.generator("placement", *([place] if place else []))
            count = num_of(section.fraction, num_clients)
            groups.append(section.placement.bind()(self.graph, count, rng, taken))
            taken.update(groups[-1])
        return groups

    def plans(self) -> list[Plan]:
        """What every group of attackers is up to."""
        return [self._plan(section) for section in self.scenario.adversary]

    def _plan(self, section: AdversarySection) -> Plan:
        attack, timing = type(section.attack).target, type(section.timing).target
        wait = self.scenario.timing.wait.bind()()
        patience_s = section.patience_s
        if patience_s is None and wait.fraction == 0:
            patience_s = 0.0  # nobody would wait for an attacker
        elif patience_s is None and wait.timeout_s is not None:
            patience_s = wait.timeout_s / 2
        return Plan(
            attack=section.attack.bind(),
            **{
                mark: getattr(attack, mark, False)
                for mark in ("sees_honest", "sees_victim", "poisons_labels", "collective")
            },
            timing=section.timing.bind(),
            remembers=getattr(timing, "remembers", False),
            schedule=section.schedule.bind(),
            equivocation=section.equivocation.bind(),
            knowledge=section.knowledge,
            collude=section.collude,
            patience_s=patience_s,
        )

    def _build_links(self) -> None:
        """What every link is like, and what will go wrong with links and clients."""
        network, num_clients = self.scenario.network, self.scenario.clients.count
        with located("network.geography", network.geography):
            self.propagation_s = network.geography.bind()(num_clients, self.streams)
        self.exceptions: dict[tuple[int, int], dict[str, Component]] = {}
        for place, section in enumerate(network.links):
            with located(f"network.links[{place}]", section):
                senders = client_ids("from", section.from_, num_clients)
                recipients = client_ids("to", section.to, num_clients)
            pairs = [(i, j) for i in senders for j in recipients if i != j]
            pairs += [(j, i) for i, j in pairs] if section.both_ways else []
            models = {"latency": section.latency, "loses": section.loss}
            given = {key: model for key, model in models.items() if model is not None}
            for pair in pairs:
                self.exceptions[pair] = {**self.exceptions.get(pair, {}), **given}
        self.changes()  # once in vain, to see that all faults are possible

    def link(self, sender: int, recipient: int) -> Link:
        """The link from one client to another."""
        network = self.scenario.network
        models = {"latency": network.latency, "loses": network.loss} | self.exceptions.get(
            (sender, recipient), {}
        )
        return Link(
            sender,
            recipient,
            self.streams.key("link", sender, recipient),
            propagation_s=self.propagation_s(sender, recipient),
            latency=specialised(models["latency"].bind()),
            loses=specialised(models["loses"].bind()),
        )

    def changes(self) -> Iterator[tuple[float, int, Change]]:
        """Everything that will change in the course of the run, from its beginning."""
        schedules, problems = [], list[Problem]()
        num_clients = self.scenario.clients.count
        for place, fault in enumerate(self.scenario.faults):
            setting = Setting(
                num_clients=num_clients,
                links=sorted((min(edge), max(edge)) for edge in self.graph.edges),
                key=self.streams.key("fault", place),
                draw_topology=self._draw_topology,
                build_topology=partial(self._build_topology, place),
            )
            with _gathered(problems), located(f"faults[{place}]", fault):
                schedules.append(fault.bind()(setting))
        if problems:
            raise ScenarioError(problems)
        return merged(schedules)

    def _draw_topology(self, number: int) -> list[tuple[int, ...]]:
        topology, num_clients = self.scenario.topology, self.scenario.clients.count
        with located("topology", topology):  # a file may have vanished since the run began
            graph = topology.bind()(num_clients, self.streams.generator("topology", number))
        return neighbours_of(graph)

    def _build_topology(self, fault: int, topology: Callable[..., nx.Graph]) -> list[tuple[int, ...]]:
        rng = self.streams.generator("changed topology", fault)
        return neighbours_of(topology(self.scenario.clients.count, rng))

    def _shards(self, data: Dataset) -> list[Indices]:
        partition, num_clients = self.scenario.partition.bind(), self.scenario.clients.count
        shards: list[Indices] = partition(
            data.y_train.numpy(), num_clients, self.streams.generator("partition")
        )
        return shards

    def _build_learning(self, data: Dataset, shards: list[Indices], model: FlatModel) -> None:
        personal = split_test(
            data.y_train.numpy(),
            shards,
            data.y_test.numpy(),
            data.num_classes,
            self.streams.generator("test split"),
        )
        x_train, y_train, x_test, y_test = (
            tensor.to(self.device) for tensor in (data.x_train, data.y_train, data.x_test, data.y_test)
        )
        self.model = model
        self.train_shards = [
            Shard(x_train, y_train, torch.from_numpy(s).to(self.device), data.augment) for s in shards
        ]
        self.personal_tests = [Shard(x_test, y_test, torch.from_numpy(s).to(self.device)) for s in personal]
        self.global_test = Shard(x_test, y_test, self._sample(len(y_test)).to(self.device))
        self.settings = settings = TrainingSettings(**self.scenario.training.model_dump(exclude={"start"}))
        flipped = data.num_classes - 1 - y_train
        poisoned = {client: replace(self.train_shards[client], y=flipped) for client in self.byzantine}
        materials = Materials(
            self.train_shards, poisoned, self.personal_tests, self.global_test, settings, self.streams
        )
        executor = self.scenario.execution.executor
        with located("execution.executor", executor):
            self.trainer: Executor = executor.bind()(model, materials)

    def _sample(self, num_test: int) -> Tensor:
        """The part of the test set on which all models are compared."""
        num_samples = min(num_test, self.scenario.evaluation.global_samples or num_test)
        rng = self.streams.generator("global test")
        return torch.from_numpy(np.sort(rng.choice(num_test, num_samples, replace=False)))

    def _build_compute_times(self) -> None:
        timing = self.scenario.timing
        compute, key = timing.compute.bind(), self.streams.key("speed")
        self.compute_s: list[float] = [
            compute(uniform(key, client), client)
            * (self.settings.num_steps(len(shard)) if timing.compute_per == "step" else 1)
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


def layers_of(module: nn.Module) -> list[Layer]:
    """The model's parameters, in the order of its flat vector."""
    layers, start = [], 0
    for name, p in module.named_parameters():
        layers.append(Layer(name, start, tuple(p.shape)))
        start += p.numel()
    return layers


@contextmanager
def _gathered(problems: list[Problem]) -> Iterator[None]:
    """Add what goes wrong to the list, so that all of it is told at once."""
    try:
        yield
    except ScenarioError as error:
        problems.extend(error.problems)


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ScenarioError(
            [Problem("execution.device", "no CUDA device is available; allowed: auto, cpu", name)]
        )
    return torch.device(name)
