"""Every scenario file has an introduction, loads, and runs."""

from pathlib import Path

import pytest
import torch

from rdpfl_sim import Scenario, simulate
from rdpfl_sim.learning.datasets.download import CLASSES, data_folder
from rdpfl_sim.sweeps.spec import SweepSpec
from rdpfl_sim.sweeps.strategies.grid import plan_runs
from rdpfl_sim.toml import read_toml
from rdpfl_sim.world.adversary.timing import TIMING_ATTACKS
from rdpfl_sim.world.faults import FAULTS

SCENARIOS = Path(__file__).parents[2] / "scenarios"
PROFILES = SCENARIOS / "paper" / "profiles.toml"
SWEEPS = sorted(path for path in SCENARIOS.rglob("*.toml") if "base" in read_toml(path))
FILES = sorted(set(SCENARIOS.rglob("*.toml")) - {*SWEEPS, PROFILES})
STRESS = sorted((SCENARIOS / "stress").glob("*.toml"))
LIGHT = ["model=softmax", "training.local_steps=1", "evaluation.every=1000", "evaluation.global_test=false"]


def test_documented_scenarios_exist() -> None:
    documented = {
        "ring_30pct",
        "complete_clean",
        "small_world_async",
        "lossy_links",
        "stragglers",
        "torus_min_max",
        "everything",
    }
    assert documented <= {path.stem for path in FILES}


def test_every_table_of_the_paper_is_a_sweep_in_four_sizes() -> None:
    for name in ("clean", "robustness", "ablation", "sensitivity", "lambda"):
        sweep = SweepSpec.load(SCENARIOS / "paper" / f"{name}.toml")
        assert list(sweep.profiles) == ["full", "half-day", "hour", "minutes"]
        for run in plan_runs(sweep, "full"):
            scenario = run.scenario
            assert (scenario.clients.count, scenario.rounds, scenario.topology.name) == (10, 500, "complete")
            assert (scenario.training.batch_size, scenario.training.learning_rate) == (64, 0.01)
            assert scenario.adversary[0].fraction == (0.0 if name == "clean" else 0.3)


@pytest.mark.slow
@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_sweep_is_possible_in_every_profile(path: Path) -> None:
    sweep = SweepSpec.load(path)
    assert all(plan_runs(sweep, profile) for profile in (None, *sweep.profiles))


@pytest.mark.parametrize("path", [*FILES, *SWEEPS], ids=lambda path: path.stem)
def test_scenario_starts_with_a_comment_on_its_purpose_and_results(path: Path) -> None:
    head = [line for line in path.read_text().splitlines() if line.startswith("#")]
    assert head[0].startswith("# ")
    assert any(line.startswith("# Look for: ") for line in head[1:4])


@pytest.mark.parametrize("path", sorted(set(FILES) - set(STRESS)), ids=lambda path: path.stem)
def test_scenario_runs_for_a_few_rounds(path: Path) -> None:
    scenario = Scenario.load(path, ["rounds=3", "evaluation.every=100"])
    if scenario.data.name in CLASSES:
        if not (data_folder() / f"{scenario.data.name}.npz").exists():
            pytest.skip(f"needs rdpfl-sim data {scenario.data.name}")
        few = ["data.subset=500", "data.subset_test=100"]
        scenario = Scenario.load(path, ["rounds=3", "evaluation.every=100", *few])
    summary = simulate(scenario).summary
    assert summary["status"] == "finished"
    assert summary["messages"]["sent"] > 0
    assert summary["accuracy"]["honest"]["personal"]["mean"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("path", STRESS, ids=lambda path: path.stem)
def test_stress_scenario_finishes_and_its_message_counts_add_up(path: Path) -> None:
    scenario = Scenario.load(path, LIGHT)
    result = simulate(scenario)
    summary, account = result.summary, result.summary["messages"]
    assert summary["status"] == "finished"
    assert account["sent"] == account["delivered"] + account["lost"] + account["in_flight"]
    outcomes = ("used", "stale", "duplicate", "rejected", "left_over")
    assert account["delivered"] == sum(account[outcome] for outcome in outcomes)
    assert account["used"] > 0
    assert bool(scenario.faults) == (summary["num_faults"] > 0), "no fault happened"
    for client, w in enumerate(result.models.vectors):
        assert client in summary["byzantine"] or torch.isfinite(w).all()


def test_every_fault_and_every_timing_attack_has_a_stress_scenario() -> None:
    scenarios = [Scenario.load(path) for path in STRESS if path.stem != "everything"]
    everything = Scenario.load(SCENARIOS / "stress" / "everything.toml")
    assert {fault.name for scenario in scenarios for fault in scenario.faults} == set(FAULTS)
    assert {fault.name for fault in everything.faults} == set(FAULTS)
    timing_attacks = {group.timing.name for scenario in scenarios for group in scenario.adversary}
    assert timing_attacks == set(TIMING_ATTACKS)
    assert {group.timing.name for group in everything.adversary} == set(TIMING_ATTACKS)


def test_ring_30pct_says_why_neighbourhoods_are_outside_the_threat_model() -> None:
    path = next(path for path in FILES if path.stem == "ring_30pct")
    summary = simulate(Scenario.load(path, ["rounds=1"])).summary
    assert summary["neighbourhood"]["outside_threat_model"]
    outside, aggregator = summary["warnings"]
    assert outside.endswith("outside the paper's threat model, as intended: one of two neighbours is half")
    assert aggregator == "method.aggregator: 'median' of at most 2 messages is their mean"
    assert len(outside) <= 110
