"""Plug-ins declare facts about themselves; checks and warnings use them instead of names and options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import networkx as nx
import numpy as np
import pytest
from torch import Tensor

from rdpfl_sim.errors import OptionError, PluginError, ScenarioError
from rdpfl_sim.plugins import (
    Count,
    Fraction,
    Link,
    Positive,
    ScheduledMessage,
    ScheduleView,
    TimingView,
    View,
    attack,
    attack_schedule,
    loss,
    timing_attack,
    topology,
)
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.simulation.deployment import Deployment
from tests.registries import temporary_components
from tests.support import small_scenario

DEADLINE = {"wait": {"name": "deadline", "seconds": 1.0}}


@pytest.fixture(autouse=True)
def _plugins() -> Iterator[None]:
    def in_order(options: Any, num_clients: int) -> None:
        if options.first >= num_clients:
            raise OptionError("first", f"must be below {num_clients}")

    with temporary_components():

        @loss(loses=lambda share: share > 0)
        def jam(link: Link, draw: int, now_s: float, *, share: Fraction = 0.0) -> bool:
            """Lose messages."""
            return share > 0.5

        @topology(num_links=lambda num_clients, first: num_clients**2 * first, check=in_order)
        def hub(num_clients: int, rng: np.random.Generator, *, first: Count = 1) -> nx.Graph:
            """Link all clients to one."""
            return nx.star_graph(num_clients - 1)

        @timing_attack(needs_deadline=True, replaces={"late_s": "early_s"})
        def edge(
            view: TimingView, *, late_s: Positive | None = None, early_s: Positive = 1.0
        ) -> list[ScheduledMessage]:
            """Send near the deadline."""
            return [ScheduledMessage(view.payload, view.round)]

        @attack_schedule(needs_partitions=True, first_round="start")
        def split(view: ScheduleView, *, start: Count = 1) -> bool:
            """Attack in partitions."""
            return view.partitioned

        @attack(sends_own=True)
        def polite(view: View) -> Tensor:
            """Behave honestly."""
            return view.own

        yield


def problems(raw: dict[str, Any]) -> list[tuple[str, str]]:
    with pytest.raises(ScenarioError) as caught:
        Scenario.from_dict(raw)
    return [(problem.path, problem.message) for problem in caught.value.problems]


def test_loss_that_loses_nothing_needs_no_timeout() -> None:
    Scenario.from_dict({"network": {"loss": "jam"}})
    [(path, message)] = problems({"network": {"loss": {"name": "jam", "share": 0.1}}})
    assert path == "timing.wait"
    assert "network.loss is 'jam'" in message


def test_topology_that_is_too_dense_is_rejected_before_it_is_built() -> None:
    raw = {"clients": {"count": 4000}, "topology": {"name": "hub", "first": 2}}
    [(path, message)] = problems(raw)
    assert (path, "would have 32,000,000 links" in message) == ("topology", True)


def test_declared_check_reports_the_path_of_the_option() -> None:
    assert problems({"clients": {"count": 3}, "topology": {"name": "hub", "first": 3}}) == [
        ("topology.first", "must be below 3")
    ]


def test_timing_attack_that_needs_a_deadline_is_rejected_without_one() -> None:
    adversary = {"ids": [1], "timing": "edge"}
    assert [path for path, _ in problems({"adversary": adversary})] == ["adversary.timing"]
    Scenario.from_dict({"adversary": adversary, "timing": DEADLINE})


def test_option_and_the_one_that_it_replaces_are_exclusive() -> None:
    timing = {"name": "edge", "late_s": 2.0, "early_s": 1.0}
    raw = {"adversary": {"ids": [1], "timing": timing}, "timing": DEADLINE}
    assert problems(raw) == [("adversary.timing.late_s", "set either late_s or early_s, not both")]
    del timing["early_s"]
    written = Scenario.from_dict(raw).to_dict()
    assert written["adversary"]["timing"] == {"name": "edge", "late_s": 2.0}
    assert Scenario.from_dict(written).to_dict() == written


def test_schedule_that_never_starts_and_equivocation_of_an_own_update_cause_warnings() -> None:
    group = {
        "ids": [1],
        "attack": "polite",
        "equivocation": "mirrored",
        "schedule": {"name": "split", "start": 9},
    }
    found = Deployment(small_scenario(rounds=8, adversary=group)).warnings
    assert "an attack split never starts: no fault is a partition" in found
    assert "an attack with start = 9 never starts: rounds = 8" in found
    assert "equivocation has no effect: the attack sends the client's own update" in found


def test_error_in_a_fact_names_the_plugin() -> None:
    @loss(loses=lambda share: 1 / share)
    def broken(link: Link, draw: int, now_s: float, *, share: Fraction = 0.0) -> bool:
        """Declare a fact that fails."""
        return False

    with pytest.raises(PluginError, match=r"'broken'.* declares a fact that fails: ZeroDivisionError"):
        Scenario.from_dict({"network": {"loss": "broken"}})
