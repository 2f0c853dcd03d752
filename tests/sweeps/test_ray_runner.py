"""Real runs on a Ray cluster of this machine; all tests share it, because it takes seconds to start."""

import os
import signal
import socket
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import tomli_w

from rdpfl_sim import ScenarioError, simulate
from rdpfl_sim.sweeps.plan import PlannedRun, missing_runs
from rdpfl_sim.sweeps.ray_runner import RayRunner
from tests.killing import Command, ray_processes, wait_until
from tests.support import small_scenario
from tests.sweeps.sweeping import ENDLESS, RecordingListener, digests, make_run

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayRunner]:
    cluster = RayRunner(2, None)
    with TemporaryDirectory(dir="/tmp") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", folder)  # its name must be short for Ray
        cluster.connect()
        yield cluster
        cluster.close()


def test_cluster_that_does_not_respond_is_reported_immediately() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(ScenarioError, match=r"`address`: cannot connect to a Ray cluster: .*refused"):
        RayRunner(2, address).connect()


def test_runs_are_returned_and_those_that_fail_or_are_killed_do_not_stop_the_others(
    cluster: RayRunner, tmp_path: Path
) -> None:
    killed, good, better = make_run(1, ENDLESS), make_run(2), make_run(3)
    absent = make_run(4, data={"name": "mnist", "folder": str(tmp_path)})

    class Killer(RecordingListener):
        kills = 0
        queue_kills = 0

        def advanced(self, run: PlannedRun, fraction: float) -> None:
            if self.queue_kills == 0:  # the process that collects reports; Ray starts it again
                [queue] = ray_processes("_QueueActor")
                os.kill(queue, signal.SIGKILL)
                self.queue_kills += 1
            elif len(self.errors) == 3:  # the endless one is alone
                for process in ray_processes("run_and_pack"):
                    os.kill(process, signal.SIGKILL)
                    self.kills += 1

    runs, listener = [killed, good, absent, better], Killer()
    cluster.run(runs, tmp_path, listener)
    assert listener.kills == 2  # it was retried once
    assert "WorkerCrashedError" in listener.errors[killed.key]
    assert "run: rdpfl-sim data mnist --folder" in listener.errors[absent.key]
    assert "ScenarioError" in (tmp_path / "failed" / absent.key / "log.txt").read_text()
    assert missing_runs(runs, tmp_path) == [killed, absent]
    found = digests(runs, tmp_path)
    assert found == [simulate(run.scenario).summary["digest"] for run in (good, better)]
    cluster.run([make_run(5)], tmp_path, listener)  # removes the files of killed tasks
    assert [path.name for path in Path(os.environ["TMPDIR"]).glob("rdpfl-sim-*/*")] == ["lock"]


@pytest.mark.usefixtures("ctrl_c")
def test_interrupted_sweep_cancels_running_tasks(cluster: RayRunner, tmp_path: Path) -> None:
    complete, lost = make_run(1), make_run(2, ENDLESS)

    class Interrupter(RecordingListener):
        def advanced(self, run: PlannedRun, fraction: float) -> None:
            if complete.key in self.errors:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        cluster.run([complete, lost], tmp_path, Interrupter())
    assert {path.name for path in tmp_path.iterdir()} == {".running", "runs"}
    # A cancelled process needs a moment to end.
    wait_until(
        lambda: not ray_processes("run_and_pack"),
        lambda: f"are left behind: {ray_processes('run_and_pack')}",
    )


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for processes in /proc")
def test_nothing_is_left_of_a_sweep_on_ray_whose_main_process_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(tomli_w.dumps({"seeds": [1, 2], "base": small_scenario(rounds=ENDLESS).to_dict()}))
    sweep = Command("sweep", file, "--engine", "ray", "--workers", "2", "--output", tmp_path)
    wait_until(lambda: len(sweep.processes("ray::run_and_pack")) == 2, lambda: "no run begins")
    sweep.kill()
