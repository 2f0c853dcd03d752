"""Entry point of the command line. Commands import heavy packages when they run, so `--help` is fast."""

from __future__ import annotations

import argparse
import gc
import os
import re
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
    doctor,
    new,
    plot,
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
from rdpfl_sim.cli import list as list_command
from rdpfl_sim.cli.common import (
    BAD_INPUT,
    FAILED,
    INTERRUPTED,
    UsageError,
    error_text,
    make_console,
    override_for,
)
from rdpfl_sim.errors import RunError, ScenarioError, SchemaError, is_out_of_memory
from rdpfl_sim.version import __version__

GROUPS: dict[str, dict[str, ModuleType]] = {
    "run": {
        "new": new,
        "validate": validate,
        "run": run,
        "resume": resume,
        "sweep": sweep,
        "breakdown": breakdown,
    },
    "look": {"watch": watch, "show": show, "report": report},
    "compare": {"compare": compare, "plot": plot},
    "share": {"verify": verify, "trace": trace, "tensorboard": tensorboard},
    "help yourself": {
        "list": list_command,
        "schema": schema,
        "data": data,
        "doctor": doctor,
        "completion": completion,
    },
}
"""The commands, grouped as in the overview."""
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}

EXAMPLES = """\
examples:
  rdpfl-sim new mine.toml                         # create a scenario
  rdpfl-sim mine.toml                             # run it
  rdpfl-sim ring_30pct                            # run a bundled scenario
  rdpfl-sim ring_30pct --seed 7 --set method.lambda=0.1 --live
  rdpfl-sim report runs/first --open              # show the results
  rdpfl-sim compare runs/first runs/second        # compare two runs
  rdpfl-sim COMMAND --help                        # details and examples
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments:
        _parser().print_help(sys.stderr)
        return BAD_INPUT
    options = parse(arguments)
    try:
        code: int = COMMANDS[options.command].execute(options)
        sys.stdout.flush()
    except ScenarioError as error:
        _print_problems(error, options)
        return BAD_INPUT
    except UsageError as error:
        lines = (_with_flags(line, options.command_parser) for line in error.args)
        sys.stderr.writelines(f"rdpfl-sim {options.command}: {line}\n" for line in lines)
        return BAD_INPUT
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:  # the reader, such as `head`, closed the pipe
        _discard_stdout()
        return 0
    except (RunError, OSError, MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not is_out_of_memory(error):
            raise
        sys.stderr.write(f"rdpfl-sim {options.command}: {error_text(error)}\n")
        _discard_stdout()
        return BAD_INPUT if isinstance(error, SchemaError) else FAILED
    finally:
        gc.unfreeze()  # commands freeze objects with `gc_frozen`
    return code


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; exit with a message on a mistake."""
    parser = _parser()
    if arguments[0] not in (*COMMANDS, "-h", "--help", "--version"):  # rdpfl-sim FILE is short for run
        _reject_misspelt_command(parser, arguments[0])
        arguments = ["run", *arguments]
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        command: argparse.ArgumentParser = options.command_parser
        near = get_close_matches(unknown[0], command._option_string_actions, n=1)
        if not near and "--set" in command._option_string_actions:
            near = override_for(unknown[0], arguments)
        hint = f"; did you mean {near[0]}?" if near else ""
        command.error(f"unknown argument {' '.join(unknown)}{hint}")
    return options


def _discard_stdout() -> None:
    """Flush stdout; if it is closed, discard its buffer so that Python prints no error at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Overview(argparse.ArgumentParser):
    """The parser of the whole command line, whose help has a heading for each group of commands."""

    def format_help(self) -> str:
        """Return the help; argparse itself lists the commands without groups."""
        page = super().format_help()
        for title, group in GROUPS.items():
            page = re.sub(
                rf"^(?=    {next(iter(group))} )", f"  {title}\n", page, count=1, flags=re.MULTILINE
            )
        return page


def _parser() -> argparse.ArgumentParser:
    parser = _Overview(
        prog="rdpfl-sim",
        description="Simulate robust decentralised personalised federated learning.",
        usage="rdpfl-sim FILE [options]  or  rdpfl-sim COMMAND ...",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(parser=parser)  # for `completion`
    parser.add_argument("--version", action="version", version=f"rdpfl-sim {__version__}")
    commands = parser.add_subparsers(
        dest="command",
        required=True,
        title="commands",
        metavar="COMMAND [...]",
        prog=parser.prog,
        parser_class=argparse.ArgumentParser,
    )
    for name, command in COMMANDS.items():
        command_parser = commands.add_parser(
            name,
            help=command.HELP,
            description=f"{command.HELP[0].upper()}{command.HELP[1:]}.",
            epilog=command.EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command_parser.set_defaults(command_parser=command_parser)
        command.add_arguments(command_parser)
    return parser


def _print_problems(error: ScenarioError, options: argparse.Namespace) -> None:
    from rdpfl_sim.reports.text import problem_lines

    problems = [_with_flags(str(problem), options.command_parser) for problem in error.problems]
    file = str(getattr(options, "file", "the scenario"))
    make_console(stderr=True).print(problem_lines(problems, file))


def _with_flags(message: str, parser: argparse.ArgumentParser) -> str:
    """Replace arguments in backticks, such as `seed`, by the options of the command that set them."""
    flags = {action.dest: action.option_strings[0] for action in parser._actions if action.option_strings}
    return re.sub(r"`(\w+)`", lambda found: flags.get(found[1], found[0]), message)


def _reject_misspelt_command(parser: argparse.ArgumentParser, word: str) -> None:
    """Exit with a message if the word is neither a file nor a bundled scenario but similar to a command."""
    from rdpfl_sim.scenario.bundled import bundled_scenarios

    near = get_close_matches(word, COMMANDS, n=1)
    is_scenario = Path(word).exists() or Path(f"{word}.toml").exists() or word in bundled_scenarios()
    if near and not is_scenario:
        parser.error(f"there is no command or file {word!r}; did you mean {near[0]!r}?")
