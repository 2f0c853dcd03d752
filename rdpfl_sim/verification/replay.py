"""Repeat a run from its scenario and compare every file, byte by byte.

Only a replay detects every change. The lists below contain the fields that it ignores and the changes that
`verify` does not detect.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import zip_longest
from pathlib import Path
from typing import Any

import orjson

from rdpfl_sim.records.json_file import encode_json, first_difference, read_json
from rdpfl_sim.records.reader import RunReader, read_inside
from rdpfl_sim.records.run_folder import EVENTS, METRICS_FILE, PROVENANCE, SCENARIO, SUMMARY, TOPOLOGY
from rdpfl_sim.records.status import RunStatus
from rdpfl_sim.scenario.scenario import Scenario, is_older, read_run, reject_network_access
from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.simulation.provenance import RESUMED_ELSEWHERE, changes, session
from rdpfl_sim.simulation.simulation import Progress, simulate
from rdpfl_sim.system.files import lines_inside
from rdpfl_sim.verification.check import Check, Needs

END = (b'{"event":"final_model"', b'{"event":"run_finished"')
"""Records at the end of an interrupted run, which are absent at that point of an uninterrupted run."""

UNREPEATABLE = {
    "summary.json": ("wall.seconds", "wall.device", "wall.trained_on", "wall.threads"),
    "provenance.json": ("sessions",),
}
"""Fields that differ between runs: wall-clock times, host, folder, start time.

Figures and the warning that a run was resumed in a different environment are not compared either.
docs/guides/verify.md has the same list.
"""

ONLY_BY_REPLAY = (
    "the distances in message_stats, and changes of weights within the rounding error of a sum",
    "the size of a message that is retransmitted or compressed",
    "the size of a message whose sender is Byzantine or has only one neighbour",
    "the position of a message record among the records of the same instant",
    "the time of a message that was lost after it was sent",
    "the reason for the loss of a message at the instant at which its sender stopped",
    "whether a message was rejected as 'not finite' or for its 'wrong shape or type'",
    "the numbers in warnings about small test sets, crashes during training and diverged models",
    "the last digits of G_g, sigma_u and the bound in the theory, and all digits if a client never trained",
    "values that depend on records omitted by output.events or output.message_events",
)
"""Single changes that `verify` may not detect without a replay; docs/guides/verify.md has the same list."""

LINES = (EVENTS, METRICS_FILE)
"""Files that grow line by line; for an incomplete run, the existing lines are compared."""


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
    check = Check("replay", "Repeating the scenario gives the same files.", Needs.NOTHING)
    is_complete = RunReader(folder).read_status().is_complete
    for name in LINES:
        _compare_lines(check, folder / name, again / name, is_complete)
    for name in (SCENARIO, TOPOLOGY):
        check.num_items += 1
        if _content(folder / name) != _content(again / name) and not _only_older(folder / name, again / name):
            check.violated(None, f"{name} differs")
    for name in (PROVENANCE, *([SUMMARY] if is_complete else [])):
        check.num_items += 1
        difference = _difference_of_json(folder / name, again / name)
        if difference is not None:
            check.violated(None, f"{name}: {difference}")
    return check


def _only_older(before: Path, again: Path) -> bool:
    """Return whether a scenario differs only because it was written without `execution.arithmetic`."""
    if before.name != SCENARIO or not before.exists():
        return False
    return is_older(before) and read_run(before) == read_run(again)


def _content(path: Path) -> bytes | None:
    return read_inside(path) if path.exists() else None


def _difference_of_json(before: Path, again: Path) -> str | None:
    """Return the difference between two JSON files, except fields that differ between runs."""
    if not before.exists():
        return "it is missing"
    one, other = read_json(before), read_json(again)
    is_written = encode_json(one) == read_inside(before)
    difference_ = first_difference(_masked(one, before.name), _masked(other, before.name))
    return "it is formatted differently" if difference_ is None and not is_written else difference_


def _masked(content: Any, name: str) -> Any:
    """Return the content with null in the fields that differ between runs."""
    for path in UNREPEATABLE[name]:
        *groups, key = path.split(".")
        table = content
        for group in groups:
            table = table.get(group) if isinstance(table, dict) else None
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
                    check.violated(line, difference(left, right))
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


def difference(left: bytes | None, right: bytes | None) -> str:
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
