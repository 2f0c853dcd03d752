"""Whether a run's scenario gives the same run again."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import orjson

from rdpfl_sim.blueprint import Blueprint
from rdpfl_sim.provenance import session
from rdpfl_sim.records.folder import EVENTS, PROVENANCE, SCENARIO, SUMMARY, read_json, read_json_if_there
from rdpfl_sim.scenario import Scenario
from rdpfl_sim.simulation import Progress, simulate
from rdpfl_sim.verification.check import Check, Needs

END = (b'{"event":"final_model"', b'{"event":"run_finished"')
"""With these an interrupted run ends, and the same run goes on when it is not interrupted."""


def replay(folder: Path, progress: Progress | None = None) -> Check:
    """Run the scenario of a run once more, elsewhere, and compare the records."""
    check = Check("replay", "The same scenario gives the same records again.", Needs.NOTHING)
    summary = read_json_if_there(folder / SUMMARY) or {}
    blueprint = Blueprint(Scenario.load(folder / SCENARIO))
    with tempfile.TemporaryDirectory(prefix="rdpfl-sim-") as elsewhere:
        again = simulate(blueprint, elsewhere, progress)
        if again.summary["status"] == "interrupted":
            raise KeyboardInterrupt
        assert again.folder is not None
        is_whole = summary.get("status") in ("finished", "out of time")
        if (folder / EVENTS).exists() and blueprint.scenario.output.events:
            _compare_records(check, folder / EVENTS, again.folder / EVENTS, is_whole)
        elif is_whole:
            check.num_items = 1
            if summary["digest"] != again.summary["digest"]:
                check.violated(None, "the digests differ, and there are no records to compare")
        else:
            check.unchecked = "there is neither a record nor a digest to compare"
    if check.first is not None:
        check.first += _changed(folder / PROVENANCE, session(blueprint.device))
    return check


def _compare_records(check: Check, before: Path, again: Path, is_whole: bool) -> None:
    with before.open("rb") as one, again.open("rb") as other:
        expected = one if is_whole else _unfinished(one)
        for line, (left, right) in enumerate(zip_longest(expected, other), start=1):
            if left is None and not is_whole:
                return
            check.num_items += 1
            if left != right:
                check.violated(line, difference(left, right))
                return


def _unfinished(lines: Iterator[bytes]) -> Iterator[bytes]:
    """The records of a run that did not come to its end, as far as they are whole."""
    for line in lines:
        if line.startswith(END) or not line.endswith(b"\n"):
            return
        yield line


def difference(left: bytes | None, right: bytes | None) -> str:
    """What differs between two records, and both of them; None is one that is not there."""
    if left is None or right is None:
        side, line = ("the run", right) if left is None else ("its replay", left)
        return f"{side} has ended before\n  {_text(line)}"
    return f"{_what_differs(left, right)}\n  before  {_text(left)}\n  again   {_text(right)}"


def _what_differs(left: bytes, right: bytes) -> str:
    try:
        one, other = orjson.loads(left), orjson.loads(right)
        keys = [key for key in {**one, **other} if one.get(key) != other.get(key)]
    except (orjson.JSONDecodeError, TypeError, AttributeError):
        return "one of both is no record"
    return f"differs in {', '.join(keys)}" if keys else "differs in how it is written"


def _text(line: bytes | None) -> str:
    return "" if line is None else line.decode(errors="replace").rstrip("\n")


def _changed(path: Path, now: Mapping[str, Any]) -> str:
    """What is not as it was when the run was made; it may be the reason."""
    if not path.exists():
        return ""
    then = read_json(path)["sessions"][-1]
    parts = [("", "device"), ("", "threads"), ("machine", "processor"), ("machine", "instructions")]
    parts += [("code", "commit"), ("code", "changed"), *(("versions", name) for name in now["versions"])]
    changes = []
    for group, key in parts:
        was, is_ = ((side[group] if group else side).get(key) for side in (then, now))
        if was != is_:
            changes.append(f"{key} was {was}, is {is_}")
    return "".join(f"\n  {change}" for change in changes)
