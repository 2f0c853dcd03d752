"""Real runs on a real Ray cluster of this machine; one for all tests, because it takes seconds to start."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from rdpfl_sim import ScenarioError, simulate
from rdpfl_sim.sweeps import results
from rdpfl_sim.sweeps.engine import missing
from rdpfl_sim.sweeps.plan import Run
from rdpfl_sim.sweeps.ray_cluster import RayCluster
from tests.sweeps.sweeping import ENDLESS, Notes, make_run

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    cluster = RayCluster(2, None)
    with TemporaryDirectory(dir="/tmp") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", folder)  # killed tasks leave something there; its name must be short for Ray
        cluster.connect()
        yield cluster
        cluster.close()


def test_cluster_that_does_not_answer_is_told_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(ScenarioError, match=r"--address: no Ray cluster can be used: .*refused"):
        RayCluster(2, address).connect()


def ray_tasks() -> list[int]:
    """The processes in which runs of our cluster happen."""
    parents, titles = {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            titles[int(path.name)] = (path / "cmdline").read_text()
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
    raylets = {process for process, parent in parents.items() if parent == os.getpid()}
    return [
        p for p, title in titles.items() if parents[p] in raylets and title.startswith("ray::run_and_pack")
    ]


def test_runs_come_back_and_those_that_fail_or_are_killed_do_not_stop_the_others(
    cluster: RayCluster, tmp_path: Path
) -> None:
    killed, good, better = make_run(1, ENDLESS), make_run(2), make_run(3)
    absent = make_run(4, data={"name": "mnist", "folder": str(tmp_path)})

    class Killer(Notes):
        kills = 0

        def advanced(self, run: Run, fraction: float) -> None:
            if len(self.errors) == 3:  # the endless one is alone
                for process in ray_tasks():
                    os.kill(process, signal.SIGKILL)
                    self.kills += 1

    runs, notes = [killed, good, absent, better], Killer()
    cluster.run(runs, tmp_path, notes)
    assert notes.kills == 2  # it was given a second chance
    assert "WorkerCrashedError" in notes.errors[killed.key]
    assert "run: rdpfl-sim data mnist --folder" in notes.errors[absent.key]
    assert "ScenarioError" in (tmp_path / "failed" / absent.key / "log.txt").read_text()
    assert missing(runs, tmp_path) == [killed, absent]
    found = [summary["digest"] for _, summary in results.read(runs, tmp_path)]
    assert found == [simulate(run.scenario).summary["digest"] for run in (good, better)]


@pytest.mark.usefixtures("ctrl_c")
def test_interrupted_sweep_cancels_what_is_in_flight(cluster: RayCluster, tmp_path: Path) -> None:
    complete, lost = make_run(1), make_run(2, ENDLESS)

    class Interrupter(Notes):
        def advanced(self, run: Run, fraction: float) -> None:
            if complete.key in self.errors:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        cluster.run([complete, lost], tmp_path, Interrupter())
    assert {path.name for path in tmp_path.iterdir()} == {".running", complete.key}
    give_up_s = time.monotonic() + 30
    while ray_tasks():  # a process that is told to end needs a moment for it
        assert time.monotonic() < give_up_s, f"still there: {ray_tasks()}"
        time.sleep(0.1)
