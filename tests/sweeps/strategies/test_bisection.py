"""Bisection on invented accuracies; tests/cli/test_breakdown_command.py runs it on real ones."""

import csv
import json
from collections.abc import Callable
from itertools import pairwise
from math import ceil, log2
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdpfl_sim import simulate
from rdpfl_sim.errors import ScenarioError
from rdpfl_sim.records.schema import SCHEMA
from rdpfl_sim.reports.breakdown import conclusion_lines
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.sweeps.plan import PlannedRun
from rdpfl_sim.sweeps.strategies import run_strategy
from rdpfl_sim.sweeps.strategies.bisection import (
    Bisection,
    Breakdown,
    BreakdownSpec,
    local_accuracy,
    make_spec,
    path_problems,
    reject_lost_overrides,
    values_between,
    write_breakdown,
)
from tests.results.run_folders import metrics_text, scores
from tests.support import small_scenario
from tests.sweeps.sweeping import FakeRunner, RecordingListener

ATTACKED = small_scenario(adversary={"fraction": 0.4, "attack": "sign_flip"}, method={"name": "direct"})


def spec(num_values: int, seeds: list[int], **changes) -> BreakdownSpec:
    values = [place / 100 for place in range(num_values)]
    return BreakdownSpec(ATTACKED, "method.lambda", values, seeds, **changes)


def search(spec: BreakdownSpec, output: Path, accuracy: Callable[[float, int], float | None]) -> Bisection:
    """Run a whole search; local training has accuracy 0.5, a run without accuracy fails."""

    def write(run: PlannedRun, folder: Path) -> bool:
        method = run.scenario.method
        score = 0.5 if method.name == "local" else accuracy(method.lambda_, run.scenario.seed)
        if score is not None:
            summary = {
                "schema": SCHEMA,
                "byzantine": [],
                "accuracy": {"honest": {"personal": {"mean": score}}},
            }
            row = {"client": 0, "byzantine": 0, "round": 4, **scores(1.0, score)}
            (folder / "summary.json").write_text(json.dumps(summary))
            (folder / "metrics.csv").write_text(metrics_text([row]))
        return score is not None

    found = Bisection(spec)
    run_strategy(found, FakeRunner(write), output, RecordingListener())
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
    started = Bisection(two_seeds)
    assert [(run.scenario.method.name, run.scenario.seed) for run in started.next_runs()] == [
        *[("local", 1), ("direct", 1), ("direct", 1)],
        *[("local", 2), ("direct", 2), ("direct", 2)],
    ]
    assert started.num_later_runs() == 2 * 3
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
    honest = local_accuracy(alone.folder, beside["byzantine"], "trained")["accuracy"]["honest"]
    assert honest == beside["accuracy"]["honest"]
    assert honest != alone.summary["accuracy"]["honest"]


# Values, problems and overrides

SIX = small_scenario(
    adversary={"fraction": 0.2, "attack": "sign_flip"},
    network={"loss": {"name": "bernoulli", "probability": 0.1}},
    timing={"wait": {"name": "deadline", "seconds": 2.0}},
)


def test_fraction_of_attackers_is_a_whole_number_of_clients() -> None:
    assert values_between(SIX, "adversary.fraction") == [0, 1 / 6, 2 / 6, 3 / 6]
    assert values_between(SIX, "adversary.fraction", 0.1, 0.4) == [1 / 6, 2 / 6]


def test_whole_number_is_varied_through_whole_numbers() -> None:
    assert list(values_between(SIX, "rounds", 2, 5)) == [2, 3, 4, 5]
    assert list(values_between(SIX, "rounds", 5, 2)) == [5, 4, 3, 2]
    assert len(values_between(SIX, "rounds", 1, 10**12)) == 10**12


def test_other_numbers_are_divided_as_finely_as_the_tolerance() -> None:
    assert values_between(SIX, "method.lambda", 0.0, 1.0, tolerance=0.3) == [0, 0.25, 0.5, 0.75, 1]
    assert values_between(SIX, "method.lambda", 1.0, 0.0, tolerance=0.5) == [1, 0.5, 0]
    found = values_between(SIX, "network.loss.probability")
    assert (found[0], found[-1], len(found)) == (0, 0.9, 33)
    assert all(low < high for low, high in pairwise(found))


def test_range_is_by_default_from_the_value_to_its_tenfold() -> None:
    found = values_between(SIX, "timing.wait.seconds")
    assert (found[0], found[-1]) == (2, 20)
    with pytest.raises(
        ScenarioError, match=r"`path`: needs `start` and `end` \(given: 'training.momentum'\)"
    ):
        values_between(SIX, "training.momentum")


def test_range_without_two_values_is_rejected() -> None:
    for start, end in ((0.2, 0.3), (0.2, 0.2)):
        with pytest.raises(
            ScenarioError,
            match=r"`start`, `end`: the range contains fewer than two values of adversary\.fraction",
        ):
            values_between(SIX, "adversary.fraction", start, end)
    with pytest.raises(ScenarioError, match=r"`start`, `end`"):
        values_between(SIX, "method.lambda", 1.0, 1.0)
    with pytest.raises(ScenarioError, match=r"`tolerance`: is too small"):
        values_between(SIX, "method.lambda", 0.0, 1.0, tolerance=1e-9)


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("method.lamda", "did you mean 'method.lambda'"),
        ("method.name", "the scenario has no such number"),
        ("method.clip", "the scenario has no such number"),  # neither true nor false is one
        ("timing.max_time_s", "`overrides` can add it"),
        ("seed", "the scenario has no such number"),
        ("faults[0].at_s", "the scenario has no such number"),
        ("", "the scenario has no such number"),
    ],
)
def test_path_that_is_not_a_number_is_rejected_with_similar_paths(path: str, hint: str) -> None:
    [problem] = path_problems(SIX, path)
    assert hint in str(problem)


def test_fraction_of_attackers_without_an_attack_is_rejected() -> None:
    [problem] = path_problems(small_scenario(), "adversary.fraction")
    assert "no attack configured" in str(problem)
    assert list(path_problems(SIX, "adversary.fraction")) == []


# Overrides of the command line


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "some.toml"
    path.write_text('method.lambda = 1.0\nadversary = { fraction = 0.2, attack = "noise" }\n')
    return path


@pytest.mark.parametrize(
    ("override", "path", "start", "end"),
    [
        ("adversary.fraction=0.1", "adversary.fraction", None, None),
        ("adversary={fraction=0.1, attack='noise'}", "adversary.fraction", None, None),
        ("method.lambda=0.5", "method.lambda", 0.1, 1.0),
        ("method={name='direct', lambda=0.5}", "method.lambda", 0.1, 1.0),
    ],
)
def test_override_that_vary_replaces_is_rejected(
    file: Path, override: str, path: str, start: float | None, end: float | None
) -> None:
    with pytest.raises(ScenarioError, match=f"{path}: has no effect: `path` replaces it"):
        reject_lost_overrides(file, ["rounds=3", override], path, start, end)


@pytest.mark.parametrize(
    ("override", "path", "start", "end"),
    [
        ("method.lambda=0.5", "method.lambda", None, 3.0),  # where the range begins
        ("timing.max_time_s=100.0", "timing.max_time_s", 10.0, 100.0),  # there is no such number without it
        ("method.max_norm=0.5", "method.lambda", 0.1, 1.0),
        ("method={name='direct'}", "method.lambda", 0.1, 1.0),
    ],
)
def test_override_that_has_an_effect_is_not_rejected(
    file: Path, override: str, path: str, start: float | None, end: float | None
) -> None:
    reject_lost_overrides(file, [override], path, start, end)
    assert len(values_between(Scenario.load(file, [override]), path, start, end)) >= 2


@pytest.mark.parametrize(("override", "words"), [("seed=3", "`seeds`"), ("output.folder=x", "`output`")])
def test_override_of_a_key_that_another_argument_sets_is_rejected(
    file: Path, override: str, words: str
) -> None:
    with pytest.raises(ScenarioError, match=f"has no effect: .*{words}"):
        reject_lost_overrides(file, [override], "method.lambda", 0.1, 1.0)


def test_local_training_is_one_run_unless_the_value_affects_it() -> None:
    lossy = small_scenario(
        adversary={"fraction": 0.4, "attack": "sign_flip"},
        network={"loss": {"name": "bernoulli", "probability": 0.1}},
        timing={"wait": {"name": "deadline", "seconds": 1.0}},
    )
    num_local_runs = {}
    for path in ("adversary.fraction", "network.loss.probability", "timing.wait.seconds", "method.lambda"):
        varied = make_spec(lossy, path, None, None, [1])
        num_local_runs[path] = len({varied.local_run(index, 1).key for index in (0, 1)})
    assert set(num_local_runs.values()) == {1}
    varied = make_spec(lossy, "training.learning_rate", None, None, [1])
    assert varied.local_run(0, 1).key != varied.local_run(1, 1).key


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"metric": "messages.sent"}, "`metric`: is not an accuracy of honest clients"),
        ({"metric": "accuracy.honest.global.mean"}, "`metric`: needs evaluation.global_test = true"),
        (
            {"metric": "accuracy.honest.validation.mean"},
            "`metric`: needs evaluation.validation_fraction above 0",
        ),
        ({"end": 1.0}, "adversary.fraction: leaves no honest client"),
    ],
)
def test_invalid_search_is_rejected(changes: dict, problem: str) -> None:
    base = small_scenario(
        adversary={"fraction": 0.4, "attack": "sign_flip"}, evaluation={"global_test": False}
    )
    with pytest.raises(ScenarioError, match=problem):
        make_spec(base, **{"path": "adversary.fraction", "start": None, "end": None, "seeds": [1]} | changes)


def test_local_training_is_not_compared_with_itself() -> None:
    with pytest.raises(ScenarioError, match=r"method\.name: is the baseline; choose a different method"):
        make_spec(small_scenario(method="local"), "rounds", 2, 4, [1])
