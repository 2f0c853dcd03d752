"""Warnings of the runs of a sweep."""

from typing import Any

import networkx as nx
import pytest

from rdpfl_sim.reports.text import similar_warnings, sweep_warnings
from rdpfl_sim.world.adversary.threat_model import ATTACKS_WITHOUT_EFFECT, Neighbourhoods


def summary(*warnings: str, byzantine: tuple[int, ...] = (0,)) -> dict[str, Any]:
    return {"byzantine": list(byzantine), "warnings": [*warnings]}


def test_warnings_about_the_threat_model_are_merged_with_the_range_of_their_number() -> None:
    graphs = [nx.cycle_graph(4), nx.star_graph(15), nx.star_graph(1)]
    found = [Neighbourhoods.of(graph, [0]).warnings() for graph in graphs]
    assert similar_warnings([*found, []]) == [
        "1 to 15 of 1 to 15 honest clients are outside the paper's threat model: "
        "at least half of their neighbours are Byzantine (in 3 of 4 runs)"
    ]


@pytest.mark.parametrize(
    ("texts", "merged"),
    [
        (["2 clients are idle", "12 clients are idle", "3 clients are idle"], "2 to 12 clients are idle"),
        (["1 client has one", "3 clients have one"], "1 to 3 clients have one"),
        (["idle: 0.85 s", "idle: 1,200.5 s"], "idle: 0.85 to 1,200.5 s"),
        (["idle: 3, 4, 5 and 2 more", "idle: 7"], "idle: 3, 4, 5 and 2 more"),
        (["equal (3)", "equal (3)"], "equal (3)"),
    ],
)
def test_warnings_that_differ_in_numbers_are_one_warning(texts: list[str], merged: str) -> None:
    similar = "similar " if "more" in merged else ""
    assert similar_warnings([[text] for text in texts]) == [f"{merged} ({similar}in all {len(texts)} runs)"]


def test_warnings_about_different_parts_of_a_scenario_are_not_merged() -> None:
    found = similar_warnings([["faults[0]: rare"], ["faults[1]: rare"], ["G_0 is large"], ["G_1 is large"]])
    assert found == [
        "faults[0]: rare (in 1 of 4 runs)",
        "faults[1]: rare (in 1 of 4 runs)",
        "G_0 is large (in 1 of 4 runs)",
        "G_1 is large (in 1 of 4 runs)",
    ]


def test_local_training_as_the_baseline_of_a_sweep_gives_no_warning() -> None:
    local = summary(ATTACKS_WITHOUT_EFFECT, "slow")
    assert sweep_warnings([local, summary()]) == ["slow (in 1 of 2 runs)"]
    for other in (local, summary(byzantine=())):
        assert any(ATTACKS_WITHOUT_EFFECT in text for text in sweep_warnings([local, other]))


def test_warnings_that_were_shown_before_are_omitted() -> None:
    assert sweep_warnings([summary("shown", "new"), summary("shown")], {"shown"}) == ["new (in 1 of 2 runs)"]
