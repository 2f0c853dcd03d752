import gzip
import json
from pathlib import Path

import pytest

from rdpfl_sim import simulate
from rdpfl_sim.cli.main import main
from tests.support import small_scenario


def run_of(tmp_path: Path, **changes) -> Path:
    folder = simulate(small_scenario(**changes), tmp_path / "runs").folder
    assert folder is not None
    return folder


def test_trace_is_written_to_the_run_folder_with_a_hint_how_to_view_it(tmp_path: Path, capsys) -> None:
    run = run_of(tmp_path)
    assert main(["trace", str(run)]) == 0
    output, hint = capsys.readouterr()
    path = output.removesuffix("\n")
    assert "https://ui.perfetto.dev" in hint
    assert Path(path) == run / "trace.json"
    assert json.loads(Path(path).read_text())["otherData"] == {"run": run.name}


def test_name_that_ends_in_gz_is_compressed(tmp_path: Path, capsys) -> None:
    run = run_of(tmp_path)
    path = tmp_path / "mine.json.gz"
    assert main(["trace", str(run), "--quiet"]) == 0
    assert main(["trace", str(run), "--output", str(path), "--quiet"]) == 0
    assert capsys.readouterr().out.splitlines() == [str(run / "trace.json"), str(path)]
    assert gzip.decompress(path.read_bytes()) == (run / "trace.json").read_bytes()


def test_run_without_events_is_rejected_and_nothing_is_written(tmp_path: Path, capsys) -> None:
    run = run_of(tmp_path, output={"events": False})
    before = set(run.iterdir())
    assert main(["trace", str(run)]) == 1
    assert "has no records: output.events is false" in capsys.readouterr().err
    assert set(run.iterdir()) == before


def test_run_without_messages_has_a_trace_without_arrows(tmp_path: Path, capsys) -> None:
    run = run_of(tmp_path, output={"message_events": 0.0})
    assert main(["trace", str(run)]) == 0
    assert "no arrows" in capsys.readouterr().err
    events = json.loads((run / "trace.json").read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X", "C", "i"}


def test_trace_of_a_killed_run_ends_with_its_last_complete_record(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    path = run / "events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: len(lines) // 2]) + b'{"event":"tr')
    assert main(["trace", str(run)]) == 0
    events = json.loads((run / "trace.json").read_text())["traceEvents"]
    last = round(1e6 * json.loads(lines[len(lines) // 2 - 1])["time_s"])
    assert max(event["ts"] + event.get("dur", 0) for event in events if "ts" in event) == last


@pytest.mark.parametrize("what", ["nothing", "runs"])
def test_folder_that_is_not_a_run_is_rejected(what: str, tmp_path: Path, capsys) -> None:
    run_of(tmp_path)
    assert main(["trace", str(tmp_path / what)]) == 2
    assert capsys.readouterr().err.startswith("rdpfl-sim trace: ")
