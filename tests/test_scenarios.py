"""Every scenario file says what it shows, loads, and runs."""

from pathlib import Path

import pytest

from rdpfl_sim import Scenario, simulate

FILES = sorted((Path(__file__).parents[1] / "scenarios").rglob("*.toml"))


def test_the_promised_scenarios_are_there() -> None:
    promised = {
        "ring_30pct",
        "complete_clean",
        "small_world_async",
        "lossy_links",
        "stragglers",
        "torus_min_max",
    }
    assert promised <= {path.stem for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario_begins_with_what_it_shows_and_what_to_look_for(path: Path) -> None:
    first, second, *_ = path.read_text().splitlines()
    assert first.startswith("# ")
    assert second.startswith("# Look for: ")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario_runs_for_a_few_rounds_with_its_accounts_in_order(path: Path) -> None:
    summary = simulate(Scenario.load(path, ["rounds=3", "evaluation.every=100"])).summary
    assert summary["status"] == "finished"
    assert summary["messages"]["sent"] > 0
    assert summary["accuracy"]["honest"]["personal"]["mean"] > 0


def test_ring_30pct_warns_of_neighbourhoods_outside_the_threat_model() -> None:
    path = next(path for path in FILES if path.stem == "ring_30pct")
    summary = simulate(Scenario.load(path, ["rounds=1"])).summary
    assert summary["neighbourhood"]["outside_threat_model"]
    assert "outside the paper's threat model" in summary["warnings"][0]
