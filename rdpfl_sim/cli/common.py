"""Code shared by several commands: exit codes, consoles, common arguments, error messages."""

from __future__ import annotations

import argparse
import gc
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import isfinite, nan
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from rdpfl_sim.errors import OUT_OF_MEMORY, PluginError, RunError, SchemaError, is_out_of_memory

if TYPE_CHECKING:
    from rich.console import Console

    from rdpfl_sim.scenario.scenario import Scenario

FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130
PIPE_WIDTH = 1000


def make_console(quiet: bool = False, stderr: bool = False) -> Console:
    """Return a console: stdout for results, stderr for progress, warnings and hints.

    Output to a pipe is not wrapped, so that it can be searched line by line.
    """
    from rich.console import Console

    class PipeConsole(Console):
        def on_broken_pipe(self) -> None:  # rich itself would exit with code 1
            raise BrokenPipeError

    console = Console(quiet=quiet, stderr=stderr)
    if console.is_terminal:
        return console
    file = cast("IO[str]", RightTrimmedStream(sys.stderr if stderr else sys.stdout))
    return PipeConsole(file=file, quiet=quiet, width=PIPE_WIDTH)


def print_plain(text: object, end: str = "\n") -> None:
    """Print to stdout without wrapping or colours, even with --quiet, because scripts read this output."""
    print(text, end=end)  # noqa: T201


class RightTrimmedStream:
    """A stream that removes trailing spaces from lines, such as the padding of tables."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text that consists of whole lines."""
        return self._stream.write(re.sub(r" +$", "", text, flags=re.MULTILINE))

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


class UsageError(Exception):
    """Invalid command-line arguments; each string in `args` is printed on its own line."""


def require_run_folders(*folders: Path) -> None:
    """Raise a `UsageError` that lists every folder that is not a run folder."""
    from rdpfl_sim.records.reader import run_folder_problem

    problems = [problem for folder in folders if (problem := run_folder_problem(folder)) is not None]
    if problems:
        raise UsageError(*problems)


def error_text(error: Exception) -> str:
    """Return a one-line message for an operating-system error or a failed run."""
    if isinstance(error, OSError):
        path = "" if error.filename is None else f"{error.filename}: "
        return f"{path}{error.strerror or error}"
    return OUT_OF_MEMORY if is_out_of_memory(error) else str(error)


@contextmanager
def gc_frozen() -> Iterator[None]:
    """Pause garbage collection during imports and setup, then exclude the created objects from it."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def report_damage(folder: Path | str) -> Iterator[None]:
    """Add the folder to a `RunError`, with which the reader reports damaged files; others are bugs."""
    try:
        yield
    except (PluginError, SchemaError):
        raise
    except RunError as error:
        if str(folder) in str(error):
            raise
        raise RunError(f"{folder}: damaged files ({error}); see rdpfl-sim verify for details") from error


def add_scenario(
    parser: argparse.ArgumentParser, help_: str = "a scenario: a TOML file, or a bundled name"
) -> None:
    """Add the arguments that select and change a scenario."""
    parser.add_argument("file", type=Path, metavar="FILE", help=help_)
    add_overrides(parser, "set a key, such as method.lambda=0.1; may be repeated")
    parser.add_argument("--seed", type=int, metavar="NUMBER", help="replace the scenario's seed")


def add_overrides(parser: argparse.ArgumentParser, help_: str) -> None:
    """Add the argument that changes single keys."""
    parser.add_argument(
        "--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE", help=help_
    )


def override_for(argument: str, arguments: Sequence[str]) -> list[str]:
    """Return the overrides that an argument such as --rounds 5 may stand for: --set rounds=5."""
    from rdpfl_sim.scenario.overrides import paths_of_key
    from rdpfl_sim.scenario.scenario import Scenario

    option, _, value = argument.partition("=")
    if not option.startswith("--"):
        return []
    *_, following = [*arguments, ""][: [*arguments].index(argument) + 2]
    if following.startswith("-"):
        following = ""
    path = option.removeprefix("--").replace("-", "_")
    paths = [found for found in paths_of_key(Scenario, {}, path.rpartition(".")[2]) if found.endswith(path)]
    return [f"--set {found}={value or following or 'VALUE'}" for found in paths]


def add_allow_cluster(parser: argparse.ArgumentParser) -> None:
    """Add the argument that allows the scenario of a run folder to connect to a cluster."""
    parser.add_argument(
        "--allow-cluster",
        action="store_true",
        help="allow a connection to the Ray cluster named in the run's scenario",
    )


def print_precedence(file: Path) -> None:
    """Print a note if a local file takes precedence over the bundled scenario of this name."""
    from rdpfl_sim.scenario.bundled import bundled_scenarios, find_scenario

    bundled = bundled_scenarios()
    if file.as_posix() in bundled and find_scenario(file) not in bundled.values():
        found = find_scenario(file)
        make_console(stderr=True).print(f"note: using {found} instead of the bundled scenario {file}")


def load_scenario(options: argparse.Namespace) -> Scenario:
    """Load the scenario selected by the arguments."""
    from rdpfl_sim.scenario.scenario import Scenario

    print_precedence(options.file)
    return Scenario.load(options.file, options.overrides, options.seed)


def print_warnings(scenarios: Sequence[Scenario], others: Sequence[str], quiet: bool = False) -> None:
    """Print the notes of scenarios, even with --quiet, and other warnings, to stderr."""
    from rdpfl_sim.reports.text import warning_lines

    counts = Counter(note for scenario in scenarios for note in scenario.notes)
    total = len(scenarios)
    notes = [
        note if num == total else f"{note} (in {num:,} of {total:,} runs)" for note, num in counts.items()
    ]
    make_console(stderr=True).print(warning_lines(notes))
    make_console(quiet, stderr=True).print(warning_lines([text for text in others if text not in counts]))


def number_parser(words: str, is_allowed: Callable[[float], bool] = isfinite) -> Callable[[str], float]:
    """Return a function that parses an allowed number; `words` say in messages what is allowed."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = nan
        if not (isfinite(value) and is_allowed(value)):
            raise argparse.ArgumentTypeError(f"must be {words}, not {text!r}")
        return value

    return parse


def parse_count(text: str) -> int:
    """Parse a whole number from 1 to 9999."""
    if not re.fullmatch("0*[1-9][0-9]{0,3}", text):
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to 9999, not {text[:80]!r}")
    return int(text)
