"""Help pages fit a terminal, and their examples work."""

import argparse
import shlex
from pathlib import Path

import pytest

from rdpfl_sim.cli import main as cli
from rdpfl_sim.cli.main import COMMANDS, main, parse
from rdpfl_sim.scenario.bundled import bundled_scenarios

SHELL_SYNTAX = ("#", ">", ">>", "|")  # ends the arguments


def examples(page: str) -> list[list[str]]:
    """Return the arguments of every example, without shell syntax and comments."""
    found = []
    for line in page.replace("\\\n", " ").splitlines():
        if line.startswith("  rdpfl-sim "):
            lexer = shlex.shlex(line, posix=True, punctuation_chars=">|")
            lexer.whitespace_split, lexer.commenters = True, "#"
            _, *words = lexer
            end = min((words.index(sign) for sign in SHELL_SYNTAX if sign in words), default=len(words))
            found.append(words[:end])
    return found


ALL = [(name, words) for name, command in COMMANDS.items() for words in examples(command.EXAMPLES)]
OVERALL = [words for words in examples(cli.EXAMPLES) if "COMMAND" not in words]


def help_page(words: list[str], capsys, monkeypatch) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as end:
        main([*words, "--help"])
    assert end.value.code == 0
    return str(capsys.readouterr().out)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_80_columns_and_has_a_sentence_and_examples(name: str, capsys, monkeypatch) -> None:
    page = help_page([name], capsys, monkeypatch)
    assert max(map(len, page.splitlines())) <= 80
    assert f"\n{COMMANDS[name].HELP[0].upper()}{COMMANDS[name].HELP[1:]}.\n" in page
    assert examples(page)


def test_overview_has_a_line_for_every_command(capsys, monkeypatch) -> None:
    lines = help_page([], capsys, monkeypatch).splitlines()
    assert max(map(len, lines)) <= 80
    for name, command in COMMANDS.items():
        assert any(line.split() == [name, *command.HELP.split()] for line in lines), name


def test_overview_groups_the_commands(capsys, monkeypatch) -> None:
    page = help_page([], capsys, monkeypatch)
    listed = page.partition("COMMAND [...]\n")[2].partition("\nexamples:")[0]
    found: dict[str, list[str]] = {}
    for line in filter(None, listed.splitlines()):
        if line.startswith("    "):
            found[[*found][-1]].append(line.split()[0])
        else:
            found[line.strip()] = []
    assert found == {title: [*commands] for title, commands in cli.GROUPS.items()}
    assert len(found) == 5
    assert not any(title in help_page(["run"], capsys, monkeypatch).splitlines() for title in found)


@pytest.mark.parametrize(("name", "words"), ALL, ids=[" ".join(words) for _, words in ALL])
def test_example_can_be_parsed_and_its_scenario_is_bundled(name: str, words: list[str]) -> None:
    options = parse(words)
    assert options.command == name
    if name in ("run", "sweep", "validate", "breakdown") and options.file.name != "mine.toml":
        assert str(options.file) in bundled_scenarios()


@pytest.mark.parametrize("words", OVERALL, ids=" ".join)
def test_example_of_the_overview_can_be_parsed(words: list[str]) -> None:
    assert isinstance(parse(words), argparse.Namespace)


@pytest.mark.parametrize(
    "words",
    [words for name, words in ALL if name in ("validate", "list", "schema", "completion", "new")],
    ids=" ".join,
)
def test_quick_example_runs(words: list[str], tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 0


@pytest.mark.parametrize("words", [words for name, words in ALL if name == "run"], ids=" ".join)
def test_example_of_a_run_runs(words: list[str], tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "mine.toml").write_text(bundled_scenarios()["ring_30pct"].read_text())
    monkeypatch.chdir(tmp_path)
    short = ["--output", str(tmp_path), "--set", "rounds=1", "--set", "output.figures=false"]
    assert main([*words, *short]) == 0
