from itertools import pairwise
from pathlib import Path

import pytest

from rdpfl_sim.errors import ScenarioError
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.sweeps.breakdown.spec import make_spec, path_problems, reject_lost_overrides, values_between
from tests.support import small_scenario

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
    with pytest.raises(ScenarioError, match=r"--vary: needs --from and --to \(given: 'training.momentum'\)"):
        values_between(SIX, "training.momentum")


def test_range_without_two_values_is_rejected() -> None:
    for start, end in ((0.2, 0.3), (0.2, 0.2)):
        with pytest.raises(
            ScenarioError,
            match=r"--from, --to: the range contains fewer than two values of adversary\.fraction",
        ):
            values_between(SIX, "adversary.fraction", start, end)
    with pytest.raises(ScenarioError, match=r"--from, --to"):
        values_between(SIX, "method.lambda", 1.0, 1.0)
    with pytest.raises(ScenarioError, match=r"--tolerance: is too small"):
        values_between(SIX, "method.lambda", 0.0, 1.0, tolerance=1e-9)


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("method.lamda", "did you mean 'method.lambda'"),
        ("method.name", "the scenario has no such number"),
        ("method.clip", "the scenario has no such number"),  # neither true nor false is one
        ("timing.max_time_s", "--set can add it"),
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
    with pytest.raises(ScenarioError, match=f"{path}: has no effect: --vary replaces it"):
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


@pytest.mark.parametrize(("override", "words"), [("seed=3", "--seeds"), ("output.folder=x", "--output")])
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
        ({"metric": "messages.sent"}, "--metric: is not an accuracy of honest clients"),
        ({"metric": "accuracy.honest.global.mean"}, "--metric: needs evaluation.global_test = true"),
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
