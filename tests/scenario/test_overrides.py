"""Overrides: every lost setting causes a note."""

import json
from pathlib import Path
from typing import Any

import pytest

from rdpfl_sim import Scenario, ScenarioError
from rdpfl_sim.cli.main import main
from rdpfl_sim.scenario.overrides import Draft, choice_at
from rdpfl_sim.simulation.simulation import simulate
from rdpfl_sim.verification.verify import verify

FILE = """
rounds = 2
model = { name = "softmax" }
data = { name = "synthetic", shape = [8], num_classes = 3, num_train = 300, num_test = 60 }

[clients]
count = 6

[method]
name = "rdpfl"
aggregator = "median"
lambda = 1.0
max_norm = 5.0

[adversary]
fraction = 0.2
attack = { name = "noise", sigma = 3.0 }

[network]
latency = { name = "exponential", mean_s = 0.2 }

[timing]
wait = { name = "all", timeout_s = 3.0 }

[[faults]]
name = "crash"
clients = [1]
at_s = 1.0
recover_after_s = 2.0
"""
LAMBDA = "method.lambda was reset from 1.0 to its default 0.01, because its table was replaced"
MAX_NORM = "method.max_norm = 5.0 is dropped: direct has no such option"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "some.toml"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize("override", ["method={name='direct', aggregator='mean'}", "method=direct"])
def test_replaced_table_causes_notes_about_keys_reset_to_their_defaults(file: Path, override: str) -> None:
    scenario = Scenario.load(file, [override])
    assert scenario.to_dict()["method"]["lambda"] == 0.01
    assert LAMBDA in scenario.notes


def test_keys_set_by_the_new_table_are_not_reported_as_reset(file: Path) -> None:
    same = "{name='rdpfl', aggregator='median', lambda=1.0, max_norm=5.0}"
    for method in (same, "{name='direct', aggregator='mean', lambda=0.5}"):
        assert Scenario.load(file, [f"method={method}"]).notes == []
    assert Scenario.load(file, ["method={name='direct', aggregator='mean'}", "method.lambda=0.5"]).notes == []


@pytest.mark.parametrize(
    ("override", "note"),
    [
        ("adversary.attack={name='noise'}", "adversary.attack.sigma was reset from 3.0 to its default"),
        ("network={}", 'network.latency.name was reset from "exponential" to its default "constant"'),
        ("data={name='synthetic'}", "data.num_train was reset from 300 to its default"),
        ("method={name='krum_gossip'}", 'method.aggregator was reset from "median" to its default "krum"'),
    ],
)
def test_every_replaced_table_causes_notes_about_its_lost_keys(file: Path, override: str, note: str) -> None:
    assert any(found.startswith(note) for found in Scenario.load(file, [override]).notes)


def test_new_name_keeps_shared_options_and_reports_dropped_ones(file: Path) -> None:
    scenario = Scenario.load(file, ["method.name=direct"])
    method = scenario.to_dict()["method"]
    assert (method["name"], method["lambda"], method["aggregator"]["name"]) == ("direct", 1.0, "median")
    assert scenario.notes == [MAX_NORM]


@pytest.mark.parametrize(
    ("override", "note"),
    [
        ("adversary.attack.name=sign_flip", "adversary.attack.sigma = 3.0 is dropped: sign_flip has"),
        ("network.latency.name=constant", "network.latency.mean_s = 0.2 is dropped: constant has"),
        ("faults[0].name=late_join", "faults[0].recover_after_s = 2.0 is dropped: late_join has"),
    ],
)
def test_every_component_can_be_renamed(file: Path, override: str, note: str) -> None:
    [found] = Scenario.load(file, [override]).notes
    assert found.startswith(note)


def test_shared_option_with_a_value_that_the_new_component_does_not_allow_is_dropped() -> None:
    draft = Draft(Scenario, {"timing": {"wait": {"name": "quorum", "fraction": 0.5, "timeout_s": 3.0}}})
    draft.set("timing.wait.name", "all")
    assert draft.raw == {"timing": {"wait": {"name": "all", "timeout_s": 3.0}}}
    draft = Draft(Scenario, {"method": {"name": "clipped_gossip", "delta": 0.2, "radius": "adaptive"}})
    draft.raw["method"] = {"name": "rdpfl", "alpha": 0.0, "c": 2.0}
    draft.set("method.name", "ubar")
    assert draft.raw["method"] == {"name": "ubar", "alpha": 0.0}


def test_value_of_another_type_is_dropped() -> None:
    draft = Draft(Scenario, {"method": {"name": "rdpfl", "aggregator": "median", "step": "far"}})
    draft.set("method.name", "direct")
    assert draft.raw["method"] == {"name": "direct", "aggregator": "median"}
    assert draft.notes({}) == ['method.step = "far" is dropped: direct does not allow this value']


def test_misspelt_option_is_not_dropped_but_rejected(file: Path) -> None:
    with pytest.raises(ScenarioError, match=r"method.lamda: unknown key; did you mean 'lambda'"):
        Scenario.load(file, ["method.lamda=3", "method.name=direct"])


@pytest.mark.parametrize("later", ["method.name=direct", "method={name='direct'}", "method=direct"])
def test_override_that_a_later_one_replaces_is_rejected(file: Path, later: str) -> None:
    with pytest.raises(ScenarioError, match=r"method.max_norm: has no effect: the later `overrides` method"):
        Scenario.load(file, ["method.max_norm=2.0", later])


def test_same_path_can_be_set_again_and_the_last_value_counts(file: Path) -> None:
    assert Scenario.load(file, ["rounds=3", "rounds=4"]).rounds == 4


def test_seed_cannot_be_set_twice(file: Path) -> None:
    with pytest.raises(ScenarioError, match="seed: has no effect: `seed` replaces it"):
        Scenario.load(file, ["seed=3"], seed=4)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("method", "method"),
        ("method.aggregator", "aggregator"),
        ("method.pre_aggregators[0]", "pre_aggregator"),
        ("adversary.attack", "attack"),
        ("adversary[1].timing", "timing_attack"),
        ("faults[0]", "fault"),
        ("network.links[0].loss", "loss"),
        ("method.lambda", None),
        ("training", None),
        ("nothing.here", None),
    ],
)
def test_choice_is_found_by_its_path(path: str, kind: str | None) -> None:
    raw: dict[str, Any] = {
        "network": {"links": [{}]},
        "faults": [{"name": "crash"}],
        "method": {"pre_aggregators": ["nnm"]},
    }
    raw["adversary"] = [{}, {}] if "[1]" in path else {}
    choice = choice_at(Scenario, raw, path)
    assert (None if choice is None else choice.kind) == kind


def test_notes_do_not_change_the_hash_and_are_written_only_if_there_are_any(file: Path) -> None:
    plain, noted = Scenario.load(file), Scenario.load(file).with_notes(["something was lost"])
    assert plain.hash == noted.hash
    assert "notes" not in plain.to_dict()
    assert noted.to_dict()["notes"] == ["something was lost"]


def test_notes_are_warnings_of_the_run_on_stderr_and_in_its_summary(
    file: Path, tmp_path: Path, capsys: Any
) -> None:
    override = "method={name='direct', aggregator='mean'}"
    assert main([str(file), "--set", override, "-q", "--output", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert f"warning: {LAMBDA}" in printed.err
    folder = Path(printed.out.strip())
    assert json.loads((folder / "summary.json").read_text())["warnings"][0] == LAMBDA
    assert [check.name for check in verify(folder) if check.outcome == "violated"] == []
    again = simulate(Scenario.load(folder / "scenario.toml"))
    assert again.summary["warnings"][0] == LAMBDA, "also when the run is resumed or replayed from its folder"
