import io
import re
from pathlib import Path

import pytest

from rdpfl_sim import Scenario, simulate
from rdpfl_sim.cli.main import main
from rdpfl_sim.cli.new import PROMPTS
from rdpfl_sim.scenario.bundled import bundled_scenarios
from rdpfl_sim.sweeps.spec import SweepSpec
from rdpfl_sim.sweeps.strategies.grid import plan_runs
from rdpfl_sim.toml import leaves, to_toml


class Terminal(io.StringIO):
    """A stream that reports itself as a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch):
    """Type in a list of answers; return the list that collects the prompts."""

    def type_in(*lines: str) -> list[str]:
        prompts: list[str] = []
        remaining = iter(lines)

        def answer(prompt: str) -> str:
            prompts.append(prompt)
            try:
                return next(remaining)
            except StopIteration:
                raise EOFError from None

        monkeypatch.setattr("builtins.input", answer)
        monkeypatch.setattr("sys.stdin", Terminal())
        monkeypatch.setattr("sys.stdout", Terminal())
        return prompts

    return type_in


@pytest.mark.slow
def test_scenario_without_any_option_is_written_validates_and_runs(tmp_path: Path, capsys) -> None:
    path = tmp_path / "mine.toml"
    assert main(["new", str(path), "--yes"]) == 0
    output, messages = capsys.readouterr()
    assert output == f"wrote {path}\n"
    assert messages.splitlines() == [
        "warning: method.aggregator: 'median' of at most 2 messages is their mean",
        f"run it with: rdpfl-sim {path}",
    ]
    assert main(["validate", str(path)]) == 0
    assert main([str(path), "-q", "--output", str(tmp_path), "--set", "rounds=2"]) == 0


def test_options_reach_the_scenario(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    words = (
        "--clients 12 --topology small_world --method balance --attack sign_flip --loss bernoulli --wait all"
    )
    assert main(["new", str(path), *words.split(), "--latency", "{name='constant', seconds=0.5}"]) == 0
    scenario = Scenario.load(path)
    assert scenario.clients.count == 12
    assert (scenario.topology.name, scenario.method.name) == ("small_world", "balance")
    assert (scenario.adversary[0].attack.name, scenario.adversary[0].fraction) == ("sign_flip", 0.2)
    assert scenario.network.latency.model_dump() == {"name": "constant", "seconds": 0.5}
    assert scenario.timing.wait.model_dump() == {"name": "all", "timeout_s": 3.0}


def test_table_as_answer_causes_warnings_about_reset_keys(tmp_path: Path, capsys) -> None:
    path = tmp_path / "mine.toml"
    assert main(["new", str(path), "--yes", "--method", "{name='direct', aggregator='mean'}"]) == 0
    reset = "method.lambda was reset from 1.0 to its default 0.01, because its table was replaced"
    assert capsys.readouterr().err.splitlines()[0] == f"warning: {reset}"
    assert Scenario.load(path).to_dict()["method"]["lambda"] == 0.01


def test_name_as_answer_keeps_the_options_that_both_components_have(tmp_path: Path, capsys) -> None:
    path = tmp_path / "mine.toml"
    assert main(["new", str(path), "--method", "direct"]) == 0
    assert "warning" not in capsys.readouterr().err
    assert Scenario.load(path).to_dict()["method"]["lambda"] == 1.0


def test_values_are_those_of_the_reference_except_where_a_comment_states_the_default_and_a_reason(
    tmp_path: Path,
) -> None:
    path = tmp_path / "mine.toml"
    for words in ([], ["--attack", "alie"], ["--clients", "60", "--attack", "alie"]):
        assert main(["new", str(path), "--force", "--yes", *words]) == 0
        scenario = Scenario.load(path)
        assert (scenario.rounds, scenario.topology.name == "ring") == (50, not words)
        found, defaults = leaves(scenario.to_dict()), leaves(Scenario().to_dict())
        differing = {key for key, value in defaults.items() if found.get(key, value) != value}
        differing -= {"name", "clients.count", "adversary"}
        text = path.read_text()
        for key in differing:
            component, _, option = key.rpartition(".")
            line = (
                rf"\n{option} = "
                if option != "name"
                else rf"\n({component.rpartition('.')[2]} = |\[topology)"
            )
            default = re.escape(to_toml(defaults[key]))
            assert re.search(rf"# Default: {default}\. [A-Z][^\[]*{line}", text), key


@pytest.mark.slow
def test_with_the_default_lambda_the_new_scenario_would_equal_local_training(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    assert main(["new", str(path), "--yes"]) == 0
    for seed in (1, 2):
        accuracy = {}
        for override in ("method.lambda=1.0", "method.lambda=0.01", "method.name=local"):
            scenario = Scenario.load(path, [override, "evaluation.every=50"], seed)
            accuracy[override] = simulate(scenario).summary["accuracy"]["honest"]["personal"]["mean"]
        own, paper, local = accuracy.values()
        assert own > local + 0.02
        assert abs(paper - local) < 0.01


@pytest.mark.parametrize("words", [["mine.toml"], ["-"]])
def test_input_that_is_not_a_terminal_is_said_not_to_be_read(
    words: list[str], tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for stream in (io.StringIO("20\ncomplete\n"), None):  # a pipe; a closed stream
        monkeypatch.setattr("sys.stdin", stream)
        assert main(["new", *words, "--force"]) == 0
        assert capsys.readouterr().err.startswith("note: input is not a terminal and is not read; ")
    assert main(["new", *words, "--force", "--yes"]) == 0
    assert "note" not in capsys.readouterr().err


def test_attackers_without_an_attack_get_one(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    assert main(["new", str(path), "--byzantine", "0.3"]) == 0
    [group] = Scenario.load(path).adversary
    assert (group.attack.name, group.fraction) == ("noise", 0.3)


def test_many_clients_share_enough_data(tmp_path: Path) -> None:
    assert main(["new", str(tmp_path / "mine.toml"), "--clients", "60"]) == 0


def test_invalid_options_are_named_and_nothing_is_written(tmp_path: Path, capsys) -> None:
    path = tmp_path / "mine.toml"
    assert main(["new", str(path), "--attack", "sign_flop", "--clients", "ten"]) == 2
    error = capsys.readouterr().err
    assert "--attack: no attack is called 'sign_flop'; did you mean 'sign_flip'?" in error
    assert "--clients: must be a valid integer (given: 'ten')" in error
    assert not path.exists()


def test_existing_file_is_replaced_only_with_force(tmp_path: Path, capsys) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("mine")
    assert main(["new", str(path)]) == 2
    assert capsys.readouterr().err == f"rdpfl-sim new: {path} already exists; use --force to replace it\n"
    assert path.read_text() == "mine"
    assert main(["new", str(tmp_path), "--force"]) == 2
    assert capsys.readouterr().err == f"rdpfl-sim new: {tmp_path} is a folder, not a file\n"
    assert main(["new", str(path), "--force"]) == 0
    assert Scenario.load(path).rounds == 50


@pytest.mark.parametrize("words", [["-"], ["--stdout"]])
def test_scenario_is_printed_and_nothing_written(
    words: list[str], tmp_path: Path, capsys, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", *words]) == 0
    (tmp_path / "printed.toml").write_text(capsys.readouterr().out)
    assert Scenario.load(tmp_path / "printed.toml").rounds == 50
    assert [path.name for path in tmp_path.iterdir()] == ["printed.toml"]


def test_missing_data_set_is_reported_with_the_command_that_downloads_it(tmp_path: Path, capsys) -> None:
    path = tmp_path / "mine.toml"
    data = f"{{name='mnist', folder='{tmp_path}'}}"
    assert main(["new", str(path), "--data", data]) == 2
    assert "run: rdpfl-sim data mnist" in capsys.readouterr().err
    assert not path.exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--topology", "k_regular", "--clients", "3"], "--topology.k: must be even and between 2 and 2"),
        (["--clients", "1000"], "--partition.min_samples: in 1000 draws"),
    ],
)
def test_scenario_that_cannot_run_is_not_written(
    words: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    assert main(["new", str(path), *words]) == 2
    assert problem in capsys.readouterr().err
    assert not path.exists()


@pytest.mark.parametrize("clients", [5, 10, 12, 40, 60])
def test_default_graph_keeps_the_default_attackers_inside_the_threat_model(
    clients: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    assert main(["new", str(path), "--attack", "noise", "--clients", str(clients)]) == 0
    assert "threat model" not in capsys.readouterr().err
    assert Scenario.load(path).adversary[0].fraction == 0.2


def test_chosen_topology_is_kept_for_many_clients(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    assert main(["new", str(path), "--clients", "60", "--topology", "complete"]) == 0
    assert Scenario.load(path).topology.name == "complete"


def test_files_are_relative_to_the_new_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "graph.txt").write_text("0 1\n1 2\n")
    monkeypatch.chdir(tmp_path)
    words = ["--clients", "3", "--topology", "{name = 'file', path = 'graph.txt'}"]
    assert main(["new", "mine.toml", *words]) == 2
    assert main(["new", "below/mine.toml", *words]) == 0
    assert Path("below/mine.toml").exists()
    assert not Path("mine.toml").exists()


def test_output_file_is_given_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.toml"
    assert main(["new", str(path), "-o", str(path)]) == 2
    assert "give the output file once" in capsys.readouterr().err
    assert main(["new", "-o", str(path)]) == 0
    assert path.exists()


def test_example_is_copied_with_its_comments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "--example", "ring_30pct"]) == 0
    assert capsys.readouterr() == ("wrote ring_30pct.toml\n", "run it with: rdpfl-sim ring_30pct.toml\n")
    source = bundled_scenarios()["ring_30pct"]
    assert Path("ring_30pct.toml").read_text() == source.read_text()
    assert main(["new", "--example", "ring_30pct"]) == 2
    assert "already exists" in capsys.readouterr().err


def test_copy_of_a_sweep_brings_the_files_that_it_refers_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    assert main(["new", str(path), "--example", "sweeps/lambda"]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"wrote {path}\nwrote {tmp_path / 'ring_30pct.toml'}\n"
    assert printed.err == f"run it with: rdpfl-sim sweep {path}\n"
    assert len(plan_runs(SweepSpec.load(path), "minutes")) == 32
    assert main(["new", str(tmp_path / "ring_30pct.toml"), "-f", "--example", "sweeps/lambda"]) == 2
    assert "lambda.toml refers to a file of this name" in capsys.readouterr().err


def test_copy_of_a_scenario_brings_its_trace(tmp_path: Path) -> None:
    assert main(["new", str(tmp_path / "mine.toml"), "--example", "stress/churn_trace"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["churn.csv", "mine.toml"]
    assert main(["validate", str(tmp_path / "mine.toml")]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--example", "ring"], "no bundled scenario is called 'ring'"),
        (["--example", "ring_30pct", "--clients", "3"], "--example cannot be combined with --clients"),
        (["-", "--example", "sweeps/lambda"], "sweeps/lambda refers to other files"),
    ],
)
def test_impossible_example_is_explained(
    words: list[str], message: str, tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", *words]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_questions_are_asked_on_a_terminal_and_repeated_if_invalid(tmp_path: Path, answers) -> None:
    path = tmp_path / "mine.toml"
    asked = answers("12", "", "", "", "noise", "0.25", "rng", "small_world", "", "", "?", "all", "20", "")
    assert main(["new", str(path)]) == 0
    scenario = Scenario.load(path)
    assert (scenario.clients.count, scenario.topology.name, scenario.rounds) == (12, "small_world", 20)
    assert (scenario.adversary[0].attack.name, scenario.adversary[0].fraction) == ("noise", 0.25)
    assert scenario.timing.wait.name == "all"
    assert len(asked) == len(PROMPTS) + 2
    assert asked[6] == asked[7] == "Network topology [complete]: "


def test_given_options_and_the_fraction_without_an_attack_are_not_prompted(tmp_path: Path, answers) -> None:
    asked = answers(*[""] * 20)
    assert main(["new", str(tmp_path / "mine.toml"), "--clients", "8", "--topology", "ring"]) == 0
    assert not any(text.startswith(("Number of clients", "Topology", "Fraction")) for text in asked)
    assert len(asked) == len(PROMPTS) - 3


def test_end_of_input_writes_no_file(tmp_path: Path, answers) -> None:
    answers("12")
    assert main(["new", str(tmp_path / "mine.toml")]) == 130
    assert not list(tmp_path.iterdir())


def test_yes_disables_all_prompts(tmp_path: Path, answers) -> None:
    asked = answers()
    assert main(["new", str(tmp_path / "mine.toml"), "--yes"]) == 0
    assert asked == []
