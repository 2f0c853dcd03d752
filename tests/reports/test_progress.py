from __future__ import annotations

import errno
from contextlib import suppress
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from rdpfl_sim.reports import progress as progress_module
from rdpfl_sim.reports.progress import (
    LiveProgress,
    PlainProgress,
    ProgressDisplay,
    SweepProgress,
    make_progress,
)


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(progress_module, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_plain_progress_writes_a_line_at_each_tenth(clock: Clock) -> None:
    stream = StringIO()
    with PlainProgress(stream, 200) as progress:
        for rounds_done in range(201):
            progress.update(rounds_done, 1.5 * rounds_done, None, 4 * rounds_done)
            clock.now += 0.01
    lines = stream.getvalue().splitlines()
    assert [line.split("%")[0].strip() for line in lines] == [str(p) for p in range(10, 101, 10)]
    assert lines[0] == " 10%  20 of 200 client rounds, 30.0 s simulated, accuracy -, 80 messages, 1.8 s left"
    assert lines[-1] == "100%  200 of 200 client rounds, 5.0 min simulated, accuracy -, 800 messages"


def test_plain_progress_writes_a_line_every_five_seconds(clock: Clock) -> None:
    stream = StringIO()
    with PlainProgress(stream, 1000) as progress:
        for _ in range(121):  # 12 seconds during one round
            progress.update(1, 0.5, 0.8123, 4)
            clock.now += 0.1
        assert len(stream.getvalue().splitlines()) == 2
    assert (
        stream.getvalue().splitlines()[0]
        == "  0%  1 of 1,000 client rounds, 0.5 s simulated, accuracy 0.812, 4 messages"
    )


def test_speed_of_a_resumed_run_is_measured_from_the_round_it_resumes_in(clock: Clock) -> None:
    stream = StringIO()
    with PlainProgress(stream, 100) as progress:
        progress.update(50, 0.0, None, 0)
        clock.now += 8.0
        progress.update(54, 0.0, None, 0)
    assert stream.getvalue().rstrip().endswith("92.0 s left")  # 4 rounds took 8 seconds, 46 are left


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EPIPE])
def test_log_that_cannot_be_written_does_not_end_the_run(number: int, clock: Clock) -> None:
    class Full(StringIO):
        def flush(self) -> None:
            raise OSError(number, "no room")

    with PlainProgress(Full(), 10) as progress:
        for rounds_done in range(11):
            progress.update(rounds_done, 1.0, None, 0)


def test_interrupted_run_shows_its_last_state(clock: Clock) -> None:
    stream = StringIO()
    with suppress(KeyboardInterrupt), PlainProgress(stream, 100) as progress:
        progress.update(0, 0.0, None, 0)
        progress.update(3, 2.0, 0.5, 9)
        raise KeyboardInterrupt
    assert stream.getvalue().startswith(
        "  3%  3 of 100 client rounds, 2.0 s simulated, accuracy 0.500, 9 messages"
    )


def test_last_line_is_written_once_and_without_time_left(clock: Clock) -> None:
    stream = StringIO()
    with PlainProgress(stream, 10) as progress:
        progress.update(0, 0.0, None, 0)
        clock.now += 1.0
        progress.update(9, 9.0, None, 9)  # one client has stopped for good
        progress.update(9, 12.0, 0.5, 9)
    assert stream.getvalue().splitlines() == [
        " 90%  9 of 10 client rounds, 9.0 s simulated, accuracy -, 9 messages, 0.1 s left",
        " 90%  9 of 10 client rounds, 12.0 s simulated, accuracy 0.500, 9 messages",
    ]


def test_live_progress_ends_with_the_last_state_on_one_line() -> None:
    console = Console(file=StringIO(), width=80, force_terminal=True, color_system=None)
    with LiveProgress(console, 300_000) as progress:
        for rounds_done in (0, 99_999, 300_000):
            progress.update(rounds_done, 7100.0, 0.8123, 99_999_999)
    last = console.file.getvalue().split("\x1b[2K")[-1].splitlines()[0]  # type: ignore[attr-defined]
    assert "300k/300k rounds, 118.3 min, accuracy 0.812, 100.0M messages" in last
    assert last.endswith("00:00 left")
    assert len(last) == 80


def test_live_progress_is_throttled(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[int] = []
    progress = LiveProgress(Console(file=StringIO()), 1000)
    monkeypatch.setattr(progress._bar, "update", lambda task, completed, state: shown.append(completed))
    for rounds_done in range(1000):  # one second
        progress.update(rounds_done, 0.0, None, 0)
        clock.now += 0.001
    assert 4 <= len(shown) <= 6


@pytest.mark.parametrize(
    ("quiet", "interactive", "expected"),
    [(True, True, ProgressDisplay), (False, True, LiveProgress), (False, False, PlainProgress)],
)
def test_display_depends_on_quiet_and_on_the_terminal(quiet: bool, interactive: bool, expected: type) -> None:
    console = Console(file=StringIO(), force_terminal=interactive, force_interactive=interactive)
    assert type(make_progress(quiet, 10, console)) is expected


def test_quiet_progress_writes_nothing() -> None:
    console = Console(file=StringIO(), force_terminal=True)
    with make_progress(True, 10, console) as progress:
        progress.update(10, 1.0, 0.5, 3)
    assert console.file.getvalue() == ""  # type: ignore[attr-defined]


def run_of(key: str) -> Any:
    return SimpleNamespace(key=key, labels={"attack": "noise"}, scenario=SimpleNamespace(seed=3))


def test_sweep_writes_lines_at_the_start_every_thirty_seconds_and_at_the_end(clock: Clock) -> None:
    console = Console(file=StringIO(), width=80)
    with SweepProgress(console) as progress:
        progress.expect(2, 4, 0)
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


def test_unfinished_runs_count_for_the_time_left(clock: Clock) -> None:
    console = Console(file=StringIO(), width=80)
    with SweepProgress(console) as progress:
        progress.expect(0, 1, 0)
        progress.started(run_of("a"))
        clock.now += 90.0
        progress.advanced(run_of("a"), 0.25)
        assert console.file.getvalue().splitlines()[-1] == "0 of 1 run, 4.5 min left"


def test_a_failure_is_printed_immediately(clock: Clock) -> None:
    console = Console(file=StringIO(), width=80)
    with SweepProgress(console) as progress:
        progress.expect(0, 2, 0)
        progress.started(run_of("a"))
        progress.ended(run_of("a"), error="out of memory")
        assert console.file.getvalue().splitlines()[-1] == "failed: attack = noise, seed 3: out of memory"


def test_runs_that_are_already_complete_do_not_count_as_speed(clock: Clock) -> None:
    console = Console(file=StringIO(), width=80)
    with SweepProgress(console) as progress:
        progress.expect(num_found=10, num_now=1, num_later=1)
        progress.started(run_of("a"))
        clock.now += 60.0
        progress.ended(run_of("a"), error=None)
        assert console.file.getvalue().splitlines()[-1] == "11 of 12 runs, 60.0 s left"


def test_quiet_console_of_a_sweep_stays_empty(clock: Clock) -> None:
    console = Console(file=StringIO(), quiet=True)
    with SweepProgress(console) as progress:
        progress.expect(0, 1, 0)
    assert console.file.getvalue() == ""
