"""Real runs in real processes; two or three at a time, so that it does not take long."""

import os
import signal
from multiprocessing import active_children
from pathlib import Path

import pytest

from rdpfl_sim import simulate
from rdpfl_sim.sweeps import results
from rdpfl_sim.sweeps.engine import folder_of, missing
from rdpfl_sim.sweeps.plan import Run
from rdpfl_sim.sweeps.processes import Processes
from tests.sweeps.sweeping import ENDLESS, Notes, make_run


def test_runs_give_the_numbers_of_single_runs_and_leave_nothing_else(tmp_path: Path) -> None:
    runs, notes = [make_run(seed) for seed in (1, 2, 3)], Notes()
    Processes(2).run(runs, tmp_path, notes)
    assert notes.begun == [run.key for run in runs]
    assert notes.errors == {run.key: None for run in runs}
    found = [summary["digest"] for _, summary in results.read(runs, tmp_path)]
    assert found == [simulate(run.scenario).summary["digest"] for run in runs]
    assert {path.name for path in tmp_path.iterdir()} == {".running", *notes.begun}
    assert [path.name for path in (tmp_path / ".running").iterdir()] == ["lock"]
    assert not active_children()


def test_run_that_fails_or_is_killed_does_not_stop_the_others(tmp_path: Path) -> None:
    killed, good, better = make_run(1, ENDLESS), make_run(2), make_run(3)
    broken = make_run(4, topology={"name": "file", "path": str(tmp_path / "nowhere.csv")})

    class Killer(Notes):
        def started(self, run: Run) -> None:
            super().started(run)
            if run is killed:
                [self.victim] = active_children()

        def advanced(self, run: Run, fraction: float) -> None:
            super().advanced(run, fraction)
            if run is killed:  # on a busy machine the others are slow enough to tell how far they are
                os.kill(self.victim.pid, signal.SIGKILL)

    notes = Killer()
    runs = [killed, broken, good, better]
    Processes(2).run(runs, tmp_path, notes)
    assert (notes.errors[good.key], notes.errors[better.key]) == (None, None)
    left = tmp_path / "failed" / broken.key
    assert "topology.path: cannot be read" in notes.errors[broken.key]
    assert notes.errors[broken.key].endswith(f"; what it left: {left}")
    assert "ScenarioError" in (left / "log.txt").read_text()
    assert notes.errors[killed.key].startswith("its process was killed, by the system if memory is short")
    assert len(list((tmp_path / "failed" / killed.key).glob("*/events.jsonl"))) == 1
    assert missing(runs, tmp_path) == [killed, broken]
    assert not active_children()


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_sweep_keeps_what_is_complete(tmp_path: Path, number: signal.Signals) -> None:
    complete, lost = make_run(1), make_run(2, ENDLESS)

    class Interrupter(Notes):
        def advanced(self, run: Run, fraction: float) -> None:
            if run is lost:
                os.kill(os.getpid(), number)

    with pytest.raises(KeyboardInterrupt):
        Processes(1).run([complete, lost], tmp_path, Interrupter())
    assert {path.name for path in tmp_path.iterdir()} == {".running", complete.key}
    assert [path.name for path in (tmp_path / ".running").iterdir()] == ["lock"]
    assert not active_children()
    assert folder_of(complete, tmp_path).exists()
