import json
import os
from pathlib import Path
from stat import S_ISDIR

import pytest

from rdpfl_sim.files import write_atomically
from rdpfl_sim.records.metrics import METRICS
from rdpfl_sim.records.reader import RunReader
from rdpfl_sim.records.schema import SCHEMA
from rdpfl_sim.simulation.run_folder import RunFolder


def row(client: int) -> dict:
    return {**dict.fromkeys(METRICS), "client": client, "round": 0, "byzantine": 0}


def test_records_after_a_checkpoint_are_truncated_and_written_again(tmp_path: Path) -> None:
    files = RunFolder.create(tmp_path, "demo")
    files.events.write(b"one\n")
    files.write_metrics(row(1))
    sizes = files.sync()
    files.events.write(b"two\n")
    files.write_metrics(row(2))
    files.close()

    files = RunFolder(files.path)
    assert files.truncate(sizes)
    files.events.write(b"again\n")
    files.write_metrics(row(3))
    files.close()
    assert (files.path / "events.jsonl").read_bytes() == b"one\nagain\n"
    assert [row["client"] for row in RunReader(files.path).read_metrics()] == [1, 3]


def test_files_shorter_than_the_checkpoint_are_not_truncated(tmp_path: Path) -> None:
    files = RunFolder.create(tmp_path, "demo")
    files.events.write(b"one\n")
    events, metrics = files.sync()
    assert not files.truncate([events + 1, metrics])
    assert not files.truncate([0, metrics + 1])
    assert (files.path / "events.jsonl").read_bytes() == b"one\n", "and nothing is lost in trying"
    files.close()


def test_new_folder_has_only_the_header_of_metrics(tmp_path: Path) -> None:
    files = RunFolder.create(tmp_path, "demo")
    header = files.sync()
    files.events.write(b"one\n")
    files.write_metrics(row(1))
    files.sync()
    files.start_afresh()
    assert files.sync() == header
    files.close()


def test_folder_can_be_opened_by_one_process_at_a_time(tmp_path: Path) -> None:
    files = RunFolder.create(tmp_path, "demo")
    with pytest.raises(BlockingIOError):
        RunFolder(files.path)
    files.close()
    RunFolder(files.path).close()


@pytest.mark.parametrize(
    ("summary", "complete"),
    [
        ({"status": "finished"}, True),
        ({"status": "out of time"}, True),
        ({"status": "interrupted"}, False),
        ({"status": "failed", "error": "x"}, False),
        ({}, False),
        (None, False),
    ],
)
def test_summary_states_whether_a_run_is_complete(
    tmp_path: Path, summary: dict | None, complete: bool
) -> None:
    if summary is not None:
        (tmp_path / "summary.json").write_text(json.dumps({"schema": SCHEMA, **summary}))
    assert RunReader(tmp_path).is_complete() is complete


def test_records_are_flushed_at_most_once_per_second(tmp_path: Path, monkeypatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("rdpfl_sim.simulation.run_folder.monotonic", lambda: clock[0])
    folder = RunFolder.create(tmp_path, "demo")
    folder.events.write(b"{}\n")
    seen = []
    for clock[0] in (0.5, 1.0, 1.5):
        folder.flush()
        seen.append((folder.path / "events.jsonl").read_bytes())
        folder.events.write(b"[]\n")
    assert seen == [b"", b"{}\n[]\n", b"{}\n[]\n"]
    folder.close()


def test_atomic_write_forces_the_rename_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operations: list[str] = []
    fsync, replace = os.fsync, os.replace

    def recorded_fsync(descriptor: int) -> None:
        operations.append("sync folder" if S_ISDIR(os.fstat(descriptor).st_mode) else "sync file")
        fsync(descriptor)

    def recorded_replace(source: Path, target: Path) -> None:
        operations.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "replace", recorded_replace)
    write_atomically(tmp_path / "summary.json", b"{}\n")
    assert operations == ["sync file", "rename", "sync folder"]
