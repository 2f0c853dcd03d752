"""Real runs in real processes; two or three at a time, so that it does not take long."""

import os
import signal
from pathlib import Path

import pytest

from rdpfl_sim import simulate
from rdpfl_sim.sweeps import engine, results
from rdpfl_sim.sweeps.engine import Worker, folder_of, missing, run_in_processes
from rdpfl_sim.sweeps.plan import Run, Sweep
from tests.support import small_scenario

START = engine._start


class Notes:
    def __init__(self) -> None:
        self.begun: list[str] = []
        self.errors: dict[str, str | None] = {}

    def started(self, run: Run) -> None:
        self.begun.append(run.key)

    def advanced(self, run: Run, fraction: float) -> None:
        assert 0 <= fraction <= 1

    def ended(self, run: Run, error: str | None) -> None:
        self.errors[run.key] = error


def runs(seeds: list[int], **changes) -> list[Run]:
    base = small_scenario(rounds=2, **changes).to_dict()
    return Sweep.from_dict({"base": base, "seeds": seeds}).runs()


def test_complete_runs_are_not_run_again_and_give_the_numbers_of_a_single_run(tmp_path: Path) -> None:
    first, second = runs([1, 2])
    notes = Notes()
    run_in_processes([first], tmp_path, 1, notes)
    assert notes.errors == {first.key: None}
    assert missing([first, second, second], tmp_path) == [second]
    run_in_processes(missing([first, second], tmp_path), tmp_path, 2, notes)
    assert notes.begun == [first.key, second.key]
    found = dict(results.read([first, second], tmp_path)[1][1])
    assert found["digest"] == simulate(second.scenario).summary["digest"]
    assert list((tmp_path / ".running").iterdir()) == []


def test_run_that_fails_or_is_killed_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, killed = runs([1, 2])
    broken = runs([3], topology={"name": "file", "path": str(tmp_path / "nowhere.csv")})[0]
    workers: list[Worker] = []

    def start(*arguments) -> Worker:
        workers.append(START(*arguments))
        return workers[-1]

    class Killer(Notes):
        def started(self, run: Run) -> None:
            if run.key == killed.key:
                os.kill(workers[-1].process.pid, signal.SIGKILL)

    notes = Killer()
    monkeypatch.setattr(engine, "_start", start)
    run_in_processes([broken, killed, good], tmp_path, 2, notes)
    assert notes.errors[good.key] is None
    assert "topology.path: cannot be read" in notes.errors[broken.key]
    assert notes.errors[killed.key] == "its process ended with exit code -9"
    assert [folder_of(run, tmp_path).exists() for run in (good, broken, killed)] == [True, False, False]
