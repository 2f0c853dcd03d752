"""rdpfl-sim completion: print a script for shell completion of commands, options, files and names."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

from rdpfl_sim.cli import run
from rdpfl_sim.cli.common import print_plain
from rdpfl_sim.cli.new import PROMPTS

HELP = "print a completion script for bash, zsh or fish"
EXAMPLES = """\
examples:
  rdpfl-sim completion bash >> ~/.bash_completion
  rdpfl-sim completion zsh > ~/.zfunc/_rdpfl-sim  # a folder in $fpath
  rdpfl-sim completion fish > ~/.config/fish/completions/rdpfl-sim.fish
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the SHELL argument."""
    parser.add_argument("shell", metavar="SHELL", choices=["bash", "zsh", "fish"], help="bash, zsh or fish")


def execute(options: argparse.Namespace) -> int:
    """Print the script; `options.parser` is the parser of the whole command line."""
    import shtab

    from rdpfl_sim.learning.datasets.download import CLASSES
    from rdpfl_sim.scenario.component_list import list_components

    kinds = {kind: [entry.name for entry in entries] for kind, entries in list_components().items()}
    choices = {
        ("list", "kind"): [*kinds, "scenarios"],
        ("data", "name"): [*CLASSES],
        **{("new", prompt.flag): kinds.get(str(prompt.kind)) for prompt in PROMPTS},
    }
    scenarios = {**shtab.glob("*.toml"), "zsh": "_files -g '*.toml'"}  # zsh reads (*.toml) as a qualifier
    files = {"RUN": shtab.DIRECTORY, "FOLDER": shtab.DIRECTORY, "FILE": shtab.FILE}
    parser: argparse.ArgumentParser = options.parser
    for command, action in _actions(parser):
        action.choices = choices.get((command, action.dest), action.choices)
        metavar = str(action.metavar).partition("|")[0]
        if action.dest == "file" and metavar == "FILE":
            action.complete = scenarios  # type: ignore[attr-defined]  # read by shtab
        elif metavar in files:
            action.complete = files[metavar]  # type: ignore[attr-defined]  # read by shtab
    _add_options_of_run(parser)
    before, after = _first_word_lines(options.shell, scenarios)
    print_plain(f"{shtab.complete(parser, options.shell, preamble=before)}\n{after}")
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    """Yield every argument of every command, with the command."""
    [commands] = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    for name, command in commands.choices.items():
        for action in command._actions:
            yield name, action


def _add_options_of_run(parser: argparse.ArgumentParser) -> None:
    """Add the options of run to the top-level parser: `rdpfl-sim FILE` is short for `rdpfl-sim run FILE`."""
    run_parser = argparse.ArgumentParser(add_help=False)
    run.add_arguments(run_parser)
    for action in run_parser._actions:
        if action.option_strings:
            parser._add_action(action)


def _first_word_lines(shell: str, scenarios: Mapping[str, object]) -> tuple[str, str]:
    """Return the lines before and after the script with which the first word completes to scenario files."""
    function = "_shtab_rdpfl_sim"
    match shell:
        case "zsh":
            keep = f"functions[{function}_alone]=$functions[{function}_commands]"
            return f"{keep}\n{function}_commands() {{ {function}_alone; {scenarios['zsh']} }}", ""
        case "fish":
            return "", f"complete -c rdpfl-sim -n __fish_use_subcommand -ka '{scenarios['fish']}'"
        case _:
            return "", f"{function}_pos_0_COMPGEN={scenarios['bash']}"
