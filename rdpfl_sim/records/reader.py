"""Read the files of a run folder, which may be untrusted or belong to a run that is still running.

Symbolic links and special files are rejected, sizes are limited, and a partly written last line is ignored.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, TypeAlias, TypedDict, cast, get_args, get_origin, get_type_hints, is_typeddict

import orjson

from rdpfl_sim.errors import RunError
from rdpfl_sim.files import (
    JsonObject,
    lines_inside,
    open_inside,
    read_json,
    read_json_if_present,
    size_inside,
)
from rdpfl_sim.records.files import EVENTS, METRICS_FILE, PROVENANCE, RUNS, SCENARIO, SUMMARY, TOPOLOGY
from rdpfl_sim.records.metrics import MetricsRow, parse_metrics
from rdpfl_sim.records.record_types import RECORDS
from rdpfl_sim.records.schema import check_schema
from rdpfl_sim.records.status import RunStatus
from rdpfl_sim.records.summary import SUMMARY_FIELDS
from rdpfl_sim.toml import read_toml

Record: TypeAlias = JsonObject
"""One line of events.jsonl: `event`, `time_s` and the fields of that event."""

TAIL_BYTES = 1 << 16


class Topology(TypedDict):
    """The content of topology.json: the graph and the Byzantine clients at the start of the run."""

    num_clients: int
    edges: list[tuple[int, int]]
    byzantine: list[int]


class Code(TypedDict):
    """The commit of a session, and whether files differ from it."""

    commit: str | None
    changed: bool | None


class Session(TypedDict):
    """A process that computed a run, or a part of it."""

    started_at: str
    command: str
    working_folder: str
    code: Code
    versions: dict[str, str]
    machine: dict[str, Any]
    device: str
    threads: int


class Provenance(TypedDict):
    """The content of provenance.json."""

    scenario_hash: str
    sessions: list[Session]


class RunReader:
    """Reads one run folder. Nothing is cached: every call reads the current file.

    Raises `SchemaError` if the folder has a different schema.
    """

    def __init__(self, folder: Path) -> None:
        check_schema(folder)
        self.folder = folder

    def read_bytes(self, name: str) -> bytes:
        """Return the content of a small file, or raise `FileNotFoundError`."""
        return read_inside(self.folder / name)

    def read_scenario(self) -> JsonObject:
        """Return the resolved scenario, or raise `ScenarioError`."""
        return read_toml(self.folder / SCENARIO, follow_links=False)

    def read_summary(self) -> JsonObject | None:
        """Return the summary, or None if the run is running or was killed."""
        summary = read_json_if_present(self.folder / SUMMARY)
        if summary is not None:
            _reject(self.folder / SUMMARY, _problem_of_summary(summary))
        return summary

    def read_status(self) -> RunStatus:
        """Return the status of the run; a run without a summary is unfinished."""
        return RunStatus.of_summary(self.read_summary())

    def is_complete(self) -> bool:
        """Return whether the run has reached its end; False if the summary is damaged."""
        try:
            return self.read_status().is_complete
        except RunError:
            return False

    def read_provenance(self) -> JsonObject | None:
        """Return the commit, versions, command and machine of the run, or None if they are missing."""
        provenance = read_json_if_present(self.folder / PROVENANCE)
        if provenance is not None:
            _reject(self.folder / PROVENANCE, _problem_of(provenance, Provenance))
        return provenance

    def read_topology(self) -> Topology:
        """Return the graph and the Byzantine clients, or raise `FileNotFoundError` or `RunError`."""
        path = self.folder / TOPOLOGY
        content = read_json(path)
        _reject(path, _problem_of(content, Topology))
        _reject(path, _unknown_client(content, content["num_clients"]))
        return cast("Topology", content)

    def has_metrics(self) -> bool:
        """Return whether metrics.csv has any content."""
        return size_inside(self.folder / METRICS_FILE) > 0

    def metrics_lines(self) -> Iterator[str]:
        """Yield the unprocessed lines of metrics.csv, including the header and a partly written last line."""
        return (line.decode() for line in lines_inside(self.folder / METRICS_FILE))

    def read_metrics(self) -> list[MetricsRow]:
        """Return the rows of metrics.csv, or raise `FileNotFoundError` or `RunError`."""
        return list(self.metrics_rows())

    def metrics_rows(self) -> Iterator[MetricsRow]:
        """Yield the rows of metrics.csv."""
        try:
            yield from parse_metrics(line for line in self.metrics_lines() if line.endswith("\n"))
        except ValueError as error:
            raise RunError(f"{self.folder / METRICS_FILE} is damaged: {error}") from error

    def has_records(self) -> bool:
        """Return whether events.jsonl has any content; it has none with `output.events = false`."""
        return size_inside(self.folder / EVENTS) > 0

    def record_lines(self) -> Iterator[bytes]:
        """Return an iterator over the complete lines of events.jsonl, or raise `RunError` if it is empty."""
        if not self.has_records():
            raise RunError(
                f"{self.folder / EVENTS} has no records: output.events is false, or the run has just started"
            )
        return (line for line in lines_inside(self.folder / EVENTS) if line.endswith(b"\n"))

    def last_record(self) -> Record | None:
        """Return the last complete record, or None if there is none."""
        path = self.folder / EVENTS
        if not self.has_records():
            return None
        with open_inside(path) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = [line for line in file.read().splitlines(keepends=True)[-2:] if line.endswith(b"\n")]
        try:
            return parse_record(lines[-1]) if lines else None
        except RunError as error:
            raise RunError(f"{path} is damaged: {error}") from error


def read_inside(path: Path) -> bytes:
    """Return the content of a file in a run folder."""
    with open_inside(path) as file:
        return file.read()


def parse_record(line: bytes, num_clients: int | None = None) -> Record:
    """Return the record in a line; raise `RunError` if it has no record, or one of an unknown client."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise RunError(f"invalid record: {error}") from error
    event = record.get("event") if isinstance(record, dict) else None
    if not isinstance(event, str) or event not in RECORDS:
        raise RunError(f"unknown record {event!r:.80}")
    problem = _problem_of(record, RECORDS[event])
    if problem is None and num_clients is not None:
        problem = _unknown_client(record, num_clients)
    if problem is not None:
        raise RunError(f"invalid record {event}: {problem}")
    return cast("Record", record)


def _reject(path: Path, problem: str | None) -> None:
    """Raise `RunError` if there is a problem with the content of a file."""
    if problem is not None:
        raise RunError(f"{path} is damaged: {problem}")


def _problem_of(content: JsonObject, table: Any) -> str | None:
    """Return what is missing from a table or has another type than declared, or None."""
    for name, has_type in _type_checks(table).items():
        if name in content:
            if not has_type(content[name]):
                return f"{name} is {content[name]!r:.80}"
        elif name in table.__required_keys__:
            return f"it has no {name}"
    return None


@cache
def _type_checks(table: Any) -> Mapping[str, Callable[[Any], bool]]:
    return {name: _type_check(hint) for name, hint in get_type_hints(table).items()}


def _type_check(hint: Any) -> Callable[[Any], bool]:
    """Return a function that tells whether a JSON value has a declared type."""
    origin, parts = get_origin(hint), get_args(hint)
    if is_typeddict(hint):
        return lambda value: isinstance(value, dict) and _problem_of(value, hint) is None
    if origin is dict:
        return lambda value: isinstance(value, dict)
    if origin in (list, tuple):
        is_item, num = _type_check(parts[0]), len(parts) if origin is tuple else None
        return lambda value: (
            isinstance(value, list) and num in (None, len(value)) and all(map(is_item, value))
        )
    kinds = frozenset(parts if isinstance(hint, UnionType) else [hint])
    allowed = kinds | {int} if float in kinds else kinds
    return lambda value: type(value) in allowed


def _unknown_client(content: JsonObject, num_clients: int) -> str | None:
    """Return the first client of a record or of the topology that does not exist, as text, or None."""
    for name in ("client", "sender", "recipient"):
        if name in content and not 0 <= content[name] < num_clients:
            return f"{name} is {content[name]}; there are {num_clients} clients"
    for name in ("byzantine", "clients", "edges", "links", "sides"):
        if name in content:
            for item in content[name]:
                clients = item if isinstance(item, list) else [item]
                if not all(0 <= client < num_clients for client in clients):
                    return f"{name} contains {item}; there are {num_clients} clients"
    return None


_SUMMARY_TYPES: Mapping[str, tuple[type, ...]] = {
    "text": (str,),
    "hash": (str,),
    "count": (int,),
    "number": (int,),
    "ids": (list,),
    "texts": (list,),
}
"""The types of values in summary.json by unit; values of other units are numbers, null or lists."""


def _problem_of_summary(summary: JsonObject) -> str | None:
    """Return which value of a summary has another type than its unit requires, or None."""
    for path, field in SUMMARY_FIELDS.items():
        *sections, key = path.split(".")
        table: Any = summary
        for section in sections:
            table = table.get(section)
            if not isinstance(table, dict | None):
                return f"{section} is {table!r:.80}"
            if table is None:
                break
        else:
            if key in table and not isinstance(table[key], _SUMMARY_TYPES.get(field.unit, (object,))):
                return f"{path} is {table[key]!r:.80}"
    return None


def run_folder_problem(path: Path) -> str | None:
    """Return the reason why a path is not a run folder, or None if it is one."""
    if (path / SCENARIO).is_file():
        return None
    if not path.is_dir():
        return f"{path} is not a folder" if path.exists() else f"{path} does not exist"
    newest = newest_run(path)
    hint = "" if newest is None else f"; the newest run in it is {newest}"
    return f"{path} is not a run folder: it has no {SCENARIO}{hint}"


def newest_run(path: Path) -> Path | None:
    """Return the newest run folder inside a folder, or None if there is none."""
    found = [*path.glob(f"*/{SCENARIO}"), *path.glob(f"{RUNS}/*/{SCENARIO}")]
    runs = [scenario.parent for scenario in found]
    return max(runs, key=lambda run: run.stat().st_mtime, default=None)


CHUNK = 1 << 22


class Follower:
    """Reads complete lines appended to a file; starts again if the file is truncated."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._position = 0
        self._rest = b""

    def has_restarted(self) -> bool:
        """Return whether the file was truncated; reading then restarts with its first line."""
        restarted = size_inside(self.path) < self._position
        if restarted:
            self._position, self._rest = 0, b""
        return restarted

    def chunks(self) -> Iterator[list[bytes]]:
        """Yield the complete lines appended since the last call, in batches."""
        if size_inside(self.path) <= self._position:
            return
        with open_inside(self.path) as file:
            file.seek(self._position)
            while content := file.read(CHUNK):
                self._position += len(content)
                *lines, self._rest = (self._rest + content).split(b"\n")
                yield lines


def is_running(folder: Path) -> bool:
    """Return whether a process has locked the run folder or, without locks, the summary is missing."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return not (folder / SUMMARY).exists()
    finally:
        os.close(descriptor)
    return False
