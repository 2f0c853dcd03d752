"""What the commands have in common."""

from __future__ import annotations

import argparse
import gc
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from rich.console import Console

    from rdpfl_sim.scenario import Scenario

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


@contextmanager
def uncollected() -> Iterator[None]:
    """What is imported and built here stays to the command's end: nobody need look for garbage in it."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def add_scenario(parser: argparse.ArgumentParser) -> None:
    """The arguments that name a scenario and change it."""
    parser.add_argument("file", type=Path, metavar="FILE", help="a scenario, in TOML")
    add_overrides(parser, "change a key, such as method.lambda=0.1; can be given again")
    parser.add_argument("--seed", type=int, metavar="NUMBER", help="take another seed")


def add_overrides(parser: argparse.ArgumentParser, help_: str) -> None:
    """The argument that changes single keys."""
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help=help_)


def load_scenario(options: argparse.Namespace) -> Scenario:
    """The scenario that the arguments name."""
    from rdpfl_sim.scenario import Scenario

    return Scenario.load(options.file, options.set, options.seed)


def count(text: str) -> int:
    """A whole number of at least 1, or an error of the command line."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")
    return int(text)
