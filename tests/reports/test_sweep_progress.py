"""Progress lines of sweeps and breakdown searches in a file or a pipe."""

from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from rdpfl_sim.reports import sweep_progress
from rdpfl_sim.reports.sweep_progress import BreakdownProgress, SweepProgress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(sweep_progress, "monotonic", lambda: clock.now)
    return clock


def run_of(key: str) -> Any:
    return SimpleNamespace(key=key, labels={"attack": "noise"}, scenario=SimpleNamespace(seed=3))


def test_lines_are_written_at_the_start_every_thirty_seconds_and_at_the_end(clock) -> None:
    console = Console(file=StringIO(), width=80)
    with SweepProgress(console, num_runs=6, num_done=2) as progress:
        for key in "abcd":
            progress.started(run_of(key))
            progress.advanced(run_of(key), 0.5)
            clock.now += 20.0
            progress.ended(run_of(key), error=None)
    assert console.file.getvalue().splitlines() == [
        "2 of 6 runs",
        "4 of 6 runs, 40.0 s left",
        "6 of 6 runs",
    ]


def test_unfinished_runs_count_for_the_time_left(clock) -> None:
    console = Console(file=StringIO(), width=80)
    with SweepProgress(console, num_runs=1, num_done=0) as progress:
        progress.started(run_of("a"))
        clock.now += 90.0
        progress.advanced(run_of("a"), 0.25)
        assert console.file.getvalue().splitlines()[-1] == "0 of 1 runs, 4.5 min left"


def test_a_failure_is_printed_at_once(clock) -> None:
    console = Console(file=StringIO(), width=80)
    with SweepProgress(console, num_runs=2, num_done=0) as progress:
        progress.started(run_of("a"))
        progress.ended(run_of("a"), error="out of memory")
        assert console.file.getvalue().splitlines()[-1] == "failed: attack = noise, seed 3: out of memory"


def test_runs_found_complete_do_not_count_as_speed(clock) -> None:
    console = Console(file=StringIO(), width=80)
    with BreakdownProgress(console) as progress:
        progress.expect(num_found=10, num_now=1, num_later=1)
        progress.started(run_of("a"))
        clock.now += 60.0
        progress.ended(run_of("a"), error=None)
        assert console.file.getvalue().splitlines()[-1] == "11 of 12 runs, 60.0 s left"


def test_a_quiet_console_stays_empty(clock) -> None:
    console = Console(file=StringIO(), quiet=True)
    with SweepProgress(console, num_runs=1, num_done=0):
        pass
    assert console.file.getvalue() == ""
