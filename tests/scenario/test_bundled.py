from pathlib import Path

import pytest

from rdpfl_sim import Scenario, ScenarioError
from rdpfl_sim.cli.main import main, parse
from rdpfl_sim.scenario.bundled import bundled_scenarios, describe_file, find_scenario
from rdpfl_sim.sweeps.spec import SweepSpec

SCENARIOS = Path(__file__).parents[2] / "scenarios"


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_bundled_scenarios_are_the_files_of_the_repository() -> None:
    files = {path for path in SCENARIOS.rglob("*.toml") if path.name != "profiles.toml"}
    assert set(bundled_scenarios().values()) == files
    assert bundled_scenarios()["paper/lambda"] == SCENARIOS / "paper" / "lambda.toml"


def test_name_of_a_bundled_scenario_is_a_path() -> None:
    assert Scenario.load("ring_30pct").name == "ring_30pct"
    assert SweepSpec.load("paper/lambda").name == "lambda"


def test_local_file_takes_precedence_with_and_without_ending() -> None:
    Path("ring_30pct.toml").write_text("rounds = 7\n")
    assert Scenario.load("ring_30pct").rounds == 7
    Path("ring_30pct").write_text("rounds = 8\n")
    assert Scenario.load("ring_30pct").rounds == 8


def test_folder_with_the_name_of_a_scenario_does_not_hide_it() -> None:
    Path("sweeps/lambda").mkdir(parents=True)  # where `rdpfl-sim sweep sweeps/lambda` writes its runs
    assert find_scenario("sweeps/lambda") == SCENARIOS / "sweeps" / "lambda.toml"


@pytest.mark.parametrize("name", ["ring30pct", "scenarios/ring_30pct.toml", "scenarios/ring_30pct"])
def test_missing_file_with_a_similar_name_suggests_the_bundled_scenario(name: str) -> None:
    with pytest.raises(ScenarioError, match=r"No such file or directory; did you mean .* 'ring_30pct'\?"):
        Scenario.load(name)


@pytest.mark.parametrize("name", ["nothing", "../ring_30pct", "profiles", "/ring_30pct"])
def test_other_names_are_no_bundled_scenario(name: str) -> None:
    with pytest.raises(ScenarioError, match="cannot be read: No such file or directory"):
        find_scenario(name)


def test_run_folder_suggests_show_resume_and_its_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["ring_30pct", "-q", "--set", "rounds=1", "--set", "output.figures=false"]
    assert main(words) == 0
    run = capsys.readouterr().out.strip()
    assert main(["run", run]) == 2
    error = capsys.readouterr().err
    assert f"rdpfl-sim show {run};" in error
    assert f"rdpfl-sim resume {run};" in error
    assert f"rdpfl-sim run {run}/scenario.toml" in error
    assert main(["run", "runs"]) == 2
    assert "runs: is a folder, not a scenario" in capsys.readouterr().err


def test_sweep_and_run_suggest_each_other_with_the_given_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "paper/lambda"]) == 2
    assert "is a sweep; run it with: rdpfl-sim sweep paper/lambda\n" in capsys.readouterr().err
    assert main(["sweep", "ring_30pct"]) == 2
    assert "run it with: rdpfl-sim ring_30pct\n" in capsys.readouterr().err


@pytest.mark.parametrize("name", bundled_scenarios())
def test_name_is_not_mistaken_for_a_command(name: str) -> None:
    assert parse([name]).command == "run"


def test_description_is_the_first_comment_without_what_to_look_for() -> None:
    assert describe_file(SCENARIOS / "stress" / "silent.toml") == "Byzantine clients never send a message."
    everything = describe_file(SCENARIOS / "stress" / "everything.toml")
    assert everything.startswith("All faults together: bursty loss")
    assert everything.endswith("that attack content and timing.")


def test_list_shows_every_bundled_scenario_with_its_description(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "scenarios"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "stress/silent (run): Byzantine clients never send a message." in lines
    for name, path in bundled_scenarios().items():
        [line] = [line for line in lines if line.startswith(f"{name} (")]
        assert line.endswith(describe_file(path))
    assert main(["list", "scenarios", "--markdown"]) == 0
    assert "| `stress/silent` | `run` | Byzantine clients never send a message. |" in capsys.readouterr().out


def test_validate_and_breakdown_find_bundled_scenarios(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "sweeps/lambda"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "sweeps/lambda: valid"
    assert main(["breakdown", "ring_30pct", "--vary", "method.lamda"]) == 2
    assert "method.lamda" in capsys.readouterr().err
