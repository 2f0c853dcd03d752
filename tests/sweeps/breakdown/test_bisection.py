"""Bisection on invented accuracies; tests/cli/test_breakdown_command.py runs it on real ones."""

import csv
import json
from collections.abc import Callable
from math import ceil, log2
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdpfl_sim import simulate
from rdpfl_sim.records.metrics_file import HEADER
from rdpfl_sim.reports.breakdown import conclusion_lines
from rdpfl_sim.sweeps.breakdown.bisection import Bisection, Breakdown, local_accuracy, write_breakdown
from rdpfl_sim.sweeps.breakdown.spec import BreakdownSpec, make_spec
from rdpfl_sim.sweeps.results import folder_of
from tests.support import small_scenario

ATTACKED = small_scenario(adversary={"fraction": 0.4, "attack": "sign_flip"}, method={"name": "direct"})


def spec(num_values: int, seeds: list[int], **changes) -> BreakdownSpec:
    values = [place / 100 for place in range(num_values)]
    return BreakdownSpec(ATTACKED, "method.lambda", values, seeds, **changes)


def search(spec: BreakdownSpec, output: Path, accuracy: Callable[[float, int], float | None]) -> Bisection:
    """Run a whole search; local training has accuracy 0.5, a run without accuracy fails."""
    found = Bisection(spec, output)
    while runs := found.next_runs():
        for run in runs:
            folder, method = folder_of(run, output), run.scenario.method
            folder.mkdir(parents=True)
            score = 0.5 if method.name == "local" else accuracy(method.lambda_, run.scenario.seed)
            if score is None:
                folder.rmdir()
                continue
            summary = {"schema": 2, "byzantine": [], "accuracy": {"honest": {"personal": {"mean": score}}}}
            (folder / "summary.json").write_text(json.dumps(summary))
            (folder / "metrics.csv").write_text(f"{HEADER}\n1.0,0,0,4,,{score},,,,,,,,,\n")
        found.read_results()
    return found


def breakdown_of(
    spec: BreakdownSpec, output: Path, accuracy: Callable[[float, int], float | None]
) -> Breakdown:
    return search(spec, output, accuracy).result()


@pytest.mark.slow
@settings(max_examples=20)
@given(num_values=st.integers(2, 40), data=st.data())
def test_bisection_finds_the_first_value_below_in_logarithmically_many_runs(num_values: int, data) -> None:
    first = data.draw(st.integers(1, num_values - 1))
    with TemporaryDirectory() as folder:
        found = breakdown_of(
            spec(num_values, [1]), Path(folder), lambda x, seed: 0.4 if x >= first / 100 - 1e-9 else 0.6
        )
    [crossing] = found.crossings
    assert (crossing.holds, crossing.below) == (first - 1, first)
    assert len(found.points) <= 2 + ceil(log2(num_values - 1))


def test_every_seed_is_bisected_separately_but_in_the_same_steps(tmp_path: Path) -> None:
    two_seeds = spec(9, [1, 2])
    started = Bisection(two_seeds, tmp_path)
    assert [(run.scenario.method.name, run.scenario.seed) for run in started.next_runs()] == [
        *[("local", 1), ("direct", 1), ("direct", 1)],
        *[("local", 2), ("direct", 2), ("direct", 2)],
    ]
    assert started.max_later_points() == 2 * 3
    found = breakdown_of(two_seeds, tmp_path, lambda x, seed: 0.6 if x < seed / 50 else 0.4)
    assert [(c.holds, c.below) for c in found.crossings] == [(1, 2), (3, 4)]
    assert found.estimate is not None
    assert found.estimate.mean == pytest.approx(0.03)
    assert found.estimate.half_width == pytest.approx(12.7062 * 0.01, rel=1e-4)
    assert found.width == pytest.approx(0.01)
    assert "method.lambda = 0.03 ± 0.13 (95 % interval over 2 seeds)" in conclusion_lines(found)[0]


def test_tolerance_ends_the_search_early(tmp_path: Path) -> None:
    found = breakdown_of(spec(9, [1], tolerance=0.045), tmp_path, lambda x, seed: 0.6 if x < 0.015 else 0.4)
    assert [(c.holds, c.below) for c in found.crossings] == [(0, 4)]


def test_difference_within_the_margin_is_not_below(tmp_path: Path) -> None:
    found = breakdown_of(spec(9, [1], margin=0.045), tmp_path, lambda x, seed: 0.5 - x)
    assert found.crossings[0].below == 5


def test_equal_to_local_training_is_not_below_it(tmp_path: Path) -> None:
    found = breakdown_of(spec(3, [1]), tmp_path, lambda x, seed: 0.5)
    assert (found.never, found.without_effect) == ([1], True)
    assert any("method.lambda may have no effect" in line for line in conclusion_lines(found))


def test_seeds_outside_the_range_are_named_and_not_averaged(tmp_path: Path) -> None:
    def accuracy(x: float, seed: int) -> float:
        return {1: 0.4, 2: 0.6, 3: 0.6 if x < 0.05 else 0.4, 4: 0.6 if x < 0.02 else 0.4}[seed]

    found = breakdown_of(spec(9, [1, 2, 3, 4]), tmp_path, accuracy)
    assert (found.always, found.never, found.estimate) == ([1], [2], None)
    assert [(c.holds, c.below) for c in found.crossings] == [(None, 0), (8, None), (4, 5), (1, 2)]
    assert found.median == 2  # the lower one of 0, 2, 5 and beyond
    lines = conclusion_lines(found)
    assert "at method.lambda = 0.02 (median of 4 seeds)" in lines[0]
    assert "Already below at 0: seed 1." in lines
    assert "Not yet below at 0.08: seed 2." in lines
    assert "No mean and no interval: 2 of 4 breakdown points are outside the range." in lines


@pytest.mark.parametrize(
    ("accuracy", "text"),
    [(0.6, "never, up to method.lambda = 0.08 (2 seeds)"), (0.4, "already at method.lambda = 0 (")],
)
def test_all_seeds_outside_the_range_are_reported(accuracy: float, text: str, tmp_path: Path) -> None:
    found = breakdown_of(spec(9, [1, 2]), tmp_path, lambda x, seed: accuracy)
    assert text in conclusion_lines(found)[0]
    assert len(found.points) == 4


def test_seed_with_a_failed_run_is_abandoned_and_the_others_continue(tmp_path: Path) -> None:
    found = search(
        spec(9, [1, 2]),
        tmp_path,
        lambda x, seed: None if (x, seed) == (0.04, 1) else 0.6 if x < 0.03 else 0.4,
    )
    assert found.failed == {1}
    assert [(c.seed, c.below) for c in found.result().crossings] == [(2, 3)]


def test_files_contain_every_point_and_the_result(tmp_path: Path) -> None:
    found = breakdown_of(spec(3, [1, 2]), tmp_path, lambda x, seed: 0.6 if x < seed / 100 else 0.4)
    write_breakdown(found, tmp_path)
    with (tmp_path / "points.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["value"], row["seed"]) for row in rows] == [
        *[("0.0", "1"), ("0.0", "2"), ("0.01", "1"), ("0.01", "2"), ("0.02", "1"), ("0.02", "2")]
    ]
    assert float(rows[0]["difference"]) == pytest.approx(0.1)
    answer = json.loads((tmp_path / "breakdown.json").read_text())
    assert answer["seeds"]["2"] == {"holds_up_to": 0.01, "below_from": 0.02}
    assert answer["mean"] == pytest.approx(0.015)


def test_local_training_is_measured_on_the_honest_clients(tmp_path: Path) -> None:
    """One run without attackers and network is the local training for any set of attackers."""
    lossy = small_scenario(
        adversary={"fraction": 0.4, "attack": "label_flip"},
        network={"loss": {"name": "bernoulli", "probability": 0.5}},
        timing={"wait": {"name": "deadline", "seconds": 1.0}},
    )
    alone = simulate(
        make_spec(lossy, "adversary.fraction", None, None, [1]).local_run(2, 1).scenario, tmp_path
    )
    beside = simulate(small_scenario(**(lossy.to_dict() | {"method": "local"}))).summary
    assert len(beside["byzantine"]) == 2
    assert alone.folder is not None
    honest = local_accuracy(alone.folder, beside["byzantine"])["accuracy"]["honest"]
    assert honest == beside["accuracy"]["honest"]
    assert honest != alone.summary["accuracy"]["honest"]
