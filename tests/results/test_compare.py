import json
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from rdpfl_sim.records.schema import SCHEMA
from rdpfl_sim.results.compare import (
    Comparison,
    ComparisonError,
    baseline_first,
    compare,
    find_runs,
    group_runs,
)
from rdpfl_sim.simulation.provenance import default_paths
from tests.results.run_folders import write_provenance
from tests.support import small_scenario

MEAN = "accuracy.honest.personal.mean"
MEASURED = "Accuracies are measured after local training."


def make_run(parent: Path, name: str, accuracy: float | None = 0.5, seed: int = 1, **changes: Any) -> Path:
    """Write a run folder with an invented accuracy."""
    folder = parent / name
    folder.mkdir(parents=True)
    scenario = small_scenario(name=name, seed=seed, **changes)
    (folder / "scenario.toml").write_text(tomli_w.dumps(scenario.to_dict()))
    write_provenance(folder, ["unknown"], defaults=[*default_paths(scenario)])
    summary = {"schema": SCHEMA, "status": "finished", "seed": seed, "byzantine": [], "rounds_done": [4, 4]}
    summary |= {"accuracy": {"honest": {"personal": None if accuracy is None else {"mean": accuracy}}}}
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def make_pairs(parent: Path) -> None:
    """Write runs of two methods with three seeds each; the difference is 0.1, 0.2, 0.3."""
    for seed in (1, 2, 3):
        make_run(parent, f"b{seed}", 0.5 + seed / 10, seed=seed, method={"name": "rdpfl", "lambda": 0.5})
        make_run(parent, f"a{seed}", 0.5, seed=seed, method="local")


def compared(*arguments: Path, **options: Any) -> Comparison:
    return compare(group_runs(find_runs(arguments)), **options)


def test_seeds_of_a_scenario_are_one_group_and_are_paired(tmp_path: Path) -> None:
    make_pairs(tmp_path)
    found = compared(tmp_path)
    assert [(group.label, sorted(group.runs)) for group in found.groups] == [
        ("A", [1, 2, 3]),
        ("B", [1, 2, 3]),
    ]
    baseline, other = found.metrics[MEAN]
    assert baseline.difference is None
    assert other.mean.mean == pytest.approx(0.7)
    assert other.difference.mean == pytest.approx(0.2)
    assert other.difference.half_width == pytest.approx(4.302653 * 0.1 / 3**0.5, rel=1e-6)
    assert other.difference.num == 3
    assert found.settings == {"method.name": ["local", "rdpfl"], "method.lambda": [None, 0.5]}


def test_groups_of_a_folder_are_ordered_by_their_settings_and_arguments_stay_in_order(tmp_path: Path) -> None:
    for name, value in (("z", 0.5), ("x", 10.0), ("y", 2.0)):
        make_run(tmp_path / "many", name, method={"name": "rdpfl", "lambda": value})
    single = make_run(tmp_path, "single", method={"name": "rdpfl", "lambda": 3.0})
    assert compared(tmp_path / "many").settings["method.lambda"] == [0.5, 2.0, 10.0]
    assert compared(single, tmp_path / "many").settings["method.lambda"] == [3.0, 0.5, 2.0, 10.0]


def started(folder: Path, *times: str) -> Path:
    """Write the start times of the sessions of a run."""
    defaults = json.loads((folder / "provenance.json").read_text())["defaults"]
    write_provenance(folder, [f"2026-01-01T{time}+00:00" for time in times], defaults=defaults)
    return folder


def test_the_oldest_run_of_a_folder_is_the_baseline_and_the_others_are_ordered_by_their_settings(
    tmp_path: Path,
) -> None:
    values = {"old": 2.0, "new": 0.5, "newer": 10.0, "unknown": 1.0}
    folders = {
        name: make_run(tmp_path, name, method={"name": "rdpfl", "lambda": value})
        for name, value in values.items()
    }
    started(folders["old"], "09:00:00", "23:00:00")
    started(folders["new"], "10:00:00")
    started(folders["newer"], "11:00:00")
    assert compared(tmp_path).settings["method.lambda"] == [2.0, 0.5, 1.0, 10.0]
    newest = started(make_run(tmp_path / "other", "newest", rounds=9), "12:00:00")
    assert compared(newest, tmp_path).settings["rounds"] == [9, 4, 4, 4, 4]


def test_a_setting_whose_first_seed_is_the_oldest_run_is_the_baseline(tmp_path: Path) -> None:
    make_pairs(tmp_path)
    for hour, name in enumerate(("b2", "a1", "a2", "a3", "b1", "b3")):
        started(tmp_path / name, f"{hour:02d}:00:00")
    assert compared(tmp_path).settings["method.name"] == ["rdpfl", "local"]


def test_seeds_without_a_partner_are_omitted_with_a_note(tmp_path: Path) -> None:
    make_pairs(tmp_path)
    make_run(tmp_path, "a9", 0.0, seed=9, method="local")
    found = compared(tmp_path)
    assert found.metrics[MEAN][0].mean.mean == pytest.approx(0.5)
    assert found.notes == ["A: seed 9 omitted: no partner in any other group", MEASURED]


def test_run_without_the_metric_is_not_a_pair(tmp_path: Path) -> None:
    make_pairs(tmp_path)
    (tmp_path / "b3" / "summary.json").write_text(
        json.dumps({"schema": SCHEMA, "status": "failed", "error": "out of memory"})
    )
    (tmp_path / "a1" / "summary.json").unlink()
    found = compared(tmp_path)
    assert found.metrics[MEAN][1].difference.num == 1
    assert f"A: {tmp_path}/a1 is unfinished, without a summary.json" in found.notes
    assert f"B: {tmp_path}/b3 is failed (out of memory)" in found.notes


def test_interrupted_run_is_compared_with_a_note(tmp_path: Path) -> None:
    first, second = (make_run(tmp_path, name, method=name) for name in ("local", "rdpfl"))
    path = second / "summary.json"
    summary = json.loads(path.read_text()) | {"status": "interrupted", "rounds_done": [2, 3]}
    path.write_text(json.dumps(summary))
    found = compared(first, second)
    assert found.metrics[MEAN][1].difference.mean == 0
    assert found.notes == [f"B: {second} is interrupted after 2 to 3 of 4 rounds", MEASURED]


def test_different_byzantine_clients_are_noted(tmp_path: Path) -> None:
    first, second = (make_run(tmp_path, name, method=name) for name in ("local", "rdpfl"))
    summary = json.loads((second / "summary.json").read_text()) | {"byzantine": [2]}
    (second / "summary.json").write_text(json.dumps(summary))
    [note, measured] = compared(first, second).notes
    assert measured == MEASURED
    assert note.startswith("B: Byzantine clients differ from those in A")


def test_different_moments_of_the_accuracies_are_noted(tmp_path: Path) -> None:
    first = make_run(tmp_path, "first")
    second = make_run(tmp_path, "second", evaluation={"moments": "updated"})
    [note] = compared(first, second).notes
    assert note == (
        "Accuracies are measured at different moments: A after local training, B after the exchange."
    )


def test_baseline_is_chosen_by_label_setting_or_folder(tmp_path: Path) -> None:
    make_pairs(tmp_path)
    groups = group_runs(find_runs([tmp_path]))
    for chosen in ("B", "b", "method.name=rdpfl", "method.lambda=0.5", str(tmp_path / "b2")):
        assert [group.label for group in baseline_first(groups, chosen)] == ["B", "A"]
    with pytest.raises(ComparisonError, match=r"no group matches \(of A, B\)"):
        baseline_first(groups, "C")
    with pytest.raises(ComparisonError, match=r"2 groups match \(A, B\)"):
        baseline_first(groups, "model.name=softmax")


def test_additional_metrics_are_shown_on_request(tmp_path: Path) -> None:
    make_pairs(tmp_path)
    for folder in tmp_path.iterdir():
        summary = json.loads((folder / "summary.json").read_text()) | {"extra": {"x": 7, "flag": True}}
        (folder / "summary.json").write_text(json.dumps(summary))
    assert list(compared(tmp_path).metrics) == [MEAN]
    assert list(compared(tmp_path, metrics=["extra.x"]).metrics) == [MEAN, "extra.x"]
    assert list(compared(tmp_path, metrics=["all"]).metrics) == [MEAN, "extra.x"]
    with pytest.raises(ComparisonError, match=r"`metric` extra\.y: .*did you mean 'extra\.x'"):
        compared(tmp_path, metrics=["extra.y"])


def test_same_scenario_and_seed_twice_needs_groups_by_argument(tmp_path: Path) -> None:
    first = make_run(tmp_path / "old", "run", 0.5)
    second = make_run(tmp_path / "new", "run", 0.6)
    with pytest.raises(ComparisonError, match=r"the same seed \(1\) and the same scenario: .*`by_argument`"):
        group_runs(find_runs([first, second]))
    found = compare(group_runs(find_runs([first, second]), by_argument=True))
    assert found.metrics[MEAN][1].difference.mean == pytest.approx(0.1)
    assert found.settings == {}
    make_run(tmp_path / "new", "another", 0.6, rounds=7)
    with pytest.raises(ComparisonError, match="belong to the same argument"):
        group_runs(find_runs([first, tmp_path / "new"]), by_argument=True)


def test_runs_that_cannot_be_compared_are_rejected(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs", "one")
    (tmp_path / "empty").mkdir()
    for arguments, message in (
        ([tmp_path / "nowhere"], "does not exist"),
        ([run / "scenario.toml"], "is not a folder"),
        ([tmp_path / "empty"], "is not a run folder"),
        ([run, run.parent], "is given twice"),
        ([run], "all runs have the same scenario"),
    ):
        with pytest.raises(ComparisonError, match=message):
            group_runs(find_runs(arguments))
    other = make_run(tmp_path / "runs", "two", seed=2, rounds=5)
    with pytest.raises(ComparisonError, match="no seed in common: A has seed 1, B has seed 2"):
        compared(run, other)
    (run / "summary.json").write_text("{")
    with pytest.raises(ComparisonError, match=r"summary\.json is damaged"):
        find_runs([run])
