"""Live dashboards that read the files of a run while this or another process writes them."""

from __future__ import annotations

import argparse
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Self

from rdpfl_sim.records.files import EVENTS, METRICS_FILE
from rdpfl_sim.records.metrics import headline_moment
from rdpfl_sim.records.reader import Follower
from rdpfl_sim.reports.dashboard import Dashboard, LiveStats
from rdpfl_sim.reports.progress import ProgressDisplay, make_progress

if TYPE_CHECKING:
    from rich.console import Console

    from rdpfl_sim.scenario.scenario import Scenario
    from rdpfl_sim.toml import TomlTable

READ_EVERY_S = 0.5
REDRAWS_PER_S = 4


class RunMonitor:
    """Updates a dashboard from the files of a run; `scenario` must contain all defaults."""

    def __init__(self, folder: Path, scenario: TomlTable) -> None:
        self.has_events: bool = scenario["output"]["events"]
        self.num_clients: int = scenario["clients"]["count"]
        self.moment = headline_moment(scenario)
        self._follower = Follower(folder / (EVENTS if self.has_events else METRICS_FILE))
        self.dashboard = Dashboard(
            f"{scenario['name']}, seed {scenario['seed']}",
            LiveStats(self.num_clients, self.moment),
            scenario["rounds"] * self.num_clients,
            scenario["output"]["message_events"],
        )

    @property
    def stats(self) -> LiveStats:
        """Statistics of the run so far."""
        return self.dashboard.stats

    def read_new(self) -> bool:
        """Read new lines and return whether there were any; a resumed run is read from the start."""
        if self._follower.has_restarted():
            self.dashboard.stats = LiveStats(self.num_clients, self.moment)
        has_new = False
        for lines in self._follower.chunks():
            has_new = has_new or bool(lines)
            if self.has_events:
                self.stats.add_records(lines)
            else:
                self.stats.add_metrics(lines)
        self.dashboard.sample_speed()
        return has_new


class LiveDashboard(ProgressDisplay):
    """A full-screen dashboard as the progress display of a run in this process."""

    def __init__(self, console: Console, scenario: TomlTable) -> None:
        from rich.live import Live

        self._scenario = scenario
        self._live = Live(console=console, screen=True, refresh_per_second=REDRAWS_PER_S)
        self._monitor: RunMonitor | None = None
        self._next_read_s = 0.0

    def follow(self, folder: Path) -> None:
        """Start reading the files in the folder of the run."""
        self._monitor = RunMonitor(folder, self._scenario)
        self._live.update(self._monitor.dashboard)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def update(self, rounds_done: int, time_s: float, accuracy: float | None, messages: int) -> None:
        """Read the files if `READ_EVERY_S` has passed."""
        if self._monitor is not None and monotonic() >= self._next_read_s:
            self._monitor.read_new()
            self._next_read_s = monotonic() + READ_EVERY_S


def make_run_progress(options: argparse.Namespace, scenario: Scenario, console: Console) -> ProgressDisplay:
    """Return the progress display requested by the arguments, if the terminal supports it."""
    if options.live and console.is_interactive and not options.quiet:
        return LiveDashboard(console, scenario.to_dict())
    return make_progress(options.quiet, scenario.rounds * scenario.clients.count, console)
