"""A covering array over the registries: every allowed pair of components occurs in a campaign."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations, product
from math import inf
from random import Random
from typing import TypeAlias

from rdpfl_sim.components.schema import components_in
from rdpfl_sim.errors import ScenarioError
from rdpfl_sim.scenario.component_list import KINDS
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.scenario.sections import CHOICES
from tests.fuzz.execution import REMOTE, built
from tests.fuzz.scenarios import RandomScenario, options_with, random_scenario

PAIRED = (
    *("fault", "timing_attack", "wait", "topology", "transport", "loss", "method", "aggregator", "attack"),
    "executor",
)
"""A campaign draws every pair of components of these kinds, and every component of the other kinds."""

APART = {("executor", name) for name in REMOTE}
"""Components that are drawn, but not in every pair: starting their workers takes seconds."""

ATTEMPTS = 12

Chosen: TypeAlias = tuple[str, str]
"""A component: its kind and its name."""
Pair: TypeAlias = frozenset[Chosen]
Location: TypeAlias = tuple[str | int, ...]


def components() -> list[Chosen]:
    """Return every component of every kind."""
    return [(kind, name) for kind, choice in KINDS.items() for name in choice.usable_names()]


def chosen_in(scenario: Scenario) -> Iterator[tuple[Chosen, Location]]:
    """Yield the components of a scenario with their locations."""
    for location, component in components_in(scenario):
        for kind, choice in KINDS.items():
            if choice.registry.get(component.name) is type(component).target:
                yield (kind, component.name), location


def drawn_in(scenario: Scenario, groups: list[list[int]]) -> set[Chosen]:
    """Return the components of a scenario; those of attackers only if there are any."""
    empty = [("adversary", place) for place, members in enumerate(groups) if not members]
    return {chosen for chosen, location in chosen_in(scenario) if location[:2] not in empty}


@dataclass
class Plan:
    """The scenarios of a campaign, and the pairs that they cover."""

    seed: int
    scenarios: list[RandomScenario] = field(default_factory=list)
    members: list[set[Chosen]] = field(default_factory=list)
    """The components of every scenario."""
    missing: set[Pair] = field(default_factory=set)
    drawn: set[Pair] = field(default_factory=set)
    refused: dict[Pair, str] = field(default_factory=dict)
    """Pairs that the simulator does not allow, with its reason."""

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        names = {kind: [name for found, name in components() if found == kind] for kind in KINDS}
        self.names = names
        for one, other in combinations(PAIRED, 2):
            for pair in product(
                ((one, name) for name in names[one]), ((other, name) for name in names[other])
            ):
                if not APART.intersection(pair):
                    self.missing.add(frozenset(pair))
        for kind in KINDS:
            if kind not in PAIRED:
                self.missing |= {frozenset({(kind, name)}) for name in names[kind]}
        self.missing |= {frozenset({chosen}) for chosen in APART}
        self.num_pairs = len(self.missing)
        for kind, method in product(KINDS.keys() - CHOICES.keys(), names["method"]):
            if not options_with(kind, CHOICES["method"], method):
                for name in names[kind]:
                    self._refuse(frozenset({("method", method), (kind, name)}), f"no option for a {kind}")

    def _refuse(self, pair: Pair, reason: str) -> None:
        if pair in self.missing:
            self.missing.discard(pair)
            self.refused[pair] = reason

    def extend(self, number: int, max_scenarios: float = inf) -> None:
        """Add scenarios until there are `number`, more if pairs are still missing."""
        while len(self.scenarios) < max_scenarios and (self.missing or len(self.scenarios) < number):
            pair, heals = self._next_pair(), len(self.scenarios) % 5 == 4
            if pair is None:
                self._add({}, heals, ATTEMPTS)
            elif not any(self._add(self._complete(pair), heals, attempts=3) for _ in range(2)):
                self._add_pair(pair)

    def _next_pair(self) -> Pair | None:
        """Return a missing pair; the order does not depend on hashes."""
        return min(self.missing, key=lambda pair: _hash(self.seed, pair), default=None)

    def _complete(self, pair: Pair) -> dict[str, str]:
        """Return one component per kind, so that as many missing pairs as possible are covered."""
        row = dict(pair)
        kinds = [kind for kind in PAIRED if kind not in row]
        self.random.shuffle(kinds)
        for kind in kinds:
            names = [name for name in self.names[kind] if self._fits(row, (kind, name))]
            self.random.shuffle(names)
            if names:
                row[kind] = max(names, key=lambda name: self._num_new(row, (kind, name)))
        return row

    def _fits(self, row: Mapping[str, str], chosen: Chosen) -> bool:
        return chosen not in APART and not any(
            frozenset({chosen, other}) in self.refused for other in row.items()
        )

    def _num_new(self, row: Mapping[str, str], chosen: Chosen) -> int:
        return sum(frozenset({chosen, other}) in self.missing for other in row.items())

    def _add_pair(self, pair: Pair) -> None:
        """Add a scenario with a pair, and nothing else that is required; or record why it is refused."""
        if not self._add(dict(pair), heals=False, attempts=ATTEMPTS):
            self._refuse(pair, self.reason)

    def _add(self, required: Mapping[str, str], heals: bool, attempts: int) -> bool:
        """Add a scenario with the required components if a valid one is found; return whether it was."""
        for _ in range(attempts):
            drawn = random_scenario(self.random.randrange(2**63), required, heals)
            try:
                with built(drawn) as experiment:
                    members = drawn_in(experiment.scenario, experiment.deployment.groups)
            except ScenarioError as error:
                problem = error.problems[0]
                self.reason = f"{problem.path}: {problem.message}"
                continue
            lacking = set(required.items()) - members
            if lacking:
                self.reason = f"unused: {', '.join(f'{kind} {name}' for kind, name in sorted(lacking))}"
                continue
            self.scenarios.append(drawn)
            self.members.append(members)
            pairs = {frozenset({chosen}) for chosen in members}
            pairs |= {frozenset(pair) for pair in combinations(members, 2)}
            self.drawn |= pairs & self.missing
            self.missing -= pairs
            return True
        return False


def _hash(seed: int, pair: Pair) -> int:
    return Random(f"{seed} {sorted(pair)}").getrandbits(64)
