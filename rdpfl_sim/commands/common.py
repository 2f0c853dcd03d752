"""What the commands have in common."""

from __future__ import annotations

import argparse
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

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
    return console if console.is_terminal else Console(quiet=quiet, stderr=stderr, width=PIPE_WIDTH)


@contextmanager
def uncollected() -> Iterator[None]:
    """What is imported and built here stays to the end: let the garbage collector not look at it, ever."""
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
