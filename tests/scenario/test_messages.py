"""Messages about frequent mistakes say what to write instead."""

import re
from pathlib import Path

import pytest

from rdpfl_sim import Scenario, ScenarioError, simulate
from rdpfl_sim.cli.main import main
from rdpfl_sim.scenario.overrides import paths_of_key
from rdpfl_sim.sweeps.spec import SweepSpec
from tests.support import small_scenario


def problems(path: Path | str, *overrides: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        Scenario.load(path, overrides)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("override", "suggestion"),
    [
        ("lambda=0.3", "lambda: unknown key; did you mean method.lambda?; allowed: name, seed,"),
        ("attack='noise'", "attack: unknown key; did you mean adversary.attack?; "),
        ("sigma=3", "did you mean adversary.attack.sigma or timing.compute.sigma?; "),
        ("network.lambda=3", "network.lambda: unknown key; did you mean method.lambda?; allowed: latency,"),
        ("sed=3", "sed: unknown key; did you mean 'seed'?; allowed: name,"),
        ("xyz=3", "xyz: unknown key; allowed: name,"),
    ],
)
def test_unknown_key_suggests_the_path_at_which_the_scenario_has_it(override: str, suggestion: str) -> None:
    [problem] = problems("ring_30pct", override)
    assert suggestion in problem


def test_suggested_paths_follow_the_chosen_components_and_the_groups_of_attackers() -> None:
    groups = [{"attack": {"name": "noise"}}, {"attack": "alie"}]
    assert paths_of_key(Scenario, {"adversary": groups}, "sigma") == ["adversary[0].attack.sigma"]
    assert paths_of_key(Scenario, {"method": "direct"}, "predictor") == []
    assert paths_of_key(Scenario, {}, "predictor") == ["method.predictor"]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["run", "any.toml", "--rounds", "5"], "unknown argument --rounds 5; did you mean --set rounds=5?"),
        (["any.toml", "--lambda=0.5"], "did you mean --set method.lambda=0.5?"),
        (["run", "--learning-rate", "0.5", "any.toml"], "did you mean --set training.learning_rate=0.5?"),
        (["sweep", "any.toml", "--rounds"], "did you mean --set rounds=VALUE?"),
        (["run", "any.toml", "--rounds", "--quiet"], "did you mean --set rounds=VALUE?"),
        (["run", "any.toml", "--nothing", "5"], "unknown argument --nothing 5\n"),
        (["show", "run", "--rounds", "5"], "unknown argument --rounds 5\n"),
    ],
)
def test_key_of_a_scenario_as_an_argument_suggests_an_override(words: list[str], hint: str, capsys) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        'latency = {\n name = "constant"\n}\n',
        'attack = { name = "noise" sigma = 3 }\n',
        'a = "}"  # }\nattack = { name: "noise" }\n',
        "attack = { name = 'noise', ",
    ],
)
def test_syntax_error_in_an_inline_table_is_called_that(text: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    [problem] = problems(path)
    assert problem.startswith(f"{path}: is not valid TOML: syntax error in an inline table: ")
    assert problem.endswith("{ name = 'noise', sigma = 3.0 }")


@pytest.mark.parametrize("text", ["rounds = \n", 'a = { b = "{" }\nrounds = \n', "a = '{'\nrounds 3\n"])
def test_other_syntax_errors_do_not_mention_inline_tables(text: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    [problem] = problems(path)
    assert "is not valid TOML" in problem
    assert "inline table" not in problem


def test_override_that_looks_like_a_table_or_a_list_must_be_valid() -> None:
    [problem] = problems("ring_30pct", "method={name = 'balance'")
    assert problem.startswith("method: is not valid TOML: syntax error in an inline table: ")
    [problem] = problems("ring_30pct", "adversary.ids=[1,")
    assert problem.startswith("adversary.ids: is not valid TOML: ")


def test_path_in_the_grid_without_quotes_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text("base = {}\n[grid]\nadversary.attack.sigma = [1.0, 2.0]\n")
    with pytest.raises(ScenarioError) as caught:
        SweepSpec.load(path)
    [problem] = caught.value.problems
    assert problem.path == "grid.adversary.attack.sigma"
    assert problem.message == 'must be in quotes, because it contains dots: "adversary.attack.sigma" = [...]'


def test_scalar_in_place_of_a_list_is_named_with_its_key(tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text(
        'base = {}\nseeds = 3\ngrid = { "method.lambda" = 0.3 }\nprofiles = { small = { seeds = 2 } }\n'
    )
    with pytest.raises(ScenarioError) as caught:
        SweepSpec.load(path)
    assert [str(problem) for problem in caught.value.problems] == [
        "seeds: must be a list, such as [3] (given: 3)",
        "grid.method.lambda: must be a list, such as [0.3] (given: 0.3)",
        "profiles.small.seeds: must be a list, such as [2] (given: 2)",
    ]
    [problem] = problems("ring_30pct", "faults={name = 'crash'}")
    assert "must be a list; a list of tables is written with [[double brackets]]" in problem


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("training.learning_rate=0", "training.learning_rate: must be > 0 (given: 0)"),
        ("training.learning_rate=1e31", "training.learning_rate: must be <= 1e+30 (given: 1e+31)"),
        ("training.momentum=1", "training.momentum: must be < 1 (given: 1)"),
        ("training.batch_size=1000001", "training.batch_size: must be <= 1,000,000 (given: 1000001)"),
        ("data.test_fraction=0.0", "data.test_fraction: must be > 0 (given: 0.0)"),
        ("rounds=2.5", "rounds: must be a valid integer (given: 2.5)"),
    ],
)
def test_bounds_are_short(override: str, problem: str) -> None:
    assert problems("ring_30pct", override) == [problem]


EXPONENTIAL = "network.latency.name=exponential"


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (
            ["adversary.fraction=20%"],
            "adversary.fraction: must be a number; did you mean 0.2? (given: '20%')",
        ),
        (["adversary.fraction=30"], "adversary.fraction: must be <= 1; did you mean 0.3? (given: 30)"),
        (["network.loss.probability=7"], "must be < 1; did you mean 0.07? (given: 7)"),
        (["network.loss.probability=12.5 %"], "did you mean 0.125? (given: '12.5 %')"),
        (
            [EXPONENTIAL, "network.latency.mean_s=200ms"],
            "must be a number; did you mean 0.2? (given: '200ms')",
        ),
        (
            ["timing.max_time_s=5 min"],
            "timing.max_time_s: must be a number; did you mean 300? (given: '5 min')",
        ),
        (
            ["network.latency={name='constant', seconds='2ms'}"],
            "seconds: must be a number; did you mean 0.002?",
        ),
        (
            [EXPONENTIAL, "network.latency.mean_ms=200"],
            "unknown key; did you mean mean_s = 0.2?; allowed: name,",
        ),
        (["timing.max_time_min=5"], "timing.max_time_min: unknown key; did you mean max_time_s = 300?; "),
        (["timing.wait.ms=1500"], "timing.wait.ms: unknown key; did you mean seconds = 1.5?; "),
        (["adversary.fraction_percent=20"], "unknown key; did you mean fraction = 0.2?; "),
    ],
)
def test_value_with_a_unit_gets_a_hint_with_the_value_to_write(overrides: list[str], problem: str) -> None:
    [found] = problems("ring_30pct", *overrides)
    assert problem in found


@pytest.mark.parametrize(
    "override",
    [
        "adversary.fraction=1.5",  # 150 % or 1.5 %
        "adversary.fraction=150%",
        "network.loss.probability=100",  # 1 is not allowed either
        "adversary.fraction=200ms",
        "rounds=20%",
        "network.bandwidth={name='uplink', bytes_per_s='5ms'}",
        "network.latency.mean_ms=fast",
    ],
)
def test_value_that_no_unit_explains_gets_no_hint(override: str) -> None:
    [found] = problems("ring_30pct", override)
    assert "=" not in found.partition("did you mean")[2].partition("?")[0]
    assert not re.search(r"did you mean [0-9]", found)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("[adversary]\nfraction = 20%\n", "did you mean fraction = 0.2?"),
        ("[network.latency]\nmean_s = 200ms # long\n", "did you mean mean_s = 0.2?"),
        ("[network]\nlatency = { name = 'exponential', mean_s = 200 ms }\n", "did you mean mean_s = 0.2?"),
    ],
)
def test_unit_in_a_file_gets_a_hint_with_the_value_to_write(text: str, hint: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    [problem] = problems(path)
    assert problem.startswith(f"{path}: is not valid TOML: ")
    assert problem.endswith(hint)


def test_simulate_takes_a_file_or_the_name_of_a_bundled_scenario(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('rounds = 1\nclients = { count = 3 }\nmodel = "softmax"\n')
    for scenario in (path, str(path)):
        assert simulate(scenario).summary["digest"] == simulate(Scenario.load(path)).summary["digest"]
    with pytest.raises(ScenarioError, match="No such file"):
        simulate("nothing.toml")
    assert simulate(small_scenario(rounds=1)).summary["status"] == "finished"
