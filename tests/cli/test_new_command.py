import io
from pathlib import Path

import pytest

from rdpfl_sim import Scenario
from rdpfl_sim.cli.main import main
from rdpfl_sim.cli.new import PROMPTS


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
    assert main(["new", str(path)]) == 0
    assert capsys.readouterr().out == f"wrote {path}\nrun it with: rdpfl-sim {path}\n"
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
    assert main(["new", str(path), "--method", "{name='direct', aggregator='mean'}"]) == 0
    reset = "method.lambda was reset from 1.0 to its default 0.01, because its table was replaced"
    assert capsys.readouterr().err == f"warning: {reset}\n"
    assert Scenario.load(path).to_dict()["method"]["lambda"] == 0.01


def test_name_as_answer_keeps_the_options_that_both_components_have(tmp_path: Path, capsys) -> None:
    path = tmp_path / "mine.toml"
    assert main(["new", str(path), "--method", "direct"]) == 0
    assert capsys.readouterr().err == ""
    assert Scenario.load(path).to_dict()["method"]["lambda"] == 1.0


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
    assert "--clients: input should be a valid integer (given: 'ten')" in error
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
    assert Scenario.load(path).rounds == 30


@pytest.mark.parametrize("words", [["-"], ["--stdout"]])
def test_scenario_is_printed_and_nothing_written(
    words: list[str], tmp_path: Path, capsys, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", *words]) == 0
    (tmp_path / "printed.toml").write_text(capsys.readouterr().out)
    assert Scenario.load(tmp_path / "printed.toml").rounds == 30
    assert [path.name for path in tmp_path.iterdir()] == ["printed.toml"]


def test_missing_data_set_is_reported_with_the_command_that_downloads_it(tmp_path: Path, capsys) -> None:
    path = tmp_path / "mine.toml"
    data = f"{{name='mnist', folder='{tmp_path}'}}"
    assert main(["new", str(path), "--data", data]) == 2
    printed = capsys.readouterr()
    assert printed.out == f"wrote {path}\n"
    assert "run: rdpfl-sim data mnist" in printed.err


def test_questions_are_asked_on_a_terminal_and_repeated_if_invalid(tmp_path: Path, answers) -> None:
    path = tmp_path / "mine.toml"
    asked = answers("12", "rng", "small_world", "", "", "", "noise", "0.25", "", "", "?", "all", "20", "")
    assert main(["new", str(path)]) == 0
    scenario = Scenario.load(path)
    assert (scenario.clients.count, scenario.topology.name, scenario.rounds) == (12, "small_world", 20)
    assert (scenario.adversary[0].attack.name, scenario.adversary[0].fraction) == ("noise", 0.25)
    assert scenario.timing.wait.name == "all"
    assert len(asked) == len(PROMPTS) + 2
    assert asked[1] == asked[2] == "Network topology [ring]: "


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
