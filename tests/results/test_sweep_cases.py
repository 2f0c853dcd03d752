"""Compare the cases of one axis of a sweep within the cases of the others."""

import json
from pathlib import Path
from typing import Any

import pytest

from rdpfl_sim.cli.main import main
from rdpfl_sim.results import Sweep
from rdpfl_sim.results.compare import (
    ComparisonError,
    SweepComparison,
    compare_sweep,
    find_runs,
    ignored_note,
)
from tests.results.test_compare import MEAN, make_run

METHODS = {"alone": "local", "ours": "rdpfl"}


def make_sweep(folder: Path) -> Path:
    """Write two methods under two attacks with two seeds; ours gains 0.1 without and 0.3 with noise."""
    runs = []
    for method, name in METHODS.items():
        for attack in ("none", "noise"):
            for seed in (1, 2):
                gain = {"none": 0.1, "noise": 0.3}[attack] if method == "ours" else 0.0
                adversary: Any = {"fraction": 0.2, "attack": "noise"} if attack == "noise" else []
                run = f"{method}-{attack}-{seed}"
                make_run(
                    folder,
                    run,
                    0.5 + gain + seed / 100,
                    seed=seed,
                    method=name,
                    adversary=adversary,
                    rounds=2,
                )
                runs.append({"folder": run, "labels": {"method": method, "attack": attack}})
    plan_axes = [{"name": "method", "labels": [*METHODS]}, {"name": "attack", "labels": ["none", "noise"]}]
    (folder / "sweep.json").write_text(json.dumps({"name": "mine", "axes": plan_axes, "runs": runs}))
    return folder


def compared(folder: Path, baseline: str | None = None) -> SweepComparison:
    return compare_sweep(Sweep(folder), baseline)


def test_cases_are_paired_by_seed_within_the_other_axes(tmp_path: Path) -> None:
    found = compared(make_sweep(tmp_path))
    assert (found.axis, found.baseline, found.other_axes) == ("method", "alone", ["attack"])
    gains = {}
    for title, comparison in found.blocks.items():
        assert [group.label for group in comparison.groups] == ["alone", "ours"]
        difference = comparison.metrics[MEAN][1].difference
        assert difference is not None
        assert difference.num == 2
        gains[title] = difference.mean
    assert gains == {"attack = none": pytest.approx(0.1), "attack = noise": pytest.approx(0.3)}


@pytest.mark.parametrize("baseline", ["method=ours", "ours", "method.name=rdpfl"])
def test_baseline_is_a_case_a_label_or_a_setting(tmp_path: Path, baseline: str) -> None:
    found = compared(make_sweep(tmp_path), baseline)
    assert (found.axis, found.baseline) == ("method", "ours")
    assert [group.label for group in found.blocks["attack = none"].groups] == ["ours", "alone"]


def test_local_training_is_the_default_baseline(tmp_path: Path) -> None:
    text = (make_sweep(tmp_path) / "sweep.json").read_text()
    (tmp_path / "sweep.json").write_text(text.replace('"ours"', '"Local"'))
    assert compared(tmp_path).baseline == "Local"


def test_runs_that_are_not_in_the_plan_are_ignored_and_counted(tmp_path: Path, capsys) -> None:
    make_run(make_sweep(tmp_path), "old", 0.0, seed=1, method="local", rounds=9)
    assert ignored_note(tmp_path) == [
        f"{tmp_path}: 1 run folder ignored: not in the plan of the sweep (sweep.json)"
    ]
    assert [len(runs) for runs in find_runs([tmp_path])] == [8]
    assert main(["compare", str(tmp_path), "--markdown"]) == 0
    output, messages = capsys.readouterr()
    assert "ignored" not in output
    assert "1 run folder ignored" in messages


def test_cases_without_a_partner_are_named(tmp_path: Path) -> None:
    make_sweep(tmp_path)
    for seed in (1, 2):
        (tmp_path / f"alone-noise-{seed}" / "scenario.toml").unlink()
    found = compared(tmp_path)
    assert list(found.blocks) == ["attack = none"]
    assert found.notes[:2] == [
        "2 of 8 planned runs are missing",
        "attack = noise omitted: no seed of alone has a partner",
    ]


@pytest.mark.parametrize(
    ("baseline", "message"),
    [
        ("attack=nose", "the axis attack has no such case; did you mean 'noise'"),
        ("theirs", "no case matches; allowed: method=alone; method=ours; attack=none; attack=noise"),
        ("rounds=2", "no case matches"),
        ("method.name=[1", r"`baseline` method\.name: is not valid TOML: "),
        ("rounds=2\nseed=1", "must be one value"),
    ],
)
def test_unknown_baseline_is_rejected_with_the_cases(tmp_path: Path, baseline: str, message: str) -> None:
    with pytest.raises(ComparisonError, match=message):
        compared(make_sweep(tmp_path), baseline)


def test_output_has_the_labels_of_the_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_sweep(tmp_path)
    assert main(["compare", str(folder), "--baseline", "method=alone"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "mine: baseline method = alone; paired by seed within attack"
    assert lines[2] == "attack = none"
    [first, second] = [line.split() for line in lines if line.startswith(MEAN)]
    assert first == [MEAN, "0.5150", "0.6150", "+0.1000", "±", "0.0000"]
    assert second == [MEAN, "0.5150", "0.8150", "+0.3000", "±", "0.0000"]
    assert main(["compare", str(folder), "--markdown"]) == 0
    markdown = capsys.readouterr().out
    assert "### attack = noise" in markdown
    assert "| metric | alone | ours | ours - alone |" in markdown
