import json
from pathlib import Path

import pytest

from rdpfl_sim import simulate
from rdpfl_sim.verification.replay import difference, replay
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


def test_same_records_come_out_again(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    check = replay(run)
    assert check.outcome == "ok"
    assert check.num_items == len((run / "events.jsonl").read_text().splitlines())
    assert list(tmp_path.iterdir()) == [run], "nothing is left behind"


def test_first_record_that_differs_is_told_with_its_line_its_field_and_both_versions(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    changed = change_line(run, 40, time_s=0.123)
    change_line(run, 50, time_s=0.123)
    check = replay(run)
    assert (check.line, check.num_violations) == (40, 1)
    first, before, again = str(check.first).splitlines()[:3]
    assert first == "differs in time_s"
    assert before == f"  before  {changed.strip()}"
    assert again.startswith('  again   {"event":')


def test_versions_that_have_changed_are_told_with_a_difference(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    change_line(run, 40, time_s=0.123)
    path = run / "provenance.json"
    provenance = json.loads(path.read_text())
    provenance["sessions"][0]["versions"]["torch"] = "0.4"
    path.write_text(json.dumps(provenance))
    assert "\n  torch was 0.4, is " in str(replay(run).first)


@pytest.mark.parametrize("status", ["interrupted", None])
def test_run_that_was_cut_short_is_compared_as_far_as_it_came(tmp_path: Path, status: str | None) -> None:
    run = run_of(tmp_path)
    path = run / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    if status is None:
        (run / "summary.json").unlink()
        path.write_text("".join(lines[:60]) + lines[60][:10])
    else:
        (run / "summary.json").write_text(json.dumps({"status": status}))
        path.write_text("".join([*lines[:60], lines[-2], lines[-1]]))
    check = replay(run)
    assert (check.outcome, check.num_items) == ("ok", 60)


def test_run_without_records_is_compared_by_its_digest(tmp_path: Path) -> None:
    run = run_of(tmp_path, output={"events": False})
    assert replay(run).outcome == "ok"
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps({**summary, "digest": "0"}))
    assert "the digests differ" in str(replay(run).first)
    (run / "summary.json").unlink()
    assert replay(run).outcome == "not checked"


def test_records_can_end_too_early_or_not_be_records_at_all() -> None:
    assert difference(b'{"a":1}\n', None) == 'its replay has ended before\n  {"a":1}'
    assert difference(None, b'{"a":1}\n') == 'the run has ended before\n  {"a":1}'
    assert difference(b'{"a":1, "b":2}\n', b'{"a":2}\n').startswith("differs in a, b\n")
    assert difference(b'{"a": 1}\n', b'{"a":1}\n').startswith("differs in how it is written\n")
    assert difference(b"nonsense\n", b'{"a":1}\n').startswith("one of both is no record\n")
