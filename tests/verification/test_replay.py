import json
from pathlib import Path

import pytest

from rdpfl_sim import simulate
from rdpfl_sim.files import encode_json
from rdpfl_sim.records.schema import SCHEMA
from rdpfl_sim.verification.replay import compare, record_difference, replay
from tests.runs import interrupt, left
from tests.support import small_scenario

LATE = {"network": {"latency": "exponential"}, "timing": {"compute": "lognormal"}}


def run_of(tmp_path: Path, **changes) -> Path:
    folder = simulate(small_scenario(**{**LATE, **changes}), tmp_path).folder
    assert folder is not None
    return folder


def change_line(run: Path, number: int, **values) -> str:
    path = run / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    lines[number - 1] = json.dumps({**json.loads(lines[number - 1]), **values}) + "\n"
    path.write_text("".join(lines))
    return lines[number - 1]


def test_replay_of_an_unchanged_run_is_ok(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    check = replay(run)
    assert check.outcome == "ok"
    lines = [(run / name).read_text().splitlines() for name in ("events.jsonl", "metrics.csv")]
    assert check.num_items == sum(map(len, lines)) + 4, "and scenario, topology, provenance and summary"
    assert list(tmp_path.iterdir()) == [run], "nothing is left behind"


def test_first_different_record_is_reported_with_line_field_and_both_versions(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    changed = change_line(run, 40, time_s=0.123)
    change_line(run, 50, time_s=0.123)
    check = replay(run)
    assert (check.line, check.num_violations) == (40, 1)
    first, before, again = str(check.first).splitlines()[:3]
    assert first == "differs in time_s"
    assert before == f"  before  {changed.strip()}"
    assert again.startswith('  again   {"event":')


def test_difference_is_reported_with_changed_package_versions(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    change_line(run, 40, time_s=0.123)
    path = run / "provenance.json"
    provenance = json.loads(path.read_text())
    provenance["sessions"][0]["versions"]["torch"] = "0.4"
    path.write_text(json.dumps(provenance))
    assert "\n  torch was 0.4, is " in str(replay(run).first)


def test_replay_of_an_interrupted_run_is_ok(tmp_path: Path) -> None:
    run = left(small_scenario(**LATE), tmp_path, 9, interrupt)
    assert json.loads((run / "summary.json").read_text())["status"] == "interrupted"
    check = replay(run)
    assert (check.outcome, check.first) == ("ok", None)


@pytest.mark.parametrize("status", ["interrupted", None])
def test_incomplete_run_is_compared_up_to_its_end(tmp_path: Path, status: str | None) -> None:
    run = run_of(tmp_path)
    path = run / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    if status is None:
        (run / "summary.json").unlink()
        path.write_text("".join(lines[:60]) + lines[60][:10])
    else:
        (run / "summary.json").write_text(json.dumps({"schema": SCHEMA, "status": status}))
        path.write_text("".join([*lines[:60], lines[-2], lines[-1]]))
    (run / "metrics.csv").write_text("".join((run / "metrics.csv").read_text().splitlines(True)[:5]))
    check = replay(run)
    assert (check.outcome, check.num_items) == ("ok", 60 + 5 + 3)


def test_other_files_of_a_run_without_records_are_compared(tmp_path: Path) -> None:
    run = run_of(tmp_path, output={"events": False})
    assert replay(run).outcome == "ok"
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps({**summary, "digest": "0"}))
    assert str(replay(run).first).startswith("summary.json: digest is '0', should be")


def change_cell(text: str) -> str:
    *lines, last = text.splitlines()
    return "\n".join([*lines, last.replace(",", ",0", 1)]) + "\n"


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("metrics.csv", change_cell, "metrics.csv, line "),
        ("topology.json", lambda text: text.replace("6", "7", 1), "topology.json: num_clients is 7"),
        ("summary.json", lambda text: text.replace('"mean": 0.', '"mean": 1.', 1), "summary.json: accuracy."),
        (
            "scenario.toml",
            lambda text: text.replace("rounds = 4", "rounds = 5"),
            "scenario.toml: rounds",
        ),
        ("provenance.json", lambda text: text.replace('_hash": "', '_hash": "0'), "provenance.json: scen"),
    ],
)
def test_every_file_is_compared(tmp_path: Path, name: str, change, words: str) -> None:
    run, again = run_of(tmp_path / "one"), run_of(tmp_path / "other")
    assert compare(run, again).outcome == "ok"
    path = run / name
    text = path.read_text()
    path.write_text(change(text))
    assert path.read_text() != text
    assert str(compare(run, again).first).startswith(words)


def test_wall_clock_fields_are_not_compared(tmp_path: Path) -> None:
    run, again = run_of(tmp_path / "one"), run_of(tmp_path / "other")
    for name, change in (
        ("summary.json", {"wall": {"seconds": 9.5, "device": "other", "trained_on": "other", "threads": 99}}),
        ("provenance.json", {"sessions": []}),
    ):
        content = {**json.loads((run / name).read_text()), **change}
        (run / name).write_bytes(encode_json(content))
    assert compare(run, again).outcome == "ok"


def test_difference_describes_missing_and_malformed_records() -> None:
    assert record_difference(b'{"a":1}\n', None) == 'its replay ends before\n  {"a":1}'
    assert record_difference(None, b'{"a":1}\n') == 'the run ends before\n  {"a":1}'
    assert record_difference(b'{"a":1, "b":2}\n', b'{"a":2}\n').startswith("differs in a, b\n")
    assert record_difference(b'{"a": 1}\n', b'{"a":1}\n').startswith("differs in formatting\n")
    assert record_difference(b"nonsense\n", b'{"a":1}\n').startswith("one of them is not a record\n")
