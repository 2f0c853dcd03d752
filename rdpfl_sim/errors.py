"""Errors that a user can fix: mistakes in a scenario, failed runs and broken plug-ins.

A message names an argument of a function in backticks, such as `seed`. The command line prints the option
that sets it instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_NO_VALUE = object()


@dataclass(frozen=True)
class Problem:
    """One mistake in a scenario: its path, a message, and the given value."""

    path: str
    message: str
    value: object = _NO_VALUE

    def __str__(self) -> str:
        given = "" if self.value is _NO_VALUE else f" (given: {_shortened(self.value)})"
        return f"{self.path}: {self.message}{given}"


class ScenarioError(ValueError):
    """A scenario that cannot be run; `problems` lists every mistake in it."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


class RunError(Exception):
    """A run that fails for a reason outside its scenario, such as a full disk or a damaged file."""


class SchemaError(RunError):
    """A run folder written by a different version, with records that this version cannot read."""


class PluginError(RunError):
    """A plug-in that cannot be used: its name and its flaw."""

    def __init__(self, plugin: object, flaw: str) -> None:
        super().__init__(plugin, flaw)
        self.plugin = plugin
        self.flaw = flaw

    def __str__(self) -> str:
        return f"{self.plugin} {self.flaw}"


def note_client_round(error: BaseException, client: int, round_: int) -> None:
    """Add a note with the client and round to an error, unless it already has a note."""
    if not hasattr(error, "__notes__"):
        error.add_note(f"in round {round_} of client {client}")


OUT_OF_MEMORY = "out of memory"


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether Python or torch ran out of memory; torch raises either of two errors."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and "allocate memory" in str(error))
    )


class OptionError(ValueError):
    """An option value with which a component cannot be built.

    Components raise it for constraints that a type cannot express, such as a graph that does
    not exist for this number of clients. `errors_at` adds the path and the value.
    """

    def __init__(self, option: str, message: str) -> None:
        super().__init__(option, message)
        self.option = option
        self.message = message


@contextmanager
def errors_at(path: str, component: object) -> Iterator[None]:
    """Convert an `OptionError` or a `PluginError` from `component` to a `ScenarioError` at `path`."""
    try:
        yield
    except PluginError as error:
        raise ScenarioError([Problem(path, str(error))]) from error
    except OptionError as error:
        value = component
        for key in error.option.split("."):
            value = getattr(value, key, getattr(value, f"{key}_", _NO_VALUE))
        where = f"{path}.{error.option}" if error.option else path
        raise ScenarioError([Problem(where, error.message, _NO_VALUE if value is None else value)]) from error


def _shortened(value: object) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer with thousands of digits, or very deep nesting
        text = f"<{type(value).__name__}, too large to print>"
    return text if len(text) <= 80 else text[:77] + "..."
