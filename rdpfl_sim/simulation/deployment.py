"""What of a scenario needs neither data nor a model: graph, Byzantine clients, links and faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import networkx as nx

from rdpfl_sim.components.option_table import Component
from rdpfl_sim.components.options import client_ids
from rdpfl_sim.components.table import Strict
from rdpfl_sim.errors import Problem, ScenarioError, errors_at
from rdpfl_sim.randomness import Streams
from rdpfl_sim.rounding import round_down
from rdpfl_sim.scenario.checks import group_path
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.world.adversary.threat_model import Neighbourhoods, hops_to
from rdpfl_sim.world.faults.fault import Change, FaultContext, merged
from rdpfl_sim.world.network.links import Link
from rdpfl_sim.world.network.topology import neighbours as neighbours_of


class Deployment:
    """Who is linked to whom, who is Byzantine, and what will go wrong on the way.

    What cannot be built raises a `ScenarioError`.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.streams = Streams(scenario.seed)
        problems: list[Problem] = []
        with gathered(problems):
            self._build_graph()
        with gathered(problems):
            self._build_links()
        if problems:
            raise ScenarioError(problems)
        self.changes()  # once in vain, to see that all faults are possible

    @property
    def exchanges(self) -> bool:
        """Whether clients send anything to each other."""
        return bool(getattr(type(self.scenario.method).target, "exchanges", True))

    @property
    def topology(self) -> dict[str, Any]:
        """The content of topology.json."""
        return {
            "num_clients": len(self.graph),
            "edges": sorted(sorted(edge) for edge in self.graph.edges),
            "byzantine": self.byzantine,
        }

    @property
    def warnings(self) -> list[str]:
        """What a user should know before believing the result, as far as the scenario alone shows it."""
        timing = self.scenario.timing
        found = [*self.scenario.notes, *self.neighbourhoods.warnings]
        if (timing.wait.name, timing.staleness.name) == ("none", "drop") and self.exchanges:
            found.append(
                "clients do not wait, and drop messages of earlier rounds: they will use few or none "
                "(timing.staleness = 'keep' would use them)"
            )
        execution = self.scenario.execution
        if execution.executor.name == "stacked" and execution.device.startswith("cuda"):
            found.append(
                "on a GPU the last bits of a stacked client may depend on the clients computed with it, so "
                "that checkpoints and interruptions may change the digest; executor = 'inline' avoids this"
            )
        return [*found, *self._options_without_effect(), *self._outages_of_no_link()]

    def _options_without_effect(self) -> Iterator[str]:
        """Options that were given, but that other options make pointless."""
        scenario, network = self.scenario, self.scenario.network
        if not self.exchanges and self.byzantine:
            yield "nothing is exchanged, so attacks have no effect"
        if network.duplication > 0 and network.transport.name == "reliable":
            yield "network.duplication has no effect: a reliable transport drops second copies"
        if _is_given(scenario.output, "message_events") and not scenario.output.events:
            yield "output.message_events has no effect without output.events"
        method = scenario.method
        given = {key for key in type(method).model_fields if _is_given(method, key)}
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
        if method.name == "dfedavgm" and _is_given(scenario.training, "momentum"):
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

    def _outages_of_no_link(self) -> Iterator[str]:
        linked = set(map(frozenset, self.graph.edges))
        for place, fault in enumerate(self.scenario.faults):
            for pair in getattr(fault, "links", []):
                if fault.name == "link_outage" and frozenset(pair) not in linked:
                    yield f"faults[{place}]: clients {pair[0]} and {pair[1]} are not linked at the beginning"

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
            count = round_down(section.fraction * num_clients)
            with errors_at(f"{group_path(self.scenario.adversary, place)}.placement", section.placement):
                groups.append(section.placement.bind()(self.graph, count, rng, taken))
            taken.update(groups[-1])
        return groups

    def _build_links(self) -> None:
        """What every link is like, and what will go wrong with links and clients."""
        network, num_clients = self.scenario.network, self.scenario.clients.count
        with errors_at("network.geography", network.geography):
            self.propagation_s = network.geography.bind()(num_clients, self.streams)
        self.exceptions: dict[tuple[int, int], dict[str, Component]] = {}
        for place, section in enumerate(network.links):
            with errors_at(f"network.links[{place}]", section):
                senders = client_ids("from", section.from_, num_clients)
                recipients = client_ids("to", section.to, num_clients)
            pairs = [(i, j) for i in senders for j in recipients if i != j]
            pairs += [(j, i) for i, j in pairs] if section.both_ways else []
            models = {"latency": section.latency, "loses": section.loss}
            given = {key: model for key, model in models.items() if model is not None}
            for pair in pairs:
                self.exceptions[pair] = {**self.exceptions.get(pair, {}), **given}

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
            latency=models["latency"].bind(),
            loses=models["loses"].bind(),
        )

    def changes(self) -> Iterator[tuple[float, int, Change]]:
        """Everything that will change in the course of the run, from its beginning."""
        schedules, problems = [], list[Problem]()
        num_clients = self.scenario.clients.count
        for place, fault in enumerate(self.scenario.faults):
            context = FaultContext(
                num_clients=num_clients,
                links=sorted((min(edge), max(edge)) for edge in self.graph.edges),
                key=self.streams.key("fault", place),
                draw_topology=self._draw_topology,
                build_topology=partial(self._build_topology, place),
            )
            with gathered(problems), errors_at(f"faults[{place}]", fault):
                schedules.append(fault.bind()(context))
        if problems:
            raise ScenarioError(problems)
        return merged(schedules)

    def _draw_topology(self, number: int) -> list[tuple[int, ...]]:
        topology, num_clients = self.scenario.topology, self.scenario.clients.count
        with errors_at("topology", topology):  # a file may have vanished since the run began
            graph = topology.bind()(num_clients, self.streams.generator("topology", number))
        return neighbours_of(graph)

    def _build_topology(self, fault: int, topology: Callable[..., nx.Graph]) -> list[tuple[int, ...]]:
        rng = self.streams.generator("changed topology", fault)
        return neighbours_of(topology(self.scenario.clients.count, rng))


def _is_given(section: Strict, key: str) -> bool:
    """Whether an option is not at its default; a run's resolved scenario holds every option."""
    return bool(getattr(section, key) != type(section).model_fields[key].default)


@contextmanager
def gathered(problems: list[Problem]) -> Iterator[None]:
    """Add what goes wrong to the list, so that all of it is told at once."""
    try:
        yield
    except ScenarioError as error:
        problems.extend(error.problems)
