import io
from pathlib import Path

import pytest

from rdpfl_sim import Scenario
from rdpfl_sim.cli.main import main
from rdpfl_sim.cli.new import QUESTIONS


class Terminal(io.StringIO):
    """Somebody who answers."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch):
    """Let a list of answers be typed in; what was asked is noted in another."""

    def type_in(*lines: str) -> list[str]:
        asked: list[str] = []
        left = iter(lines)

        def answer(prompt: str) -> str:
            asked.append(prompt)
            try:
                return next(left)
            except StopIteration:
                raise EOFError from None

        monkeypatch.setattr("builtins.input", answer)
        monkeypatch.setattr("sys.stdin", Terminal())
        monkeypatch.setattr("sys.stdout", Terminal())
        return asked

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


def test_answer_that_is_a_table_names_the_keys_that_fell_back(tmp_path: Path, capsys) -> None:
    path = tmp_path / "mine.toml"
    assert main(["new", str(path), "--method", "{name='direct', aggregator='mean'}"]) == 0
    told = "warning: method.lambda fell back from 1.0 to its default 0.01, because its table was replaced\n"
    assert capsys.readouterr().err == told
    assert Scenario.load(path).to_dict()["method"]["lambda"] == 0.01


def test_answer_that_is_a_name_keeps_what_both_components_have(tmp_path: Path, capsys) -> None:
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


def test_wrong_options_are_told_by_their_names_and_nothing_is_written(tmp_path: Path, capsys) -> None:
    path = tmp_path / "mine.toml"
    assert main(["new", str(path), "--attack", "sign_flop", "--clients", "ten"]) == 2
    error = capsys.readouterr().err
    assert "--attack: no attack is called 'sign_flop'; did you mean 'sign_flip'?" in error
    assert "--clients: input should be a valid integer (given: 'ten')" in error
    assert not path.exists()


def test_file_that_is_there_is_replaced_only_by_force(tmp_path: Path, capsys) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("mine")
    assert main(["new", str(path)]) == 2
    assert capsys.readouterr().err == f"rdpfl-sim new: {path} exists; --force replaces it\n"
    assert path.read_text() == "mine"
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


def test_data_that_is_missing_is_told_with_its_remedy(tmp_path: Path, capsys) -> None:
    path = tmp_path / "mine.toml"
    data = f"{{name='mnist', folder='{tmp_path}'}}"
    assert main(["new", str(path), "--data", data]) == 2
    told = capsys.readouterr()
    assert told.out == f"wrote {path}\n"
    assert "run: rdpfl-sim data mnist" in told.err


def test_questions_are_asked_on_a_terminal_and_wrong_answers_again(tmp_path: Path, answers) -> None:
    path = tmp_path / "mine.toml"
    asked = answers("12", "rng", "small_world", "", "", "", "noise", "0.25", "", "", "?", "all", "20", "")
    assert main(["new", str(path)]) == 0
    scenario = Scenario.load(path)
    assert (scenario.clients.count, scenario.topology.name, scenario.rounds) == (12, "small_world", 20)
    assert (scenario.adversary[0].attack.name, scenario.adversary[0].fraction) == ("noise", 0.25)
    assert scenario.timing.wait.name == "all"
    assert len(asked) == len(QUESTIONS) + 2
    assert asked[1] == asked[2] == "How are they linked? [ring] "


def test_what_is_given_is_not_asked_nor_how_many_attack_if_nobody_does(tmp_path: Path, answers) -> None:
    asked = answers(*[""] * 20)
    assert main(["new", str(tmp_path / "mine.toml"), "--clients", "8", "--topology", "ring"]) == 0
    assert not any("How many clients" in text or "linked" in text or "fraction" in text for text in asked)
    assert len(asked) == len(QUESTIONS) - 3


def test_whoever_leaves_the_questions_leaves_no_file(tmp_path: Path, answers) -> None:
    answers("12")
    assert main(["new", str(tmp_path / "mine.toml")]) == 130
    assert not list(tmp_path.iterdir())


def test_yes_asks_nothing(tmp_path: Path, answers) -> None:
    asked = answers()
    assert main(["new", str(tmp_path / "mine.toml"), "--yes"]) == 0
    assert asked == []
