"""Messages of the library name arguments; the command line replaces them by its own options."""

import ast
from pathlib import Path

import pytest

from rdpfl_sim import cli
from rdpfl_sim.cli.main import COMMANDS, main, parse

ROOT = Path(__file__).parents[2] / "rdpfl_sim"
LIBRARY = [path for path in sorted(ROOT.rglob("*.py")) if Path(cli.__file__).parent not in path.parents]
REQUIRED = {
    "breakdown": ["mine.toml", "--vary", "rounds"],
    "compare": ["runs"],
    "plot": ["sweep", "--x", "rounds"],
    "completion": ["bash"],
    "data": ["mnist"],
}
SHARED = {"--help", "--folder"}
"""Options of every command, and one that is part of a complete command which a message suggests."""


def flags() -> set[str]:
    """Return the options of all commands."""
    found = set()
    for command in COMMANDS:
        words = REQUIRED.get(command, [])
        try:
            options = parse([command, *words])
        except SystemExit:
            options = parse([command, "file", *words])
        actions = options.command_parser._actions
        found |= {flag for action in actions for flag in action.option_strings if flag.startswith("--")}
    return found - SHARED


def test_library_names_no_option_of_the_command_line() -> None:
    known = flags()
    assert {"--set", "--vary", "--where", "--seed"} <= known
    found = {
        f"{path.relative_to(ROOT)}:{node.lineno}: {flag}"
        for path in LIBRARY
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for flag in known.intersection(node.value.replace("`", " ").replace(":", " ").split())
    }
    assert found == set()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["run", "ring_30pct", "--set", "rounds"],
            "--set: must have the form path.to.key=value (given: 'rounds')",
        ),
        (["run", "ring_30pct", "--set", "seed=2", "--seed", "3"], "seed: has no effect: --seed replaces it"),
        (
            ["breakdown", "ring_30pct", "--vary", "rouns"],
            "--vary: the scenario has no such number (--set can",
        ),
        (
            ["breakdown", "ring_30pct", "--vary", "adversary.fraction", "--from", "0.1", "--to", "0.1"],
            "--from, --to: the range contains fewer than two values",
        ),
        (["sweep", "rivals", "--profile", "secons"], "--profile: no such profile"),
    ],
)
def test_command_line_names_its_own_options(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert message in " ".join(capsys.readouterr().err.split())
