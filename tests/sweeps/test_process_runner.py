"""Real runs in real processes, two or three per test to limit the time."""

import os
import signal
import subprocess
import sys
from multiprocessing import active_children
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from threading import Event, Thread

import pytest
import tomli_w

from rdpfl_sim import simulate
from rdpfl_sim.sweeps import process_runner
from rdpfl_sim.sweeps.plan import PlannedRun, missing_runs
from rdpfl_sim.sweeps.process_runner import ProcessRunner
from rdpfl_sim.sweeps.runner import folder_of
from tests.killing import Command, wait_until
from tests.support import small_scenario
from tests.sweeps.sweeping import ENDLESS, RecordingListener, digests, make_run


def test_module_that_starts_workers_imports_no_slow_packages() -> None:
    program = "import sys, rdpfl_sim.sweeps.process_runner; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "rdpfl_sim.sweeps.runner" in loaded.stdout.split()
    assert not {"torch", "numpy", "polars", "pydantic", "rich"} & {*loaded.stdout.split()}


def test_runs_give_the_results_of_single_runs_and_leave_no_other_files(tmp_path: Path) -> None:
    runs, listener = [make_run(seed) for seed in (1, 2, 3)], RecordingListener()
    ProcessRunner(2).run(runs, tmp_path, listener)
    assert listener.begun == [run.key for run in runs]
    assert listener.errors == {run.key: None for run in runs}
    found = digests(runs, tmp_path)
    assert found == [simulate(run.scenario).summary["digest"] for run in runs]
    assert {path.name for path in tmp_path.iterdir()} == {".running", "runs"}
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {*listener.begun}
    assert [path.name for path in (tmp_path / ".running").iterdir()] == ["lock"]
    assert not active_children()


def test_run_that_fails_or_is_killed_does_not_stop_the_others(tmp_path: Path) -> None:
    killed, good, better = make_run(1, ENDLESS), make_run(2), make_run(3)
    broken = make_run(4, topology={"name": "file", "path": str(tmp_path / "nowhere.csv")})

    class Killer(RecordingListener):
        def started(self, run: PlannedRun) -> None:
            super().started(run)
            if run is killed:
                [self.victim] = active_children()

        def advanced(self, run: PlannedRun, fraction: float) -> None:
            super().advanced(run, fraction)
            if run is killed:  # on a busy machine the others are slow enough to report, too
                os.kill(self.victim.pid, signal.SIGKILL)

    listener = Killer()
    runs = [killed, broken, good, better]
    ProcessRunner(2).run(runs, tmp_path, listener)
    assert (listener.errors[good.key], listener.errors[better.key]) == (None, None)
    left = tmp_path / "failed" / broken.key
    assert "topology.path: cannot be read" in listener.errors[broken.key]
    assert listener.errors[broken.key].endswith(f"; its files are in {left}")
    assert "ScenarioError" in (left / "log.txt").read_text()
    assert listener.errors[killed.key].startswith(
        "the worker process was killed; if the machine ran out of memory"
    )
    assert len(list((tmp_path / "failed" / killed.key).glob("*/events.jsonl"))) == 1
    assert missing_runs(runs, tmp_path) == [killed, broken]
    assert not active_children()


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_sweep_keeps_complete_runs(tmp_path: Path, number: signal.Signals) -> None:
    complete, lost = make_run(1), make_run(2, ENDLESS)

    class Interrupter(RecordingListener):
        def advanced(self, run: PlannedRun, fraction: float) -> None:
            if run is lost:
                os.kill(os.getpid(), number)

    with pytest.raises(KeyboardInterrupt):
        ProcessRunner(1).run([complete, lost], tmp_path, Interrupter())
    assert {path.name for path in tmp_path.iterdir()} == {".running", "runs"}
    assert [path.name for path in (tmp_path / ".running").iterdir()] == ["lock"]
    assert not active_children()
    assert folder_of(complete, tmp_path).exists()


def half_a_report(connection: Connection) -> None:
    """Simulate a worker that is killed while it sends its result."""
    connection.recv()
    os.write(connection.fileno(), (1000).to_bytes(4, "big") + b"only a part of it")
    os.kill(os.getpid(), signal.SIGKILL)


def test_worker_that_is_killed_in_the_middle_of_a_report_loses_only_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, good = make_run(1), make_run(2)

    class Restorer(RecordingListener):
        def started(self, run: PlannedRun) -> None:
            super().started(run)
            monkeypatch.undo()  # the next worker is a real one

    monkeypatch.setattr(process_runner, "_run_requests", half_a_report)
    listener = Restorer()
    ProcessRunner(1).run([lost, good], tmp_path, listener)
    assert str(listener.errors[lost.key]).startswith("the worker process was killed")
    assert listener.errors[good.key] is None
    assert not active_children()


@pytest.mark.slow
def test_sweep_ends_whenever_its_workers_are_killed_and_completes_when_it_is_started_again(
    tmp_path: Path,
) -> None:
    runs, random, ended = [make_run(seed, rounds=20) for seed in range(1, 9)], Random(1), Event()

    def kill() -> None:
        while not ended.wait(random.uniform(0, 0.5)):
            for child in active_children()[:1]:
                child.kill()

    killer = Thread(target=kill)
    killer.start()
    try:
        for _ in range(2):
            listener = RecordingListener()
            ProcessRunner(2).run(missing_runs(runs, tmp_path), tmp_path, listener)
            assert sorted(listener.begun) == sorted(listener.errors)
    finally:
        ended.set()
        killer.join()
    ProcessRunner(2).run(missing_runs(runs, tmp_path), tmp_path, RecordingListener())
    found = digests(runs, tmp_path)
    assert found == [simulate(run.scenario).summary["digest"] for run in runs]
    assert not active_children()


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for processes in /proc")
def test_nothing_is_left_of_a_sweep_whose_main_process_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    # A worker reports after every local training. Here each one takes minutes.
    base = small_scenario(rounds=1, training={"local_steps": 1_000_000}, execution={"executor": "inline"})
    file.write_text(tomli_w.dumps({"seeds": [1, 2], "base": base.to_dict()}))
    sweep = Command("sweep", file, "--workers", "2", "--output", tmp_path)
    wait_until(
        lambda: len(list(tmp_path.glob("mine/.running/*/*/*/events.jsonl"))) == 2, lambda: "no run begins"
    )
    sweep.kill()
    again = Command("sweep", file, "--workers", "2", "--output", tmp_path, "--set", "training.local_steps=1")
    assert again.wait() == 0
    assert [path.name for path in (tmp_path / "mine" / ".running").iterdir()] == ["lock"]
