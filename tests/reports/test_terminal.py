from __future__ import annotations

import errno
from contextlib import suppress
from copy import deepcopy
from io import StringIO
from typing import Any

import pytest
from rich.console import Console, RenderableType

from rdpfl_sim.reports import terminal
from rdpfl_sim.reports.terminal import (
    LiveProgress,
    PlainProgress,
    SilentProgress,
    make_progress,
    problems,
    summary_table,
    warning_lines,
)

SUMMARY: dict[str, Any] = {
    "name": "ring_30pct",
    "status": "finished",
    "seed": 1,
    "rounds": 60,
    "num_clients": 10,
    "byzantine": [1, 4, 7],
    "method": "rdpfl",
    "attack": "sign_flip",
    "topology": "ring",
    "accuracy": {
        "honest": {
            "personal": {"mean": 0.8321, "worst": 0.7714, "p10": 0.7801, "spread": 0.0413},
            "global": {"mean": 0.5123, "worst": 0.4, "p10": 0.41, "spread": 0.1},
        },
        "all": {"personal": {"mean": 0.79, "worst": 0.65, "p10": 0.7, "spread": 0.1}, "global": None},
    },
    "messages": {
        "sent": 1200,
        "delivered": 1100,
        "lost": 97,
        "in_flight": 3,
        "used": 1000,
        "stale": 80,
        "duplicate": 0,
        "rejected": 5,
        "left_over": 15,
    },
    "neighbourhood": {
        "byzantine_fraction": {"0": 0.5},
        "outside_threat_model": [0, 2],
        "isolated": [],
        "num_components": 1,
    },
    "telemetry": {
        "rounds": {"all": {"clipped": 0.12, "bounded": 0.0}},
        "messages_from": {"byzantine": {"relative_weight": 0.25, "ignored": 0.5}},
    },
    "num_faults": 4,
    "rounds_done": [60, 60],
    "simulated_s": 512.3,
    "wall": {"seconds": 8.41, "device": "cuda:0", "trained_on": "NVIDIA A100"},
    "digest": "0123456789abcdef0123456789abcdef",
}


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(terminal, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def rendered(renderable: RenderableType, width: int = 80) -> list[str]:
    console = Console(file=StringIO(), width=width)
    console.print(renderable)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def row(lines: list[str], label: str) -> list[str]:
    return next(line.split() for line in lines if line.split()[:1] == [label])


def test_table_compares_honest_clients_with_all() -> None:
    lines = rendered(summary_table(SUMMARY))
    assert row(lines, "honest") == ["honest", "(7)", "0.832", "0.771", "0.780", "0.041", "0.512"]
    assert row(lines, "all") == ["all", "(10)", "0.790", "0.650", "0.700", "0.100", "-"]


def test_facts_follow_the_table_in_words() -> None:
    lines = rendered(summary_table(SUMMARY))
    assert lines[:2] == [
        "ring_30pct, seed 1: finished",
        "rdpfl, attack sign_flip, topology ring, 10 clients, 3 Byzantine, 60 rounds",
    ]
    assert lines[-9:] == [
        "messages    1,200 sent: 1,100 delivered, 97 lost, 3 in flight",
        "            1,100 delivered: 1,000 used, 80 stale, 5 rejected, 15 left over",
        "neighbours  half or more are Byzantine for honest clients 0, 2",
        "estimator   clipped in 12.0% of honest rounds, bounded by G_d in 0.0%",
        "influence   a Byzantine message weighs 0.25 of an equal share; 50% are ignored",
        "faults      4 changes of the network or its clients",
        "time        8.5 min simulated, 8.4 s on the wall clock",
        "device      NVIDIA A100",
        "digest      0123456789abcdef",
    ]


def test_run_that_did_not_come_to_the_end_says_how_far_it_came() -> None:
    summary = SUMMARY | {"status": "out of time", "rounds_done": [12, 40]}
    assert rendered(summary_table(summary))[0] == "ring_30pct, seed 1: out of time (12 to 40 rounds done)"
    summary = SUMMARY | {"status": "interrupted", "rounds_done": [12, 12]}
    assert rendered(summary_table(summary))[0] == "ring_30pct, seed 1: interrupted (12 rounds done)"


def test_what_was_not_measured_is_a_dash_and_has_no_line() -> None:
    summary = deepcopy(SUMMARY) | {"num_faults": 0, "wall": {"seconds": 8.41}}
    summary["telemetry"]["rounds"]["all"] = {"clipped": None, "bounded": None}
    summary["telemetry"]["messages_from"]["byzantine"] = {"relative_weight": None, "ignored": None}
    summary["accuracy"]["honest"] = {"personal": None, "global": None}
    summary["accuracy"]["all"]["personal"] = {"mean": float("nan"), "worst": None, "p10": 0.5, "spread": 0.0}
    summary["neighbourhood"] |= {"outside_threat_model": [], "isolated": list(range(12))}
    lines = rendered(summary_table(summary))
    assert row(lines, "honest") == ["honest", "(7)", "-", "-", "-", "-", "-"]
    assert row(lines, "all") == ["all", "(10)", "-", "-", "0.500", "0.000", "-"]
    assert [line.split()[0] for line in lines[-5:]] == ["messages", "1,100", "isolated", "time", "digest"]
    assert lines[-3].endswith("0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more")


def test_large_run_fits_eighty_columns_without_losing_a_digit() -> None:
    summary = deepcopy(SUMMARY) | {"num_clients": 5000, "byzantine": list(range(1500)), "name": "n" * 100}
    summary["messages"] = dict.fromkeys(SUMMARY["messages"], 1_234_567_890)
    lines = rendered(summary_table(summary))
    assert max(map(len, lines)) <= 80
    assert "\n".join(lines).count("1,234,567,890") == len(SUMMARY["messages"]) + 1  # delivered is said twice
    assert "\n".join(lines).count("n" * 20) >= 5
    assert row(lines, "honest")[:2] == ["honest", "(3,500)"]


def test_warnings_are_yellow() -> None:
    console = Console(file=StringIO(), record=True, width=80, force_terminal=True, color_system="standard")
    console.print(warning_lines(["client 3 [bold]fell[/bold] silent"]))
    assert "\x1b[33mwarning: client 3 [bold]fell[/bold] silent\x1b[0m" in console.export_text(styles=True)


def test_each_problem_starts_a_line_and_wraps_under_itself() -> None:
    listed = ["clients: is required", "topology.degree: must be " + "less " * 20 + "(given: 12)"]
    lines = rendered(problems(listed, "ring.toml"))
    assert lines[:2] == ["ring.toml cannot be run: 2 problems", "  - clients: is required"]
    assert lines[2].startswith("  - topology.degree: must be less")
    assert all(line.startswith("    ") for line in lines[3:])
    assert " ".join(line.strip(" -") for line in lines[2:]) == listed[1]
    assert rendered(problems(["bad"], "ring.toml"))[0] == "ring.toml cannot be run: 1 problem"


def test_what_a_user_wrote_is_not_interpreted() -> None:
    lines = rendered(problems(["[red]a[/red]: b\x1b[31m\nc :smile:", "x" * 100], "[bold].toml"))
    assert lines[0] == "[bold].toml cannot be run: 2 problems"
    assert lines[1] == "  - [red]a[/red]: b\\x1b[31m\\nc :smile:"
    assert "".join(line.strip(" -") for line in lines[2:]) == "x" * 100


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
        for _ in range(121):  # 12 seconds, in which one round ends
            progress.update(1, 0.5, 0.8123, 4)
            clock.now += 0.1
        assert len(stream.getvalue().splitlines()) == 2
    assert (
        stream.getvalue().splitlines()[0]
        == "  0%  1 of 1,000 client rounds, 0.5 s simulated, accuracy 0.812, 4 messages"
    )


def test_resumed_run_is_timed_from_where_it_resumes(clock: Clock) -> None:
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


def test_interrupted_run_tells_how_far_it_came(clock: Clock) -> None:
    stream = StringIO()
    with suppress(KeyboardInterrupt), PlainProgress(stream, 100) as progress:
        progress.update(0, 0.0, None, 0)
        progress.update(3, 2.0, 0.5, 9)
        raise KeyboardInterrupt
    assert stream.getvalue().startswith(
        "  3%  3 of 100 client rounds, 2.0 s simulated, accuracy 0.500, 9 messages"
    )


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
    [(True, True, SilentProgress), (False, True, LiveProgress), (False, False, PlainProgress)],
)
def test_progress_suits_the_place_it_is_shown(quiet: bool, interactive: bool, expected: type) -> None:
    console = Console(file=StringIO(), force_terminal=interactive, force_interactive=interactive)
    assert type(make_progress(quiet, 10, console)) is expected


def test_quiet_progress_writes_nothing() -> None:
    console = Console(file=StringIO(), force_terminal=True)
    with make_progress(True, 10, console) as progress:
        progress.update(10, 1.0, 0.5, 3)
    assert console.file.getvalue() == ""  # type: ignore[attr-defined]
