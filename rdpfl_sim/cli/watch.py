"""rdpfl-sim watch: show a live dashboard of a run in another process."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rdpfl_sim.cli.common import FAILED, INTERRUPTED, UsageError, make_console, print_plain, report_damage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from rdpfl_sim.cli.live import RunMonitor

HELP = "follow a run live: accuracy, messages, faults"
EXAMPLES = """\
examples:
  rdpfl-sim watch                                 # the newest run in runs
  rdpfl-sim watch runs/ring_30pct-20260101-120000
"""
QUIET_S = 3.0
"""After this time without new records, check whether the run's process still exists."""
MAX_FAULTS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the run folder."""
    parser.add_argument(
        "run",
        type=Path,
        nargs="?",
        default=Path("runs"),
        metavar="RUN",
        help="a run folder, or a folder whose newest run is shown (default: runs)",
    )


def execute(options: argparse.Namespace) -> int:
    """Follow the run until it ends, then print its results."""
    from rdpfl_sim.cli.live import RunMonitor
    from rdpfl_sim.records.reader import RunReader, newest_run, run_folder_problem
    from rdpfl_sim.reports.run_summary import summary_table

    run: Path = options.run
    reason = run_folder_problem(run)
    if reason is not None:
        newest = newest_run(run)
        if newest is None:
            raise UsageError(reason)
        run = newest
    messages = make_console(stderr=True)
    with report_damage(run):
        reader = RunReader(run)
        monitor = RunMonitor(run, reader.read_scenario())
    try:
        with report_damage(run):
            _follow(monitor, run, messages)
    except KeyboardInterrupt:
        monitor.dashboard.state = "no longer watched"
        messages.print(monitor.dashboard)
        return INTERRUPTED
    summary = reader.read_summary()
    if summary is not None and "accuracy" in summary:
        with report_damage(run):
            make_console().print(summary_table(summary))
        print_plain(run)
        return 0
    monitor.dashboard.state = "killed" if summary is None else "failed"
    if messages.is_interactive:
        messages.print(monitor.dashboard)
    if summary is None:
        outcome = "the run was killed"
    else:
        outcome = f"the run failed: {summary.get('error', 'no reason was recorded')}"
    sys.stderr.write(f"{outcome}; resume with: rdpfl-sim resume {shlex.quote(str(run))}\n")
    return FAILED


def _follow(monitor: RunMonitor, run: Path, console: Console) -> None:
    """Show the dashboard, or print lines if there is no terminal, until the run ends."""
    from rich.live import Live

    from rdpfl_sim.cli.live import REDRAWS_PER_S
    from rdpfl_sim.reports.progress import PlainProgress

    monitor.read_new()
    if console.is_interactive:
        with Live(monitor.dashboard, console=console, screen=True, refresh_per_second=REDRAWS_PER_S):
            for _ in _poll(monitor, run):
                pass
        return
    num_printed = monitor.stats.num_faults
    with PlainProgress(console.file, monitor.dashboard.total_rounds) as progress:
        for _ in _poll(monitor, run):
            stats = monitor.stats
            progress.update(stats.rounds_done, stats.time_s, stats.honest_accuracy, stats.messages["sent"])
            _print_new_faults(monitor, num_printed, console)
            num_printed = stats.num_faults


def _poll(monitor: RunMonitor, run: Path) -> Iterator[None]:
    """Read new records at intervals until the run ends."""
    from rdpfl_sim.cli.live import READ_EVERY_S
    from rdpfl_sim.records.reader import is_running

    quiet_s = QUIET_S
    while True:
        quiet_s = 0.0 if monitor.read_new() else quiet_s + READ_EVERY_S
        may_be_over = quiet_s >= QUIET_S or monitor.stats.status is not None
        if may_be_over and not is_running(run):
            monitor.read_new()
            yield
            return
        yield
        time.sleep(READ_EVERY_S)


def _print_new_faults(monitor: RunMonitor, num_printed: int, console: Console) -> None:
    from rdpfl_sim.reports.text import duration, escape_control

    num_new = monitor.stats.num_faults - num_printed
    for time_s, text in list(monitor.stats.faults)[-min(num_new, MAX_FAULTS) :] if num_new > 0 else []:
        console.file.write(f"fault at {duration(time_s)}: {escape_control(text)}\n")
    if num_new > MAX_FAULTS:
        console.file.write(f"({num_new - MAX_FAULTS:,} earlier faults are not shown)\n")
