"""What the commands have in common."""

from __future__ import annotations

import argparse
import gc
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from rdpfl_sim.errors import OUT_OF_MEMORY, RunError, ScenarioError, is_out_of_memory

if TYPE_CHECKING:
    from rich.console import Console

    from rdpfl_sim.scenario.scenario import Scenario

FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130
PIPE_WIDTH = 1000


def make_console(quiet: bool = False, stderr: bool = False) -> Console:
    """A terminal as wide as it is; in a pipe lines are not wrapped, so that they can be searched."""
    from rich.console import Console

    console = Console(quiet=quiet, stderr=stderr)
    if console.is_terminal:
        return console
    file = cast("IO[str]", Trimmed(sys.stderr if stderr else sys.stdout))
    return Console(file=file, quiet=quiet, width=PIPE_WIDTH)


class Trimmed:
    """A stream to which lines are written without the blanks at their end, with which tables are filled."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write whole lines."""
        return self._stream.write(re.sub(r" +$", "", text, flags=re.MULTILINE))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def error_text(error: Exception) -> str:
    """What the machine could not do."""
    if isinstance(error, OSError):
        where = "" if error.filename is None else f"{error.filename}: "
        return f"{where}{error.strerror or error}"
    return OUT_OF_MEMORY if is_out_of_memory(error) else str(error)


@contextmanager
def gc_frozen() -> Iterator[None]:
    """What is imported and built here stays to the command's end: nobody need look for garbage in it."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def report_damage(folder: Path | str) -> Iterator[None]:
    """Turn whatever fails on the files of a damaged or crafted folder into a `RunError`."""
    try:
        yield
    except ScenarioError:
        raise
    except (*(ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError),) as error:
        what = f"{type(error).__name__}: {error}"
        raise RunError(f"{folder}: its files are damaged ({what}); rdpfl-sim verify may say more") from error


def add_scenario(parser: argparse.ArgumentParser) -> None:
    """The arguments that name a scenario and change it."""
    parser.add_argument("file", type=Path, metavar="FILE", help="a scenario, in TOML")
    add_overrides(parser, "change a key, such as method.lambda=0.1; can be given again")
    parser.add_argument("--seed", type=int, metavar="NUMBER", help="take another seed")


def add_overrides(parser: argparse.ArgumentParser, help_: str) -> None:
    """The argument that changes single keys."""
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help=help_)


def add_allow_cluster(parser: argparse.ArgumentParser) -> None:
    """Add the argument that lets the scenario of a run folder connect to a cluster."""
    parser.add_argument(
        "--allow-cluster",
        action="store_true",
        help="let the run connect to the Ray cluster whose address its scenario names",
    )


def load_scenario(options: argparse.Namespace) -> Scenario:
    """The scenario that the arguments name."""
    from rdpfl_sim.scenario.scenario import Scenario

    return Scenario.load(options.file, options.set, options.seed)


def print_warnings(scenarios: Sequence[Scenario], others: Sequence[str], console: Console) -> None:
    """Print the scenarios' notes to stderr, also with --quiet, and other warnings to the console."""
    from rdpfl_sim.reports.terminal import warning_lines

    num_with = Counter(note for scenario in scenarios for note in scenario.notes)
    some = {note: f" (in {num:,} of {len(scenarios):,} runs)" for note, num in num_with.items()}
    notes = [note + some[note] * (num < len(scenarios)) for note, num in num_with.items()]
    make_console(stderr=True).print(warning_lines(notes))
    console.print(warning_lines([text for text in others if text not in num_with]))


def count(text: str) -> int:
    """A whole number of at least 1, or an error of the command line."""
    if not re.fullmatch("0*[1-9][0-9]{0,3}", text):
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to 9999, not {text[:80]!r}")
    return int(text)
