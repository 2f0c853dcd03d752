"""The parts of a scenario that need neither data nor a model: graph, Byzantine clients, links and faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import networkx as nx

from rdpfl_sim.attacks import ATTACKS
from rdpfl_sim.components.options import client_ids, round_down
from rdpfl_sim.components.schema import Component, Strict
from rdpfl_sim.errors import Problem, ScenarioError, errors_at
from rdpfl_sim.execution.auto import EXECUTORS
from rdpfl_sim.files import JsonObject
from rdpfl_sim.methods.base import Method
from rdpfl_sim.methods.directions import never_differs_from_mean, unknown_weights
from rdpfl_sim.randomness import Streams
from rdpfl_sim.scenario.checks import groups_by_path
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.world.adversary.schedules import SCHEDULES
from rdpfl_sim.world.adversary.threat_model import ATTACKS_WITHOUT_EFFECT, Neighbourhoods, hops_to
from rdpfl_sim.world.faults import FAULTS
from rdpfl_sim.world.faults.fault import Change, FaultContext, merged
from rdpfl_sim.world.network.links import Link
from rdpfl_sim.world.network.topology import neighbours as neighbours_of


class Deployment:
    """The graph, Byzantine clients, links and faults of a scenario.

    Raises a `ScenarioError` that lists everything that cannot be built.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.streams = Streams(scenario.seed)
        problems: list[Problem] = []
        with collect_problems(problems):
            self._build_graph()
        with collect_problems(problems):
            self._build_links()
        if problems:
            raise ScenarioError(problems)
        self.changes()  # raises an error if a fault is impossible

    @property
    def exchanges(self) -> bool:
        """Whether the method sends messages."""
        return bool(getattr(type(self.scenario.method).target, "exchanges", True))

    @property
    def topology(self) -> JsonObject:
        """The content of topology.json."""
        return {
            "num_clients": len(self.graph),
            "edges": sorted(sorted(edge) for edge in self.graph.edges),
            "byzantine": self.byzantine,
        }

    @property
    def warnings(self) -> list[str]:
        """Properties of the scenario that may make the result misleading."""
        timing, execution = self.scenario.timing, self.scenario.execution
        reasons = [group.outside_threat_model for group in self.scenario.adversary]
        intended = [reason for reason in dict.fromkeys(reasons) if reason is not None]
        found = [*self.scenario.notes, *self.neighbourhoods.warnings(intended)]
        waits, keeps = timing.wait.bind()().fraction > 0, timing.staleness.bind()().max_age > 0
        if self.exchanges and not waits and not keeps:
            found.append(
                "clients do not wait, and they drop messages of earlier rounds, so they use few or none; "
                "set timing.staleness = 'keep' to use them"
            )
        if EXECUTORS.facts(execution.executor.name).is_batched and execution.device.startswith("cuda"):
            found.append(
                "on a GPU the last bits of a stacked result may depend on the other clients of its batch, so "
                "checkpoints and interruptions may change the digest; executor = 'inline' avoids this"
            )
        if not any(FAULTS.facts(fault.name).changes_topology for fault in self.scenario.faults):
            found += never_differs_from_mean(self.scenario.method, max(map(len, self.neighbours)))
        if self.scenario.output.telemetry:
            found += unknown_weights(self.scenario.method)
        return [*found, *self._options_without_effect(), *self.fault_warnings()]

    def _options_without_effect(self) -> Iterator[str]:
        """Yield a warning for each option that is set but has no effect because of other options."""
        scenario, network = self.scenario, self.scenario.network
        if not self.exchanges and self.byzantine:
            yield ATTACKS_WITHOUT_EFFECT
        if network.duplication > 0 and network.transport.bind()().retransmits:
            yield "network.duplication has no effect: a reliable transport drops copies"
        if _is_given(scenario.output, "message_events") and not scenario.output.events:
            yield "output.message_events has no effect without output.events"
        method = scenario.method
        target = type(method).target
        if isinstance(target, type) and issubclass(target, Method):
            given = {key for key in type(method).model_fields if _is_given(method, key)}
            yield from target.unused_options(given, method.model_dump())
            if target.momentum is not None and _is_given(scenario.training, "momentum"):
                yield f"training.momentum has no effect: method.{target.momentum} replaces it"
        yield from self._schedule_without_effect()
        yield from self._attacks_without_effect()

    def _schedule_without_effect(self) -> Iterator[str]:
        schedule, rounds = self.scenario.training.schedule, self.scenario.rounds
        warmup = getattr(schedule, "warmup", 0)
        if warmup > rounds:
            yield f"training.schedule.warmup = {warmup} never ends: rounds = {rounds}"
        elif schedule.name != "constant" and {schedule.bind()(t, rounds) for t in (0, rounds - 1)} == {1.0}:
            yield f"training.schedule = {schedule.name!r} has no effect: rounds = {rounds}"

    def _attacks_without_effect(self) -> Iterator[str]:
        scenario = self.scenario
        has_partitions = any(FAULTS.facts(fault.name).makes_partitions for fault in scenario.faults)
        for section, members in zip(scenario.adversary, self.groups, strict=True):
            if not members:
                continue
            schedule = SCHEDULES.facts(section.schedule.name)
            if schedule.needs_partitions and not has_partitions:
                yield f"an attack {schedule.name} never starts: no fault is a partition"
            option = schedule.first_round
            first = 1 if option is None else getattr(section.schedule, option)
            if first > scenario.rounds:
                yield f"an attack with {option} = {first} never starts: rounds = {scenario.rounds}"
            if "equivocation" in section.attacks and ATTACKS.facts(section.attack.name).sends_own:
                yield "equivocation has no effect: the attack sends the client's own update"

    def fault_warnings(self, training_s: float | None = None) -> list[str]:
        """Return the warnings of the faults. Some depend on the shortest training time of a client."""
        warnings: list[str] = []
        for place, fault in enumerate(self.scenario.faults):
            fault.bind()(self._fault_context(place, training_s, warnings))
        return warnings

    def _build_graph(self) -> None:
        topology, num_clients = self.scenario.topology, self.scenario.clients.count
        with errors_at("topology", topology):
            self.graph: nx.Graph = topology.bind()(num_clients, self.streams.generator("topology"))
        self.neighbours = neighbours_of(self.graph)
        self.groups = self._groups(num_clients)
        self.byzantine = sorted(client for group in self.groups for client in group)
        self.neighbourhoods = Neighbourhoods.of(self.graph, self.byzantine)
        self.hops = hops_to(self.graph, self.byzantine)

    def _groups(self, num_clients: int) -> list[list[int]]:
        """Return the members of every group of Byzantine clients."""
        groups: list[list[int]] = []
        explicit = {
            place: client_ids("ids", section.ids, num_clients) if section.ids else ()
            for place, section in enumerate(self.scenario.adversary)
            if section.ids is not None
        }
        taken = {client for ids in explicit.values() for client in ids}
        for place, (path, section) in enumerate(groups_by_path(self.scenario.adversary).items()):
            if place in explicit:
                groups.append(list(explicit[place]))
                continue
            rng = self.streams.generator("placement", *([place] if place else []))
            count = round_down(section.fraction * num_clients)
            with errors_at(f"{path}.placement", section.placement):
                groups.append(section.placement.bind()(self.graph, count, rng, taken))
            taken.update(groups[-1])
        return groups

    def _build_links(self) -> None:
        network, num_clients = self.scenario.network, self.scenario.clients.count
        with errors_at("network.geography", network.geography):
            self.propagation_s = network.geography.bind()(num_clients, self.streams)
        self.link_overrides: dict[tuple[int, int], dict[str, Component]] = {}
        self._bound: dict[int, Callable[..., Any]] = {}
        for place, section in enumerate(network.links):
            with errors_at(f"network.links[{place}]", section):
                senders = client_ids("from", section.from_, num_clients)
                recipients = client_ids("to", section.to, num_clients)
            pairs = [(i, j) for i in senders for j in recipients if i != j]
            pairs += [(j, i) for i, j in pairs] if section.both_ways else []
            models = {"latency": section.latency, "loses": section.loss}
            given = {key: model for key, model in models.items() if model is not None}
            for pair in pairs:
                self.link_overrides[pair] = {**self.link_overrides.get(pair, {}), **given}

    def link(self, sender: int, recipient: int) -> Link:
        """Return the link from one client to another."""
        network = self.scenario.network
        models = {"latency": network.latency, "loses": network.loss} | self.link_overrides.get(
            (sender, recipient), {}
        )
        return Link(
            sender,
            recipient,
            self.streams.key("link", sender, recipient),
            propagation_s=self.propagation_s(sender, recipient),
            latency=self._bind_once(models["latency"]),
            loses=self._bind_once(models["loses"]),
        )

    def _bind_once(self, model: Component) -> Callable[..., Any]:
        """Return a model of links with its options. All links share it: their state is in `Link`."""
        if id(model) not in self._bound:
            self._bound[id(model)] = model.bind()
        return self._bound[id(model)]

    def changes(self) -> Iterator[tuple[float, int, Change]]:
        """Yield all changes of the run in order of time, each with the position of its fault."""
        schedules, problems = [], list[Problem]()
        for place, fault in enumerate(self.scenario.faults):
            with collect_problems(problems), errors_at(f"faults[{place}]", fault):
                schedules.append(fault.bind()(self._fault_context(place)))
        if problems:
            raise ScenarioError(problems)
        return merged(schedules)

    def _fault_context(
        self, place: int, training_s: float | None = None, warnings: list[str] | None = None
    ) -> FaultContext:
        def warn(text: str) -> None:
            if warnings is not None:
                warnings.append(f"faults[{place}]: {text}")

        return FaultContext(
            num_clients=self.scenario.clients.count,
            links=sorted((min(edge), max(edge)) for edge in self.graph.edges),
            key=self.streams.key("fault", place),
            draw_topology=self._draw_topology,
            build_topology=partial(self._build_topology, place),
            training_s=training_s,
            warn=warn,
        )

    def _draw_topology(self, number: int) -> list[tuple[int, ...]]:
        topology, num_clients = self.scenario.topology, self.scenario.clients.count
        with errors_at("topology", topology):  # a file may have been deleted since the start of the run
            graph = topology.bind()(num_clients, self.streams.generator("topology", number))
        return neighbours_of(graph)

    def _build_topology(self, fault: int, topology: Callable[..., nx.Graph]) -> list[tuple[int, ...]]:
        rng = self.streams.generator("changed topology", fault)
        return neighbours_of(topology(self.scenario.clients.count, rng))


def _is_given(section: Strict, key: str) -> bool:
    """Return whether an option differs from its default. The scenario of a run sets every option."""
    return bool(getattr(section, key) != type(section).model_fields[key].default)


@contextmanager
def collect_problems(problems: list[Problem]) -> Iterator[None]:
    """Append the problems of a `ScenarioError` to a list, so that all of them are reported together."""
    try:
        yield
    except ScenarioError as error:
        problems.extend(error.problems)
