from pathlib import Path

from rdpfl_sim.records.reader import Follower, is_running
from rdpfl_sim.simulation.run_folder import RunFolder


def read(follower: Follower) -> list[bytes]:
    return [line for lines in follower.chunks() for line in lines]


def test_line_is_read_once_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "growing"
    follower = Follower(path)
    assert read(follower) == []
    with path.open("wb") as file:
        for added, expected in (
            (b"one\ntw", [b"one"]),
            (b"o\n", [b"two"]),
            (b"", []),
            (b"3\n4\n", [b"3", b"4"]),
        ):
            file.write(added)
            file.flush()
            assert read(follower) == expected


def test_truncated_file_is_read_from_the_start(tmp_path: Path) -> None:
    path = tmp_path / "cut off"
    path.write_bytes(b"one\ntwo\nthr")
    follower = Follower(path)
    assert read(follower) == [b"one", b"two"]
    assert not follower.has_restarted()
    path.write_bytes(b"one\nother\n")
    assert follower.has_restarted()
    assert read(follower) == [b"one", b"other"]


def test_line_longer_than_a_chunk_is_read_as_one(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("rdpfl_sim.records.reader.CHUNK", 4)
    path = tmp_path / "long"
    path.write_bytes(b"0123456789\nab\n")
    assert read(Follower(path)) == [b"0123456789", b"ab"]


def test_run_is_running_while_its_folder_is_open(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "demo")
    assert is_running(folder.path)
    folder.close()
    assert not is_running(folder.path)
    RunFolder(folder.path).close()  # `is_running` has released its lock
