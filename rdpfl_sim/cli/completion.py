"""rdpfl-sim completion: print a script for shell completion of commands, options, files and names."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence

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
    glob = shtab.glob("*.toml")
    bundled = _bundled()
    files = {"RUN": shtab.DIRECTORY, "FOLDER": shtab.DIRECTORY, "FILE": shtab.FILE}
    parser: argparse.ArgumentParser = options.parser
    for command, action in _actions(parser):
        action.choices = choices.get((command, action.dest), action.choices)
        metavar = str(action.metavar).partition("|")[0]
        if action.dest == "file" and metavar == "FILE":
            kind = command if command in bundled else "run"
            action.complete = {**glob, **_completer(kind)}  # type: ignore[attr-defined]  # read by shtab
        elif metavar in files:
            action.complete = files[metavar]  # type: ignore[attr-defined]  # read by shtab
    _add_options_of_run(parser)
    before, after = _first_word_lines(options.shell, _completer("run"))
    functions = [
        _function(options.shell, kind, names, str(glob[options.shell])) for kind, names in bundled.items()
    ]
    preamble = "\n".join([*functions, before])
    print_plain(f"{shtab.complete(parser, options.shell, preamble=preamble)}\n{after}")
    return 0


def _bundled() -> dict[str, list[str]]:
    """Return the bundled scenarios and sweeps that a command accepts; `run` stands for all other commands."""
    from rdpfl_sim.scenario.bundled import bundled_scenarios
    from rdpfl_sim.toml import is_sweep, read_toml

    found: dict[str, list[str]] = {"run": [], "sweep": [], "validate": []}
    for name, path in bundled_scenarios().items():
        found["sweep" if is_sweep(read_toml(path)) else "run"].append(name)
        found["validate"].append(name)
    return found


def _completer(kind: str) -> dict[str, str]:
    """Return, by shell, the code that completes TOML files and bundled names."""
    name = f"_rdpfl_sim_files_to_{kind}"
    return {"bash": name, "zsh": name, "fish": f"({name})"}


def _function(shell: str, kind: str, names: Sequence[str], toml_files: str) -> str:
    """Return the definition of the function in `_completer`; `toml_files` is code that completes files."""
    name, words = _completer(kind)[shell].strip("()"), " ".join(names)
    match shell:
        case "zsh":  # zsh would read the (*.toml) of shtab as a qualifier
            return f"{name}() {{ _files -g '*.toml'; compadd -- {words} }}"
        case "fish":
            return f"function {name}\n  {toml_files.strip('()')}\n  printf '%s\\n' {words}\nend"
        case _:
            return f'{name}() {{ {toml_files} "$1"; compgen -W "{words}" -- "$1"; }}'


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
