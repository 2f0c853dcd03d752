"""Full disks, deleted folders and lack of memory cause one message and no damaged files."""

import json
import os
import resource
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from rdpfl_sim import ScenarioError, simulate
from rdpfl_sim.cli.main import main
from rdpfl_sim.errors import RunError
from rdpfl_sim.files import write_atomically
from rdpfl_sim.records.schema import SCHEMA
from tests.support import small_scenario

SMALL = """
rounds = 60
clients = { count = 6 }
data = { name = "synthetic", shape = [8], num_train = 200, num_test = 40 }
partition = "iid"
model = "softmax"
output = { figures = false }
"""


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 100 kB."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(path)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a file system")
    yield path
    subprocess.run(["umount", str(path)], check=True)


@pytest.fixture
def command_line(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Return a function that runs the command line in this process and returns exit code and output."""

    def call(*words: object) -> Done:
        code = main([str(word) for word in words])
        output = capsys.readouterr()
        return Done(code, output.out, output.err)

    return call


def assert_whole_lines(folder: Path) -> None:
    for name in ("events.jsonl", "metrics.csv"):
        content = (folder / name).read_bytes()
        assert content == b"" or content.endswith(b"\n"), f"{name} is cut off in the middle of a line"
    for line in (folder / "events.jsonl").read_text().splitlines():
        json.loads(line)
    assert list(folder.glob(".*")) == [], "nothing half-written is left"


def test_file_size_limit_ends_the_run_with_one_sentence(
    command_line: Callable[..., Done], scenario: Path, tmp_path: Path
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        done = command_line(scenario, "--quiet", "--output", tmp_path / "runs")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    [folder] = (tmp_path / "runs").iterdir()
    sentence = f"the run's files cannot be written to {folder}: File too large"
    assert done.returncode == 1
    assert done.stderr == f"rdpfl-sim run: {sentence}\n"
    assert json.loads((folder / "summary.json").read_text()) == {
        "schema": SCHEMA,
        "status": "failed",
        "error": sentence,
    }
    assert_whole_lines(folder)
    assert 10_000 < (folder / "events.jsonl").stat().st_size <= 20_000


def test_full_disk_ends_the_run_with_one_sentence_and_complete_records(
    command_line: Callable[..., Done], scenario: Path, small_disk: Path
) -> None:
    done = command_line(scenario, "--quiet", "--output", small_disk)
    [folder] = small_disk.iterdir()
    assert done.returncode == 1
    assert done.stderr == (
        f"rdpfl-sim run: the run's files cannot be written to {folder}: No space left on device\n"
    )
    assert_whole_lines(folder)
    assert (folder / "events.jsonl").stat().st_size > 50_000
    shown = command_line("show", folder)
    assert shown.returncode == 0
    has_summary = (folder / "summary.json").exists()  # if there was room for it
    assert ("failed: the run's files" if has_summary else "not finished") in shown.stdout


def test_disk_that_is_full_at_the_start_is_reported(
    command_line: Callable[..., Done], scenario: Path, small_disk: Path
) -> None:
    (small_disk / "other").write_bytes(b"x" * 90_000)
    with pytest.raises(OSError, match="No space left"):
        (small_disk / "more").write_bytes(b"x" * 20_000)
    done = command_line(scenario, "--output", small_disk)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_failed_atomic_write_leaves_the_existing_file(small_disk: Path) -> None:
    path = small_disk / "summary.json"
    write_atomically(path, b"before")
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"x" * 200_000)
    assert path.read_bytes() == b"before"
    assert list(small_disk.iterdir()) == [path]


def test_run_finishes_if_figures_cannot_be_written(
    command_line: Callable[..., Done], scenario: Path, small_disk: Path
) -> None:
    few = ["--set", "rounds=5", "--set", "output.figures=true"]
    done = command_line(scenario, "--quiet", "--output", small_disk, *few)
    [folder] = small_disk.iterdir()
    assert done.returncode == 1
    assert done.stderr == "the run is complete, but drawing its figures failed: No space left on device\n"
    assert json.loads((folder / "summary.json").read_text())["status"] == "finished"
    assert list(folder.glob("*.part")) == []


@pytest.mark.slow
def test_full_disk_behind_stdout_is_reported(scenario: Path) -> None:
    words = [sys.executable, "-m", "rdpfl_sim", "validate", str(scenario)]
    with open("/dev/full", "w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "rdpfl-sim validate: No space left on device"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folder_without_permission_is_reported(
    command_line: Callable[..., Done], scenario: Path, tmp_path: Path
) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    done = command_line(scenario, "--output", locked)
    assert done.returncode == 2
    assert "output.folder: cannot create a run folder: Permission denied" in done.stderr


def test_read_only_file_system_is_reported(
    command_line: Callable[..., Done], scenario: Path, small_disk: Path
) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    done = command_line(scenario, "--output", small_disk)
    assert done.returncode == 2
    assert "output.folder: cannot create a run folder: Read-only file system" in done.stderr
    assert "Traceback" not in done.stderr


class OnceAt:
    """Calls a function when a run has reached a given progress."""

    def __init__(self, rounds: int, action) -> None:
        self.rounds = rounds
        self.action = action

    def update(self, rounds_done: int, time_s: float, accuracy: float | None, messages: int) -> None:
        if rounds_done == self.rounds:
            self.action()


def test_deleted_run_folder_is_reported(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    with pytest.raises(RunError, match=r"cannot be written to .*: No such file or directory"):
        simulate(small_scenario(), runs, OnceAt(5, lambda: shutil.rmtree(runs)))


def test_graph_file_deleted_during_the_run_is_reported_with_its_path(tmp_path: Path) -> None:
    graph = tmp_path / "graph.edgelist"
    graph.write_text("".join(f"{i} {(i + 1) % 6}\n" for i in range(6)))
    scenario = small_scenario(
        topology={"name": "file", "path": str(graph)},
        faults=[{"name": "resample_topology", "every_s": 1.5}],
        timing={"wait": {"name": "deadline", "seconds": 1.0}, "max_time_s": 20.0},
    )
    with pytest.raises(ScenarioError, match=r"topology\.path: cannot be read: No such file") as caught:
        simulate(scenario, tmp_path / "runs", OnceAt(6, graph.unlink))
    assert caught.value.problems[0].value == str(graph)
    [folder] = (tmp_path / "runs").iterdir()
    assert json.loads((folder / "summary.json").read_text())["status"] == "failed"
    assert_whole_lines(folder)


def test_missing_data_file_is_reported_before_anything_is_written(
    command_line: Callable[..., Done], tmp_path: Path
) -> None:
    data, scenario = tmp_path / "data.npz", tmp_path / "mine.toml"
    rng = np.random.default_rng(1)
    arrays = {"x_train": rng.random((60, 4)), "y_train": np.arange(60) % 2}
    np.savez(data, **arrays, x_test=rng.random((20, 4)), y_test=np.arange(20) % 2)
    scenario.write_text(
        f'rounds = 2\nmodel = "softmax"\npartition = "iid"\n[clients]\ncount = 3\n'
        f'[output]\nfigures = false\n[data]\nname = "npz"\npath = "{data}"\n'
    )
    assert command_line(scenario, "--output", tmp_path / "runs").returncode == 0
    data.unlink()
    done = command_line(scenario, "--output", tmp_path / "more")
    assert done.returncode == 2
    assert f"data.path: {data} does not exist" in " ".join(done.stderr.split())
    assert not (tmp_path / "more").exists()
    [run] = (tmp_path / "runs").iterdir()
    replayed = command_line("verify", run, "--replay")
    assert replayed.returncode == 2
    assert "data.path" in replayed.stderr
    assert command_line("verify", run).returncode == 0, "the records need no data"


@pytest.mark.slow
def test_running_out_of_memory_is_reported(scenario: Path, tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import resource, sys
        import rdpfl_sim.simulation.simulation, rdpfl_sim.reports.text
        from rdpfl_sim.cli.main import main

        pages = int(open("/proc/self/statm").read().split()[0])
        limit = pages * resource.getpagesize() + 300_000_000
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        sys.exit(main(sys.argv[1:]))
        """
    )
    big = ["--set", "model={name='mlp', hidden=[5000000]}"]
    words = [sys.executable, "-c", program, str(scenario), "--output", str(tmp_path / "runs"), *big]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "rdpfl-sim run: out of memory\n"
