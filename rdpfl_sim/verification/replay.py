"""Repeat a run from its scenario and compare every file. Only a replay detects every change."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import orjson

from rdpfl_sim.files import JsonObject, lines_inside, open_inside, read_json
from rdpfl_sim.records.files import EVENTS, METRICS_FILE, MODELS_FILE, PROVENANCE, SCENARIO, SUMMARY, TOPOLOGY
from rdpfl_sim.records.reader import RunReader
from rdpfl_sim.records.status import RunStatus
from rdpfl_sim.scenario.scenario import Scenario, read_run, reject_network_access
from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.simulation.provenance import RESUMED_ELSEWHERE, changes, session
from rdpfl_sim.simulation.simulation import Progress, simulate
from rdpfl_sim.verification.check import Check, difference

CHUNK = 1 << 20

END = (b'{"event":"final_model"', b'{"event":"run_finished"')
"""Records at the end of an interrupted run, which are absent at that point of an uninterrupted run."""

UNREPEATABLE = {
    SUMMARY: ("wall.seconds", "wall.device", "wall.trained_on", "wall.threads"),
    PROVENANCE: ("sessions",),
}
"""Fields that differ between runs: wall-clock times, host, folder, start time.

Figures and the warning that a run was resumed in a different environment are not compared either.
docs/experiments/verify.md has the same list.
"""

ONLY_BY_REPLAY = (
    "the graph, the Byzantine clients and the faults, as far as they follow from the scenario",
    "message records: numbers, distances, and changes that other records of the same instant also allow",
    "metrics.csv: the column hops",
    "summary.json: the description of the scenario, warnings, wall, neighbourhood, theory, and in telemetry "
    "by_hops and num_trimmed_less",
    "values that depend on records omitted by output.events or output.message_events",
    "the formatting of files, and additional keys",
    "consistent changes to several files",
)
"""Changes that `verify` may not detect without a replay; docs/experiments/verify.md has the same list."""

READERS: Mapping[str, Callable[[Path], JsonObject]] = {
    SCENARIO: read_run,
    TOPOLOGY: read_json,
    PROVENANCE: read_json,
    SUMMARY: read_json,
}
"""The functions that read the small files of a run."""


def replay(folder: Path, progress: Progress | None = None, allow_cluster: bool = False) -> Check:
    """Run the scenario of a run again in a temporary folder and compare all files.

    A scenario with the address of a Ray cluster needs `allow_cluster`.
    """
    RunReader(folder)  # raises an error if the schema is different
    scenario = Scenario.of_run(folder)
    reject_network_access(scenario, allow_cluster)
    experiment = Experiment(scenario)
    with tempfile.TemporaryDirectory(prefix="rdpfl-sim-") as elsewhere:
        again = simulate(experiment, elsewhere, progress)
        if again.summary["status"] == RunStatus.INTERRUPTED:
            raise KeyboardInterrupt
        assert again.folder is not None
        check = compare(folder, again.folder)
    if check.first is not None:
        check.first += _changed(folder / PROVENANCE, session(experiment.device, experiment.arithmetic))
    return check


def compare(folder: Path, again: Path) -> Check:
    """Compare the files of a run with its replay, except fields that differ between runs."""
    check = Check("replay")
    is_complete = RunReader(folder).read_status().is_complete
    for name in (EVENTS, METRICS_FILE):
        _compare_lines(check, folder / name, again / name, is_complete)
    if is_complete:
        _compare_models(check, folder / MODELS_FILE, again / MODELS_FILE)
    for name, read in READERS.items():
        if name == SUMMARY and not is_complete:
            continue
        check.num_items += 1
        if not (folder / name).exists():
            check.violated(None, f"{name} is missing")
            continue
        one, other = (_masked(read(run / name), name) for run in (folder, again))
        if _canonical(one) != _canonical(other):
            check.violated(None, f"{name}: {difference(one, other, exact=True)}")
    return check


def _canonical(content: JsonObject) -> bytes:
    """Return the content as JSON that does not depend on the order of keys."""
    return orjson.dumps(content, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)


def _compare_models(check: Check, before: Path, again: Path) -> None:
    """Compare the saved models byte by byte, if there are any."""
    if before.exists() != again.exists():
        check.violated(None, f"{before.name} is {'unexpected' if before.exists() else 'missing'}")
    elif before.exists():
        check.num_items += 1
        with open_inside(before) as one, open_inside(again) as other:
            pairs = zip_longest(*(iter(partial(file.read, CHUNK), b"") for file in (one, other)))
            if any(left != right for left, right in pairs):
                check.violated(None, f"{before.name} differs")


def _masked(content: Any, name: str) -> Any:
    """Return the content with null in the fields that differ between runs."""
    for path in UNREPEATABLE.get(name, ()):
        group, _, key = path.rpartition(".")
        table = content.get(group) if group else content
        if isinstance(table, dict) and key in table:
            table[key] = None
    if isinstance(content.get("warnings"), list):
        content["warnings"] = [
            text for text in content["warnings"] if not str(text).startswith(RESUMED_ELSEWHERE)
        ]
    return content


def _compare_lines(check: Check, before: Path, again: Path, is_complete: bool) -> None:
    """Compare line by line, up to the first difference."""
    if not before.exists():
        check.violated(None, f"{before.name} is missing")
        return
    with closing(lines_inside(before)) as one, closing(lines_inside(again)) as other:
        expected = one if is_complete else _unfinished(one)
        for line, (left, right) in enumerate(zip_longest(expected, other), start=1):
            if left is None and not is_complete:
                return
            check.num_items += 1
            if left != right:
                if before.name == EVENTS:
                    check.violated(line, record_difference(left, right))
                else:
                    difference_ = f"{before.name}, line {line}: {_text(left)!r}, again {_text(right)!r}"
                    check.violated(None, difference_)
                return


def _unfinished(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the complete lines of an incomplete run, without the records at its end."""
    for line in lines:
        if line.startswith(END) or not line.endswith(b"\n"):
            return
        yield line


def record_difference(left: bytes | None, right: bytes | None) -> str:
    """Describe the difference between two records; None is a missing record."""
    if left is None or right is None:
        side, line = ("the run", right) if left is None else ("its replay", left)
        return f"{side} ends before\n  {_text(line)}"
    return f"{_what_differs(left, right)}\n  before  {_text(left)}\n  again   {_text(right)}"


def _what_differs(left: bytes, right: bytes) -> str:
    try:
        one, other = orjson.loads(left), orjson.loads(right)
        keys = [key for key in {**one, **other} if one.get(key) != other.get(key)]
    except (orjson.JSONDecodeError, TypeError, AttributeError):
        return "one of them is not a record"
    return f"differs in {', '.join(keys)}" if keys else "differs in formatting"


def _text(line: bytes | None) -> str:
    return "" if line is None else line.decode(errors="replace").rstrip("\n")


def _changed(path: Path, now: Mapping[str, Any]) -> str:
    """Return changes in the environment since the run, which may explain a difference."""
    if not path.exists():
        return ""
    return "".join(f"\n  {change}" for change in changes(read_json(path)["sessions"][-1], now))
