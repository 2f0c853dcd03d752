from itertools import product
from pathlib import Path

import pytest

from rdpfl_sim import Scenario, ScenarioError
from rdpfl_sim.sweeps.spec import SweepSpec
from rdpfl_sim.sweeps.strategies.grid import overrides_replaced_by, plan_runs

RAW = {
    "seeds": [1, 2],
    "base": {"rounds": 3, "clients": {"count": 4}},
    "grid": {"method.lambda": [0.1, 1.0]},
    "axis": [
        {
            "name": "method",
            "cases": [
                {"label": "Mean", "set": {"method": {"name": "direct"}}},
                {"label": "R-DPFL", "set": {"method": "rdpfl"}},
            ],
        }
    ],
    "profiles": {"quick": {"set": {"rounds": 1}, "seeds": [7]}},
}


def test_every_combination_is_run_with_every_seed() -> None:
    runs = plan_runs(SweepSpec.from_dict(RAW))
    assert len(runs) == 2 * 2 * 2
    found = {(run.labels["method"], run.labels["method.lambda"], run.scenario.seed) for run in runs}
    assert found == set(product(("Mean", "R-DPFL"), ("0.1", "1.0"), (1, 2)))
    assert all(run.scenario.method.lambda_ == float(run.labels["method.lambda"]) for run in runs)
    assert {run.scenario.method.name for run in runs if run.labels["method"] == "Mean"} == {"direct"}


def test_profile_changes_every_run() -> None:
    runs = plan_runs(SweepSpec.from_dict(RAW), "quick")
    assert len(runs) == 4
    assert {(run.scenario.rounds, run.scenario.seed) for run in runs} == {(1, 7)}


def test_set_changes_every_run_and_profile_and_cases_take_precedence() -> None:
    overrides = {"rounds": 5, "method.alpha": 0.5, "method.lambda": 9.0, "clients.count": 6}
    sweep = SweepSpec.from_dict({**RAW, "axis": [], "set": overrides})
    for run in plan_runs(sweep):
        assert (run.scenario.rounds, run.scenario.clients.count, run.scenario.method.alpha) == (5, 6, 0.5)
        assert run.scenario.method.lambda_ == float(run.labels["method.lambda"])
    assert {run.scenario.rounds for run in plan_runs(sweep, "quick")} == {1}
    assert {run.scenario.clients.count for run in plan_runs(sweep, "quick")} == {6}
    assert sweep.base == RAW["base"]


def test_runs_of_a_sweep_have_one_thread_each_by_default() -> None:
    assert {run.scenario.execution.threads for run in plan_runs(SweepSpec.from_dict(RAW))} == {1}
    threaded = {**RAW, "base": {**RAW["base"], "execution": {"threads": 2}}}
    assert {run.scenario.execution.threads for run in plan_runs(SweepSpec.from_dict(threaded))} == {2}


def test_hash_covers_the_whole_scenario() -> None:
    runs = plan_runs(SweepSpec.from_dict(RAW))
    assert len({run.key for run in runs}) == len(runs)
    assert [run.key for run in runs] == [run.key for run in plan_runs(SweepSpec.from_dict(RAW))]
    changed = plan_runs(SweepSpec.from_dict({**RAW, "base": {**RAW["base"], "evaluation": {"every": 2}}}))
    assert not {run.key for run in runs} & {run.key for run in changed}
    assert runs[0].scenario.hash == runs[0].key


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"grid": {"method.lamda": [1.0]}}, "method.lamda: unknown key; did you mean 'lambda'?"),
        ({"grid": {"rounds": [1, 1]}}, "two cases have the same label"),
        ({"table": [{"rows": ["methods"]}]}, "table[0].rows: no axis has this name; did you mean 'method'?"),
        ({"table": [{"where": {"method": "mean"}}]}, "where.method: the axis has no such case"),
        ({"table": [{"rows": ["method"]}]}, "table[0]: every axis must appear in rows"),
        ({"table": [{"columns": ["method"], "where": {"method": "Mean"}}]}, "an axis may appear only once"),
        ({"seeds": []}, "seeds: "),
        ({"set": {"clients.cuont": 3}}, "clients.cuont: unknown key; did you mean 'count'?"),
        ({"set": {"rounds.more": 3}}, "rounds: is not a table, so rounds.more cannot be set"),
        ({"set": [3]}, "set: "),
        ({"sedes": [1]}, "sedes: unknown key; did you mean 'seeds'?"),
        ({"grid": {"seed": [1], "rounds": list(range(1, 60_000))}}, "runs; allowed: 100,000"),
    ],
)
def test_invalid_sweep_is_rejected_with_the_reason(changes: dict, words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        plan_runs(SweepSpec.from_dict({**RAW, **changes}))
    assert words in str(caught.value)


def test_unknown_profile_is_rejected() -> None:
    with pytest.raises(ScenarioError, match="did you mean 'quick'"):
        plan_runs(SweepSpec.from_dict(RAW), "quik")


def test_base_may_be_another_file_and_overrides_change_it(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text("rounds = 2\n[clients]\ncount = 3\n")
    (tmp_path / "mine.toml").write_text('base = "base.toml"\n[grid]\nrounds = [5]\n')
    (run,) = plan_runs(SweepSpec.load(tmp_path / "mine.toml", ["clients.count=6"]))
    assert (run.scenario.name, run.scenario.rounds, run.scenario.clients.count) == ("mine", 5, 6)


def test_command_line_takes_precedence_over_set_and_set_over_the_base(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text("rounds = 2\n[clients]\ncount = 3\n[evaluation]\nevery = 9\n")
    text = 'base = "base.toml"\nset = { rounds = 4, "clients.count" = 5, "method.lambda" = 1.0 }\n'
    (tmp_path / "s.toml").write_text(f"{text}[profiles.small]\nset = {{ rounds = 1 }}\n")
    sweep = SweepSpec.load(tmp_path / "s.toml", ["clients.count=6", "method.alpha=0.5"])
    (run,), (small,) = plan_runs(sweep), plan_runs(sweep, "small")
    assert (run.scenario.rounds, run.scenario.clients.count, run.scenario.evaluation.every) == (4, 6, 9)
    assert (run.scenario.method.lambda_, run.scenario.method.alpha) == (1.0, 0.5)
    assert (small.scenario.rounds, small.scenario.clients.count) == (1, 6)


def test_path_in_set_is_relative_to_the_sweep_file(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "base.toml").write_text("rounds = 2\n")
    (tmp_path / "s.toml").write_text(
        'base = "base/base.toml"\nset = { data = { name = "npz", path = "a.npz" } }\n'
    )
    (run,) = plan_runs(SweepSpec.load(tmp_path / "s.toml"))
    assert run.scenario.data.path == str(tmp_path / "a.npz")


def test_profiles_may_be_in_a_separate_file(tmp_path: Path) -> None:
    (tmp_path / "sizes.toml").write_text("[small]\nset = { rounds = 1 }\n")
    (tmp_path / "s.toml").write_text('profiles = "sizes.toml"\n[base]\nrounds = 9\n')
    (run,) = plan_runs(SweepSpec.load(tmp_path / "s.toml"), "small")
    assert run.scenario.rounds == 1


def test_sweep_and_scenario_files_are_distinguished(tmp_path: Path) -> None:
    (tmp_path / "scenario.toml").write_text("rounds = 9\n")
    (tmp_path / "sweep.toml").write_text("[base]\nrounds = 9\n")
    with pytest.raises(ScenarioError, match=r"base: is missing.*if this file is a scenario, run it with"):
        SweepSpec.load(tmp_path / "scenario.toml")
    (tmp_path / "variations.toml").write_text("[grid]\nrounds = [1, 2]\n")
    with pytest.raises(ScenarioError, match="base: is missing"):
        SweepSpec.load(tmp_path / "variations.toml")
    with pytest.raises(ScenarioError, match="is a sweep; run it with: rdpfl-sim sweep"):
        Scenario.load(tmp_path / "variations.toml")
    with pytest.raises(ScenarioError, match="is a sweep; run it with: rdpfl-sim sweep"):
        Scenario.load(tmp_path / "sweep.toml")


# Overrides of the command line

SWEEP = """
seeds = [1, 2]

[base]
rounds = 3
clients.count = 4
method = { name = "rdpfl", lambda = 1.0 }
adversary = { attack = "noise", fraction = 0.25 }

[grid]
"method.lambda" = [0.1, 1.0]

[[axis]]
name = "how"
cases = [
  { label = "Mean", set = { method = { name = "direct" } } },
  { label = "R-DPFL", set = { method = { name = "rdpfl", max_norm = 2.0 } } },
]

[[axis]]
name = "attack"
cases = [{ label = "clean", set = { "adversary.fraction" = 0.0 } }, { label = "noise" }]

[profiles.quick]
set = { rounds = 1 }
"""


@pytest.fixture
def sweep_file(tmp_path: Path) -> Path:
    path = tmp_path / "some.toml"
    path.write_text(SWEEP)
    return path


def test_override_that_nothing_replaces_applies_to_every_run(sweep_file: Path) -> None:
    runs = plan_runs(SweepSpec.load(sweep_file, ["clients.count=5", "rounds=7"]))
    assert {(run.scenario.clients.count, run.scenario.rounds) for run in runs} == {(5, 7)}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("method.max_norm=0.001", "method.max_norm: has no effect: axis 'how' (case 'Mean')"),
        ("method.lambda=3", "method.lambda: has no effect: axis 'how' (case 'Mean')"),
        ("method={name='balance'}", "method: has no effect: axis 'how' (case 'Mean')"),
        (
            "adversary.fraction=0.5",
            "axis 'attack' (case 'clean') replaces it; change it there (given: 0.5)",
        ),
        ("method.lamda=1", "method.lamda: unknown key; did you mean 'lambda'?"),
        ("method={name='direct', lamda=1}", "method.lamda: unknown key; did you mean 'lambda'?"),
        ("clients.cuont=1", "clients.cuont: unknown key; did you mean 'count'?"),
        ("seed=3", "seed: has no effect: the sweep's seeds are used instead (given: 3)"),
        ("name=mine", "name: has no effect: runs have the name of the sweep"),
        ("output={folder='x'}", "output.folder: has no effect: runs are written into the sweep's folder"),
    ],
)
def test_override_that_a_case_replaces_is_rejected(sweep_file: Path, override: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        plan_runs(SweepSpec.load(sweep_file, [override]))
    assert message in str(caught.value)
    assert len(caught.value.problems) == 1


def test_override_of_a_key_in_the_grid_is_rejected_unless_it_omits_that_key(sweep_file: Path) -> None:
    sweep_file.write_text('base = { rounds = 3 }\nseeds = [1]\ngrid = { "method.lambda" = [0.1, 1.0] }\n')
    with pytest.raises(ScenarioError, match=r"method: has no effect: axis 'method.lambda'"):
        plan_runs(SweepSpec.load(sweep_file, ["method={name='direct', lambda=2.0}"]))
    runs = plan_runs(SweepSpec.load(sweep_file, ["method={name='direct'}"]))
    assert [(run.scenario.method.name, run.scenario.method.lambda_) for run in runs] == [
        ("direct", 0.1),
        ("direct", 1.0),
    ]


def test_override_that_a_profile_replaces_is_rejected_with_the_profile(sweep_file: Path) -> None:
    sweep = SweepSpec.load(sweep_file, ["rounds=7"])
    with pytest.raises(ScenarioError, match="has no effect: profile 'quick' replaces it"):
        plan_runs(sweep, "quick")
    assert overrides_replaced_by(sweep, "quick") == ["rounds"]


def test_case_that_resets_a_key_of_the_base_is_noted_in_its_runs(sweep_file: Path) -> None:
    sweep_file.write_text(SWEEP.replace('"method.lambda" = [0.1, 1.0]', ""))
    for run in plan_runs(SweepSpec.load(sweep_file)):
        [note] = run.scenario.notes
        assert note.startswith("method.lambda was reset from 1.0 to its default 0.01")
    assert all(run.scenario.notes == [] for run in plan_runs(SweepSpec.from_dict(RAW)))
