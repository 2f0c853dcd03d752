"""Random single edits of a run's files, each with a name that describes the change."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import orjson

from rdpfl_sim.files import encode_json
from rdpfl_sim.verification.replay import UNREPEATABLE

FILES = {
    "summary.json": 6,
    "events.jsonl": 6,
    "metrics.csv": 3,
    "topology.json": 2,
    "provenance.json": 1,
}
"""The files that are checked, and how often each is edited."""

Edit = tuple[str, bytes]
"""A description of the change, and the new content of the file."""


@dataclass(frozen=True)
class Changed:
    """A file with one edit."""

    name: str
    what: str
    content: bytes

    def __str__(self) -> str:
        return f"{self.name}: {self.what}"


def edits(run: Path, rng: Random) -> Iterator[Changed]:
    """Yield random edits, each of the unchanged run."""
    contents = {name: (run / name).read_bytes() for name in FILES}
    names = [name for name, weight in FILES.items() for _ in range(weight)]
    while True:
        name = rng.choice(names)
        what, content = EDITORS[name](contents[name], rng)
        if content != contents[name]:
            yield Changed(name, what, content)


def _edit_records(content: bytes, rng: Random) -> Edit:
    lines = content.splitlines(keepends=True)
    if rng.random() < 0.3:
        return _edit_lines(lines, rng, lambda line: f"{orjson.loads(line)['event']}")
    place = rng.randrange(len(lines))
    record = orjson.loads(lines[place])
    event = record["event"]
    if rng.random() < 0.1:
        key, record = _add_or_delete(record, rng)
    else:
        key, record = _edit_leaf(record, rng)
    lines[place] = orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)
    return f"{event}.{key}", b"".join(lines)


def _edit_json(name: str, content: bytes, rng: Random) -> Edit:
    table = orjson.loads(content)
    skipped = UNREPEATABLE.get(name, ())
    if rng.random() < 0.15:
        key, table = _add_or_delete(table, rng)
    else:
        key, table = _edit_leaf(table, rng, skipped)
    return key, content if key.startswith(skipped) else encode_json(table)


def _edit_cells(content: bytes, rng: Random) -> Edit:
    lines = content.splitlines(keepends=True)
    if rng.random() < 0.3:
        return _edit_lines(lines, rng, lambda line: "row")
    place = rng.randrange(1, len(lines))
    cells = lines[place].decode().rstrip("\n").split(",")
    column = rng.randrange(len(cells))
    cells[column] = _other_text(cells[column], rng)
    lines[place] = (",".join(cells) + "\n").encode()
    return content.decode().split("\n")[0].split(",")[column], b"".join(lines)


def _edit_lines(lines: list[bytes], rng: Random, name: Callable[[bytes], str]) -> Edit:
    """Delete, double, swap or insert a line."""
    place = rng.randrange(len(lines) - 1)
    line, following = lines[place], lines[place + 1]
    kind = rng.choice(["deleted", "doubled", "swapped", "inserted"])
    inserted = b'{"event":"note","time_s":0.0}\n' if line.startswith(b'{"event"') else b"\n"
    changed = {
        "deleted": [following],
        "doubled": [line, line, following],
        "swapped": [following, line],
        "inserted": [line, inserted, following],
    }[kind]
    names = f"{name(line)} and {name(following)}" if kind == "swapped" else name(line)
    return f"{kind} {names}", b"".join([*lines[:place], *changed, *lines[place + 2 :]])


def _add_or_delete(table: dict[str, Any], rng: Random) -> tuple[str, dict[str, Any]]:
    if rng.random() < 0.5:
        return "added", {**table, "note": rng.choice([1, "text", None])}
    key = rng.choice(list(table))
    return key, {other: value for other, value in table.items() if other != key}


def _edit_leaf(table: Any, rng: Random, skipped: tuple[str, ...] = ()) -> tuple[str, Any]:
    """Change one number or text of a table; return its path and the new table."""
    leaves = [path for path in _leaves(table) if not ".".join(map(str, path)).startswith(skipped or ("\0",))]
    path = rng.choice(leaves)
    table = json.loads(json.dumps(table))
    place = table
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = _other(place[path[-1]], rng)
    return ".".join(map(str, path)), table


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if isinstance(value, dict | list) and value:
        for key, item in items:
            yield from _leaves(item, (*path, key))
    elif path:
        yield path


def _other(value: Any, rng: Random) -> Any:
    """Return a different value of the same or another type."""
    match value:
        case bool():
            return not value
        case int() | float():
            text = repr(value)
            options = [value + 1, -value, float(value) if isinstance(value, int) else int(value), None]
            digit = rng.choice([digit for digit in "0123456789" if digit != text[-1]])
            return rng.choice([*options, *[json.loads(text[:-1] + digit)] * 3])
        case str():
            return _other_text(value, rng)
        case None:
            return rng.choice([0, 0.0, "", False])
    return rng.choice([[1], ["text"]]) if value == [] else {"note": 1}


def _other_text(text: str, rng: Random) -> str:
    """Return the text with its last character changed or removed, or with an added one."""
    if text == "":
        return rng.choice(["0", "0.5", " "])
    last = rng.choice([character for character in "0123456789ax" if character != text[-1]])
    return rng.choice([text[:-1] + last, text[:-1], text + "0", "-" + text])


EDITORS: dict[str, Callable[[bytes, Random], Edit]] = {
    "events.jsonl": _edit_records,
    "metrics.csv": _edit_cells,
    "summary.json": lambda content, rng: _edit_json("summary.json", content, rng),
    "topology.json": lambda content, rng: _edit_json("topology.json", content, rng),
    "provenance.json": lambda content, rng: _edit_json("provenance.json", content, rng),
}
