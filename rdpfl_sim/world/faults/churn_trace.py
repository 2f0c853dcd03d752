"""Churn traces: crashes and recoveries that are listed in a CSV file."""

from __future__ import annotations

import csv
import zlib
from io import StringIO
from typing import Annotated, NamedTuple

from rdpfl_sim.components.options import LARGE, MAX_INPUT_BYTES, Doc
from rdpfl_sim.errors import OptionError
from rdpfl_sim.files import read_input
from rdpfl_sim.world.faults.crash import Crash
from rdpfl_sim.world.faults.fault import CatchUp, Change, End, FaultContext, Schedule, Start, fault
from rdpfl_sim.world.faults.join_and_leave import Absence

_HEADER = ["time_s", "client", "state"]


@fault
def churn_trace(
    context: FaultContext,
    *,
    path: Annotated[str, Doc("a CSV file: time_s,client,state with the states down, up and fresh")],
    catch_up: CatchUp = True,
) -> Schedule:
    """Clients crash and recover as listed in a file.

    A client recovers with its own model ("up") or with a new one ("fresh"). A client whose first row is "up"
    or "fresh" is absent until then; a client without rows is always up. Simultaneous rows apply in the order
    of the file.
    """
    rows = sorted(read_trace(path, context.num_clients), key=lambda row: row.time_s)
    changes: list[tuple[float, Change]] = []
    absent = []
    is_up: dict[int, bool] = {}
    last_line = {row.client: row.line for row in rows}
    for time_s, client, state, line in rows:
        up = state != "down"
        if is_up.get(client) is up:
            raise _bad_line(line, f"client {client} is already {'up' if up else 'down'} at {time_s:g} s")
        if not up:
            changes.append((time_s, Start(Crash((client,), for_good=last_line[client] == line))))
        elif client in is_up:
            changes.append((time_s, End(Crash((client,), fresh=state == "fresh", catch_up=catch_up))))
        elif time_s > 0:  # a client that is up at time 0 was never absent
            absent.append(client)
            changes.append((time_s, End(Absence((client,)))))
        is_up[client] = up
    if absent:
        changes.insert(0, (0.0, Start(Absence(tuple(sorted(absent))))))
    return iter(changes)


class Row(NamedTuple):
    """A change of a client's state and its line number in the file."""

    time_s: float
    client: int
    state: str
    line: int


def read_trace(path: str, num_clients: int) -> list[Row]:
    """Return the rows of a trace, in the order of the file."""
    try:
        text = read_input(path, MAX_INPUT_BYTES).decode("utf-8-sig")
        reader = csv.reader(StringIO(text, newline=""))
        lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if cells]
    except OSError as error:
        raise OptionError("path", f"cannot be read: {error.strerror}") from error
    except (ValueError, EOFError, zlib.error, csv.Error) as error:  # not UTF-8, binary, or truncated
        raise OptionError("path", f"is not a CSV file: {error}") from error
    if not lines or lines[0][1] != _HEADER:
        raise _bad_line(lines[0][0] if lines else 1, f"must be the header {','.join(_HEADER)}")
    return [_row(cells, line, num_clients) for line, cells in lines[1:]]


def _row(cells: list[str], line: int, num_clients: int) -> Row:
    if len(cells) != len(_HEADER):
        raise _bad_line(line, f"has {len(cells)} columns; needed: {','.join(_HEADER)}")
    time, client, state = cells
    try:
        time_s = float(time)
    except ValueError:
        time_s = -1.0
    if not 0 <= time_s <= LARGE:
        raise _bad_line(line, f"the time must be a non-negative number of seconds, not {time!r}")
    if not (client.isascii() and client.isdigit() and len(client) <= 9 and int(client) < num_clients):
        raise _bad_line(line, f"there is no client {client!r}; allowed: 0 to {num_clients - 1}")
    if state not in ("down", "up", "fresh"):
        raise _bad_line(line, f"there is no state {state!r}; allowed: down, up, fresh")
    return Row(time_s, int(client), state, line)


def _bad_line(line: int, message: str) -> OptionError:
    return OptionError("path", f"line {line}: {message}")
