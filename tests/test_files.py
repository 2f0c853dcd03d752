"""An untrusted folder cannot change files outside of it, and no file in it makes a command hang.

Symbolic links and pipes in a run folder or a sweep folder are replaced or rejected.
"""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rdpfl_sim import ScenarioError, resume, simulate
from rdpfl_sim.cli.main import main
from rdpfl_sim.errors import RunError
from rdpfl_sim.files import UnsafeFileError, create, open_atomic, open_inside, open_to_append
from rdpfl_sim.reports.tensorboard import read_series
from rdpfl_sim.simulation.run_folder import RunFolder
from rdpfl_sim.sweeps.runner import staging_folder
from rdpfl_sim.verification.replay import replay
from tests.records.lines import record_line
from tests.runs import interrupt, left
from tests.support import small_scenario

READ = ("scenario.toml", "events.jsonl", "metrics.csv", "summary.json", "topology.json", "provenance.json")
WRITTEN = ("curves.png", "topology.png", "report.html", "trace.json", "checkpoints")
COMMANDS = {
    "resume": ["resume", "RUN"],
    "show": ["show", "RUN"],
    "report": ["report", "RUN"],
    "trace": ["trace", "RUN"],
    "tensorboard": ["tensorboard", "RUN", "-o", "board"],
    "verify": ["verify", "RUN"],
    "replay": ["verify", "RUN", "--replay"],
    "watch": ["watch", "RUN"],
    "compare": ["compare", "RUN", "OTHER"],
}
NEEDED = {
    "resume": {*READ, "checkpoints"},
    "show": {"summary.json", "provenance.json"},
    "report": set(READ),
    "trace": {"scenario.toml", "events.jsonl", "topology.json"},
    "tensorboard": {"events.jsonl", "topology.json"},
    "verify": set(READ),
    "replay": set(READ),
    "watch": {"scenario.toml", "events.jsonl", "summary.json"},
    "compare": {"scenario.toml", "summary.json", "provenance.json"},
}
"""The files that each command needs."""


def expected_code(command: str, name: str) -> int:
    """2 if the scenario or the input of `compare` cannot be used, as for other bad input; else 1."""
    bad_input = {("resume", "events.jsonl"), ("resume", "metrics.csv"), ("compare", "summary.json")}
    return 2 if name == "scenario.toml" or (command, name) in bad_input else 1


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs, one of them interrupted after a checkpoint."""
    folder = tmp_path_factory.mktemp("runs")
    left(small_scenario(checkpoint={"every_rounds": 1}), folder, 13, interrupt).rename(folder / "RUN")
    other = simulate(small_scenario(rounds=2), folder).folder
    assert other is not None
    other.rename(folder / "OTHER")
    return folder


def call(command: str, runs: Path) -> int:
    return main([str(runs / word) if word in ("RUN", "OTHER") else word for word in COMMANDS[command]])


def move_out(path: Path, outside: Path) -> None:
    """Move a file or folder of a run out of it, and leave a link to it."""
    outside.mkdir(exist_ok=True)
    if path.exists():
        path.rename(outside / path.name)
    else:
        (outside / path.name).write_text("not to be changed")
    path.symlink_to(outside / path.name)


def state_of(folder: Path) -> dict[str, Any]:
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["link", "pipe"])
@pytest.mark.parametrize(
    ("command", "name"), [(command, name) for command, names in NEEDED.items() for name in sorted(names)]
)
def test_link_or_pipe_in_place_of_a_needed_file_ends_a_command(
    command: str, name: str, kind: str, runs: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    if command == "tensorboard":
        pytest.importorskip("tensorboard")
    path = shutil.copytree(runs, tmp_path / "runs") / "RUN" / name
    move_out(path, tmp_path / "outside")
    before = state_of(tmp_path / "outside")
    if kind == "pipe":
        path.unlink()
        os.mkfifo(path)
    capsys.readouterr()
    assert call(command, tmp_path / "runs") == expected_code(command, name)
    error = " ".join(capsys.readouterr().err.split())
    assert "Traceback" not in error
    if kind == "link":
        assert f"{path}" in error
        assert "is a symbolic link" in error
        assert state_of(tmp_path / "outside") == before
    elif name == "scenario.toml":
        assert str(path.parent) in error
    else:
        assert f"{path}" in error
        assert "is not a" in error


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_changes_what_a_link_in_place_of_another_file_leads_to(
    command: str, runs: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    if command == "tensorboard":
        pytest.importorskip("tensorboard")
    expected = call(command, Path(shutil.copytree(runs, tmp_path / "ordinary")))
    run, outside = shutil.copytree(runs, tmp_path / "runs") / "RUN", tmp_path / "outside"
    for name in {*READ, *WRITTEN} - NEEDED[command]:
        move_out(run / name, outside)
    before = state_of(outside)
    capsys.readouterr()
    assert call(command, tmp_path / "runs") == expected
    assert state_of(outside) == before
    assert "Traceback" not in capsys.readouterr().err


def test_run_folder_itself_may_be_a_link(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "RUN", tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    assert main(["resume", str(tmp_path / "link"), "--quiet"]) == 0
    assert main(["report", str(tmp_path / "link")]) == 0
    assert (tmp_path / "real" / "report.html").is_file()


def test_records_with_another_hard_link_are_not_appended_to(runs: Path, tmp_path: Path, capsys) -> None:
    run = Path(shutil.copytree(runs / "RUN", tmp_path / "run"))
    os.link(run / "events.jsonl", tmp_path / "backup.jsonl")
    before = (tmp_path / "backup.jsonl").read_bytes()
    assert main(["resume", str(run)]) == 2
    assert "has other hard links" in capsys.readouterr().err
    assert (tmp_path / "backup.jsonl").read_bytes() == before


def test_link_is_replaced_by_the_new_file(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("before")
    (tmp_path / "file").symlink_to("outside")
    with open_atomic(tmp_path / "file") as file:
        file.write(b"after")
    assert (tmp_path / "outside").read_text() == "before"
    assert not (tmp_path / "file").is_symlink()
    assert (tmp_path / "file").read_text() == "after"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "outside"]


def test_failed_write_leaves_the_previous_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("before")
    with pytest.raises(ZeroDivisionError), open_atomic(tmp_path / "file") as file:
        file.write(b"after" * (100_000 // 0))
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "before")]


def test_failed_write_names_the_file_that_was_to_be_written(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing" / "file"):
        with pytest.raises(OSError, match="directory") as caught, open_atomic(path):
            pass
        assert caught.value.filename == str(path)


def test_new_file_is_created_with_the_permissions_of_others(tmp_path: Path) -> None:
    with open_atomic(tmp_path / "file"):
        pass
    (tmp_path / "usual").touch()
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_broken_link_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    for function in (create, open_to_append, open_inside):
        with pytest.raises(UnsafeFileError, match="is a symbolic link"):
            function(tmp_path / "link")
    assert not (tmp_path / "nowhere").exists()


def test_links_are_rejected_on_systems_without_o_nofollow(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("rdpfl_sim.files._NO_LINK", 0)
    test_broken_link_is_not_opened(tmp_path)


def test_partial_files_of_a_killed_process_are_removed_when_the_run_is_resumed(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "run")
    run.close()
    partial = run.path / ".summary.json.0123456789abcdef.partial"
    partial.write_text("{")
    RunFolder(run.path).close()
    assert not partial.exists()


def test_client_number_that_is_a_path_creates_no_folder() -> None:
    record = record_line("training_finished", client="../../outside", round=1)
    with pytest.raises(RunError, match=r"client is '\.\./\.\./outside'"):
        read_series([record], {"num_clients": 3, "edges": [], "byzantine": []})


@pytest.mark.parametrize("name", [".running", "failed", "runs", ".running/lock"])
def test_sweep_does_not_follow_a_link_in_its_folder(name: str, tmp_path: Path) -> None:
    outside, output = tmp_path / "outside", tmp_path / "sweep"
    (output / name).parent.mkdir(parents=True)
    if name.endswith("lock"):
        outside.write_text("not to be changed")
    else:
        (outside / "dead").mkdir(parents=True)
    (output / name).symlink_to(outside)
    with pytest.raises(UnsafeFileError, match="is a symbolic link"), staging_folder(output):
        pass
    assert (
        outside.read_text() == "not to be changed"
        if outside.is_file()
        else [*outside.rglob("*")] == [outside / "dead"]
    )


def test_temporary_folder_that_is_a_link_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "sweep" / ".running").mkdir(parents=True)
    (tmp_path / "sweep" / ".running" / "dead").symlink_to(tmp_path / "outside")
    with staging_folder(tmp_path / "sweep"):
        pass
    assert list((tmp_path / "outside").iterdir()) == []


@pytest.fixture
def on_a_cluster(tmp_path: Path) -> Path:
    """The folder of a run that has not started, with a scenario that names a cluster."""
    scenario = small_scenario(execution={"executor": {"name": "ray", "address": "198.51.100.1:6379"}})
    run = RunFolder.create(tmp_path, "run")
    run.write_scenario(scenario.to_dict())
    run.write_json("topology.json", {"num_clients": 6, "edges": [], "byzantine": []})
    run.close()
    return run.path


@pytest.mark.parametrize("words", [["resume"], ["verify", "--replay"]])
def test_commands_connect_to_the_cluster_of_a_run_folder_only_if_allowed(
    words: list[str], on_a_cluster: Path, capsys
) -> None:
    assert main([*words, str(on_a_cluster)]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "execution.executor.address: run folders may not connect to a cluster" in error
    assert "--allow-cluster" in error
    assert "198.51.100.1:6379" in error


def test_functions_connect_to_the_cluster_of_a_run_only_if_allowed(on_a_cluster: Path, monkeypatch) -> None:
    pytest.importorskip("ray")
    for call in (resume, replay):
        with pytest.raises(ScenarioError, match="without `allow_cluster`"):
            call(on_a_cluster)

    def refuse(address: str) -> None:
        raise ConnectionRefusedError(f"no server at {address}")

    monkeypatch.setattr("rdpfl_sim.execution.ray._check_reachable", refuse)  # before any other access
    with pytest.raises(RunError, match=r"cannot connect to a Ray cluster: no server at 198\.51\.100\.1:6379"):
        resume(on_a_cluster, allow_cluster=True)


def test_resume_and_replay_download_no_data(tmp_path: Path) -> None:
    scenario = small_scenario(data={"name": "mnist", "download": True, "folder": str(tmp_path / "data")})
    run = RunFolder.create(tmp_path, "run")
    run.write_scenario(scenario.to_dict())
    run.close()
    for call in (resume, replay):
        with pytest.raises(ScenarioError, match=r"data\.download: the data set is missing; .* data mnist"):
            call(run.path)
    assert not (tmp_path / "data").exists()
