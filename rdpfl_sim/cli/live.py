"""Watching a run grow: a dashboard that is fed from the run's files, by this process or another."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from rdpfl_sim.records.metrics_file import METRICS
from rdpfl_sim.records.run_folder import EVENTS, METRICS_FILE
from rdpfl_sim.records.tail import Follower
from rdpfl_sim.reports.dashboard import Dashboard
from rdpfl_sim.reports.live_stats import LiveStats
from rdpfl_sim.reports.progress import ProgressDisplay, make_progress

if TYPE_CHECKING:
    from rich.console import Console

    from rdpfl_sim.scenario.scenario import Scenario

LOOK_EVERY_S = 0.5
REDRAWS_PER_S = 4


class RunMonitor:
    """Keeps a dashboard up to date with the files of a run; `scenario` is the resolved one."""

    def __init__(self, folder: Path, scenario: dict[str, Any]) -> None:
        self.has_events: bool = scenario["output"]["events"]
        self.num_clients: int = scenario["clients"]["count"]
        self._follower = Follower(folder / (EVENTS if self.has_events else METRICS_FILE))
        self.dashboard = Dashboard(
            f"{scenario['name']}, seed {scenario['seed']}",
            LiveStats(self.num_clients),
            scenario["rounds"] * self.num_clients,
            scenario["output"]["message_events"],
        )

    @property
    def stats(self) -> LiveStats:
        """How the run is doing."""
        return self.dashboard.stats

    def look(self) -> bool:
        """Read what is new; whether there was anything. A run that was resumed is read again."""
        if self._follower.has_restarted():
            self.dashboard.stats = LiveStats(self.num_clients)
        news = False
        for lines in self._follower.chunks():
            news = news or bool(lines)
            if self.has_events:
                self.stats.see(lines)
            else:
                for record in _evaluations(lines):
                    self.stats.record(record)
                    self.stats.clients[record["client"]].is_byzantine = record["byzantine"]
        self.dashboard.note()
        return news


class LiveDashboard:
    """The progress of a run of this process, as a dashboard on the whole terminal."""

    def __init__(self, console: Console, scenario: dict[str, Any]) -> None:
        from rich.live import Live

        self._scenario = scenario
        self._live = Live(console=console, screen=True, refresh_per_second=REDRAWS_PER_S)
        self._watcher: RunMonitor | None = None
        self._due_s = 0.0

    def follow(self, folder: Path) -> None:
        """The run has this folder."""
        self._watcher = RunMonitor(folder, self._scenario)
        self._live.update(self._watcher.dashboard)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def update(self, rounds_done: int, time_s: float, accuracy: float | None, messages: int) -> None:
        """Look at the files if it is time."""
        if self._watcher is not None and monotonic() >= self._due_s:
            self._watcher.look()
            self._due_s = monotonic() + LOOK_EVERY_S


def progress_of(options: argparse.Namespace, scenario: Scenario, console: Console) -> ProgressDisplay:
    """The display that the arguments of a command ask for, as far as the terminal can show it."""
    if options.live and console.is_interactive and not options.quiet:
        return LiveDashboard(console, scenario.to_dict())
    return make_progress(options.quiet, scenario.rounds * scenario.clients.count, console)


def _evaluations(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The rows of metrics.csv, as records of evaluations."""
    for row in csv.DictReader((line.decode() for line in lines), METRICS):
        if row["time_s"] != "time_s":  # the head of the file
            accuracy = row["personal_accuracy"]
            yield {
                "event": "evaluation",
                "time_s": float(row["time_s"]),
                "client": int(row["client"]),
                "byzantine": row["byzantine"] == "1",
                "round": int(row["round"]),
                "personal_accuracy": None if accuracy == "" else float(accuracy),
            }
