"""Traces of clients that come and go, from a CSV file."""

from __future__ import annotations

import csv
import zlib
from io import StringIO
from typing import NamedTuple

from rdpfl_sim.components.options import LARGE, MAX_INPUT_BYTES
from rdpfl_sim.errors import OptionError
from rdpfl_sim.system.files import read_input


class Row(NamedTuple):
    """A client changes its state; `line` is where the file says so."""

    time_s: float
    client: int
    state: str
    line: int


_HEADER = ["time_s", "client", "state"]


def read_trace(path: str, num_clients: int) -> list[Row]:
    """The rows of a trace, in the order of the file."""
    try:
        text = read_input(path, MAX_INPUT_BYTES).decode("utf-8-sig")
        reader = csv.reader(StringIO(text, newline=""))
        lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if cells]
    except OSError as error:
        raise OptionError("path", f"cannot be read: {error.strerror}") from error
    except (ValueError, EOFError, zlib.error, csv.Error) as error:  # not UTF-8, binary, or cut short
        raise OptionError("path", f"is not a CSV file: {error}") from error
    if not lines or lines[0][1] != _HEADER:
        raise bad_line(lines[0][0] if lines else 1, f"must be the header {','.join(_HEADER)}")
    return [_row(cells, line, num_clients) for line, cells in lines[1:]]


def _row(cells: list[str], line: int, num_clients: int) -> Row:
    if len(cells) != len(_HEADER):
        raise bad_line(line, f"has {len(cells)} columns; needed: {','.join(_HEADER)}")
    time, client, state = cells
    try:
        time_s = float(time)
    except ValueError:
        time_s = -1.0
    if not 0 <= time_s <= LARGE:
        raise bad_line(line, f"the time {time!r} is not a number of seconds from 0 on")
    if not (client.isascii() and client.isdigit() and len(client) <= 9 and int(client) < num_clients):
        raise bad_line(line, f"there is no client {client!r}; allowed: 0 to {num_clients - 1}")
    if state not in ("down", "up", "fresh"):
        raise bad_line(line, f"there is no state {state!r}; allowed: down, up, fresh")
    return Row(time_s, int(client), state, line)


def bad_line(line: int, message: str) -> OptionError:
    """What to raise for a line that makes no sense."""
    return OptionError("path", f"line {line}: {message}")
