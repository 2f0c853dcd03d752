"""rdpfl-sim completion: the script with which a shell completes commands, options, files and names."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from rdpfl_sim.cli import run
from rdpfl_sim.cli.new import QUESTIONS

HELP = "print a completion script for bash, zsh or fish"
EXAMPLES = """\
examples:
  rdpfl-sim completion bash >> ~/.bash_completion
  rdpfl-sim completion zsh > ~/.zfunc/_rdpfl-sim  # a folder of $fpath
  rdpfl-sim completion fish > ~/.config/fish/completions/rdpfl-sim.fish
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which shell."""
    parser.add_argument("shell", metavar="SHELL", choices=["bash", "zsh", "fish"], help="bash, zsh or fish")


def execute(options: argparse.Namespace) -> int:
    """Print the script; `options.parser` is that of the whole command line."""
    import shtab

    from rdpfl_sim.learning.datasets.download import CLASSES
    from rdpfl_sim.scenario.component_list import list_components

    kinds = {kind: [entry.name for entry in entries] for kind, entries in list_components().items()}
    choices = {
        ("list", "kind"): [*kinds],
        ("data", "name"): [*CLASSES],
        **{("new", question.flag): kinds.get(str(question.kind)) for question in QUESTIONS},
    }
    scenarios = {**shtab.glob("*.toml"), "zsh": "_files -g '*.toml'"}  # zsh takes (*.toml) for a qualifier
    files = {"RUN": shtab.DIRECTORY, "FOLDER": shtab.DIRECTORY, "FILE": shtab.FILE}
    parser: argparse.ArgumentParser = options.parser
    for command, action in _actions(parser):
        action.choices = choices.get((command, action.dest), action.choices)
        names = str(action.metavar).partition("|")[0]
        if action.dest == "file" and names == "FILE":
            action.complete = scenarios
        elif names in files:
            action.complete = files[names]
    _take_options_of_run(parser)
    before, after = _first_word(options.shell, scenarios)
    print(shtab.complete(parser, options.shell, preamble=before), after, sep="\n")  # noqa: T201  # the output
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[tuple[str, Any]]:
    """Every argument of every command."""
    [commands] = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    for name, command in commands.choices.items():
        for action in command._actions:
            yield name, action


def _take_options_of_run(parser: argparse.ArgumentParser) -> None:
    """`rdpfl-sim FILE` is short for run."""
    short = argparse.ArgumentParser(add_help=False)
    run.add_arguments(short)
    for action in short._actions:
        if action.option_strings:
            parser._add_action(action)


def _first_word(shell: str, scenarios: dict[str, Any]) -> tuple[str, str]:
    """What makes a shell complete scenarios where it would only complete commands: lines before and after."""
    function = "_shtab_rdpfl_sim"
    match shell:
        case "zsh":
            keep = f"functions[{function}_alone]=$functions[{function}_commands]"
            return f"{keep}\n{function}_commands() {{ {function}_alone; {scenarios['zsh']} }}", ""
        case "fish":
            return "", f"complete -c rdpfl-sim -n __fish_use_subcommand -ka '{scenarios['fish']}'"
        case _:
            return "", f"{function}_pos_0_COMPGEN={scenarios['bash']}"
