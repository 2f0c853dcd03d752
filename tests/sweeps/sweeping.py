"""Runs, a listener and a fake runner for the tests of runners and strategies."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from rdpfl_sim.sweeps.plan import PlannedRun
from rdpfl_sim.sweeps.runner import SweepListener, folder_of, read_summary
from rdpfl_sim.sweeps.spec import SweepSpec
from rdpfl_sim.sweeps.strategies.grid import plan_runs
from tests.support import small_scenario

ENDLESS = 1_000_000


class RecordingListener:
    """Records the reports of a runner and of a strategy."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.fractions: dict[str, float] = {}
        self.errors: dict[str, str | None] = {}
        self.rounds: list[tuple[int, int, int]] = []
        self.repeated: list[Path] = []

    def expect(self, num_found: int, num_now: int, num_later: int) -> None:
        self.rounds.append((num_found, num_now, num_later))

    def repeats(self, folder: Path) -> None:
        self.repeated.append(folder)

    def started(self, run: PlannedRun) -> None:
        self.begun.append(run.key)

    def advanced(self, run: PlannedRun, fraction: float) -> None:
        assert 0 <= self.fractions.get(run.key, 0) <= fraction <= 1
        self.fractions[run.key] = fraction

    def ended(self, run: PlannedRun, error: str | None) -> None:
        self.errors[run.key] = error


class FakeRunner:
    """A runner that calls `write` to write the folder of a run; a run fails if it returns False."""

    def __init__(self, write: Callable[[PlannedRun, Path], bool]) -> None:
        self.write = write

    def prepare(self) -> None:
        pass

    def close(self) -> None:
        pass

    def run(self, runs: Sequence[PlannedRun], output: Path, listener: SweepListener) -> None:
        for run in runs:
            listener.started(run)
            folder = folder_of(run, output)
            folder.mkdir(parents=True, exist_ok=True)
            is_complete = self.write(run, folder)
            if not is_complete:
                shutil.rmtree(folder)
            listener.ended(run, None if is_complete else "failed")


def make_run(seed: int, rounds: int = 2, **changes) -> PlannedRun:
    """Return a quick run, unless it has many rounds."""
    base = small_scenario(**changes, rounds=rounds).to_dict()
    return plan_runs(SweepSpec.from_dict({"base": base, "seeds": [seed]}))[0]


def digests(runs: Sequence[PlannedRun], output: Path) -> list[str]:
    """Return the digests of the complete runs."""
    summaries = [read_summary(run, output) for run in runs]
    return [summary["digest"] for summary in summaries if summary is not None]
