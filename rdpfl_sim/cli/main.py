"""The command line. Commands import what is heavy when they are executed: `--help` answers at once."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType

from rdpfl_sim.cli import (
    breakdown,
    compare,
    completion,
    data,
    new,
    report,
    resume,
    run,
    schema,
    show,
    sweep,
    tensorboard,
    trace,
    validate,
    verify,
    watch,
)
from rdpfl_sim.cli import list as catalogue
from rdpfl_sim.cli.common import BAD_INPUT, FAILED, INTERRUPTED, error_text, make_console
from rdpfl_sim.errors import RunError, ScenarioError, is_out_of_memory
from rdpfl_sim.version import __version__

COMMANDS: dict[str, ModuleType] = {
    "new": new,
    "run": run,
    "resume": resume,
    "watch": watch,
    "validate": validate,
    "sweep": sweep,
    "compare": compare,
    "breakdown": breakdown,
    "show": show,
    "report": report,
    "verify": verify,
    "trace": trace,
    "tensorboard": tensorboard,
    "list": catalogue,
    "schema": schema,
    "data": data,
    "completion": completion,
}

EXAMPLES = """\
examples:
  rdpfl-sim new mine.toml                         # write a scenario
  rdpfl-sim mine.toml                             # run it
  rdpfl-sim scenarios/ring_30pct.toml --seed 7 --set method.lambda=0.1 --live
  rdpfl-sim report runs/first --open              # look at it
  rdpfl-sim compare runs/first runs/second        # what differs
  rdpfl-sim COMMAND --help                        # more about a command
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = [*(sys.argv[1:] if arguments is None else arguments)]
    if not words:
        _parser().print_help(sys.stderr)
        return BAD_INPUT
    options = parse(words)
    try:
        code: int = COMMANDS[options.command].execute(options)
        sys.stdout.flush()
    except ScenarioError as error:
        _print_problems(error, str(getattr(options, "file", "the scenario")))
        return BAD_INPUT
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        _say_no_more()
        return 0
    except (RunError, OSError, MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not is_out_of_memory(error):
            raise
        sys.stderr.write(f"rdpfl-sim {options.command}: {error_text(error)}\n")
        _say_no_more()
        return FAILED
    finally:
        gc.unfreeze()  # what a command has built, it may have frozen
    return code


def parse(words: Sequence[str]) -> argparse.Namespace:
    """What the words of a command line say; whoever mistypes them is told, and the program ends."""
    parser = _parser()
    if words[0] not in (*COMMANDS, "-h", "--help", "--version"):  # rdpfl-sim FILE is short for run
        _refuse_misspelt_command(parser, words[0])
        words = ["run", *words]
    options, unknown = parser.parse_known_args(words)
    if unknown:
        page: argparse.ArgumentParser = options.page
        near = get_close_matches(unknown[0], page._option_string_actions, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        page.error(f"unknown argument {' '.join(unknown)}{hint}")
    return options


def _say_no_more() -> None:
    """Let what is still buffered for the standard output go nowhere, or Python complains at its exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rdpfl-sim",
        description="Simulate robust decentralised personalised federated learning.",
        usage="rdpfl-sim FILE [options]  or  rdpfl-sim COMMAND ...",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(parser=parser)  # `completion` tells all of it
    parser.add_argument("--version", action="version", version=f"rdpfl-sim {__version__}")
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND, one of", prog=parser.prog
    )
    for name, command in COMMANDS.items():
        page = commands.add_parser(
            name,
            help=command.HELP,
            description=f"{command.HELP[0].upper()}{command.HELP[1:]}.",
            epilog=command.EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        page.set_defaults(page=page)
        command.add_arguments(page)
    return parser


def _print_problems(error: ScenarioError, file: str) -> None:
    from rdpfl_sim.reports.terminal import problem_lines

    make_console(stderr=True).print(problem_lines([str(problem) for problem in error.problems], file))


def _refuse_misspelt_command(parser: argparse.ArgumentParser, word: str) -> None:
    """An error if the word is neither a file nor an option but nearly a command."""
    near = get_close_matches(word, COMMANDS, n=1)
    if near and not Path(word).exists():
        parser.error(f"no command or scenario is called {word!r}; did you mean {near[0]!r}?")
