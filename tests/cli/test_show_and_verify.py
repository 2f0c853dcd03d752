"""rdpfl-sim show and verify, called as a user would."""

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from rdpfl_sim import simulate
from rdpfl_sim.cli.main import main
from rdpfl_sim.records.schema import SCHEMA
from rdpfl_sim.reports.run_summary import provenance_table
from rdpfl_sim.reports.text import verification_table
from rdpfl_sim.verification.check import INVARIANTS
from rdpfl_sim.verification.replay import ONLY_BY_REPLAY, UNREPEATABLE
from rdpfl_sim.verification.verify import verify
from tests.support import small_scenario


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = simulate(small_scenario(name="demo"), tmp_path / "runs").folder
    assert folder is not None
    return folder


def test_show_prints_results_and_provenance(run: Path, capsys) -> None:
    assert main(["show", str(run)]) == 0
    output = capsys.readouterr().out
    assert "demo, seed 1: finished" in output
    assert "personal mean" in output
    assert json.loads((run / "summary.json").read_text())["digest"] in output
    assert small_scenario(name="demo").hash in output
    assert "simpy 4" in output
    arithmetic = json.loads((run / "provenance.json").read_text())["sessions"][0]["arithmetic"]
    assert f"1 torch thread, {arithmetic} arithmetic" in output


def test_show_of_a_killed_run_prints_its_progress(run: Path, capsys) -> None:
    (run / "summary.json").unlink()
    path = run / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    last = next(place for place, line in enumerate(lines) if json.loads(line)["time_s"] > 1)
    path.write_text("".join(lines[: last + 1]) + '{"event":"mess')
    assert main(["show", str(run)]) == 0
    output = capsys.readouterr().out
    assert "demo, seed 1: not finished: still running, or killed" in output
    assert f"up to {json.loads(lines[last])['time_s']:.1f} simulated seconds" in output
    assert "digest" not in output


def test_show_of_a_failed_run_prints_the_reason(run: Path, capsys) -> None:
    (run / "summary.json").write_text(
        json.dumps({"schema": SCHEMA, "status": "failed", "error": "the disk is full"})
    )
    (run / "events.jsonl").write_text("")
    (run / "provenance.json").unlink()
    assert main(["show", str(run)]) == 0
    output = capsys.readouterr().out
    assert "demo, seed 1: failed: the disk is full" in output
    assert "no records" in output
    assert "the origin of this run is unknown" in output


@pytest.mark.parametrize("command", ["show", "verify", "resume"])
def test_path_that_is_not_a_run_folder_is_rejected(command: str, run: Path, tmp_path: Path, capsys) -> None:
    assert main([command, str(tmp_path / "nothing")]) == 2
    assert capsys.readouterr().err == f"rdpfl-sim {command}: {tmp_path / 'nothing'} does not exist\n"
    assert main([command, str(run / "metrics.csv")]) == 2
    assert "metrics.csv is not a folder" in capsys.readouterr().err
    assert main([command, str(run.parent)]) == 2
    error = capsys.readouterr().err
    assert "is not a run folder: it has no scenario.toml" in error
    assert f"the newest run in it is {run}" in error


@pytest.mark.parametrize("command", ["show", "verify"])
def test_damaged_summary_is_reported_without_a_traceback(command: str, run: Path, capsys) -> None:
    (run / "summary.json").write_text('{"status": "fini')
    assert main([command, str(run)]) == 1
    assert f"rdpfl-sim {command}: {run / 'summary.json'} is damaged: " in capsys.readouterr().err


def test_verify_prints_in_one_line_that_some_changes_need_a_replay_and_lists_them_as_json(
    run: Path, capsys
) -> None:
    assert main(["verify", str(run), str(run)]) == 0
    output = capsys.readouterr().out
    assert output.splitlines()[-1] == (
        f"{len(ONLY_BY_REPLAY)} kinds of changes are detected only by --replay; --json lists them"
    )
    assert output.count("--replay") == 1
    main(["verify", str(run), "--replay"])
    assert "--json" not in capsys.readouterr().out
    main(["verify", str(run), "--json"])
    assert json.loads(capsys.readouterr().out)[0]["only_by_replay"] == list(ONLY_BY_REPLAY)


def test_docs_list_every_invariant_and_the_changes_that_verify_cannot_detect() -> None:
    page = " ".join((Path(__file__).parents[2] / "docs" / "experiments" / "verify.md").read_text().split())
    assert [name for name, (_, text) in INVARIANTS.items() if f"| {name} | {text} |" not in page] == []
    assert [kind for kind in ONLY_BY_REPLAY if f"- {kind}" not in page] == []
    fields = [f"`{field}` of `{name}`" for name, fields in UNREPEATABLE.items() for field in fields]
    assert [field for field in fields if field not in page] == []


def test_verify_of_consistent_runs_exits_with_0_and_lists_every_check(run: Path, capsys) -> None:
    assert main(["verify", str(run), str(run), "--replay"]) == 0
    output = capsys.readouterr().out
    assert output.count(f"{len(INVARIANTS)} checks: {len(INVARIANTS)} ok") == 2
    assert "Simulated time never decreases." in output
    assert max(len(line) for line in output.splitlines() if line != str(run)) <= 100


def test_verify_of_an_inconsistent_run_exits_with_1_and_names_the_line(run: Path, capsys) -> None:
    path = run / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    place = next(i for i, line in enumerate(lines) if "message_used" in line)
    path.write_text("".join([*lines[: place + 1], *lines[place:]]))
    assert main(["verify", str(run)]) == 1
    output = capsys.readouterr().out
    assert f"outcomes: violated once at line {place + 2:,} of events.jsonl: message " in output
    assert main(["verify", str(run), "--json"]) == 1
    [result] = json.loads(capsys.readouterr().out)
    assert result["run"] == str(run)
    [outcomes] = [check for check in result["checks"] if check["check"] == "outcomes"]
    assert (outcomes["outcome"], outcomes["violations"], outcomes["line"]) == ("violated", 1, place + 2)


def test_tables_fit_into_80_columns(run: Path) -> None:
    provenance = json.loads((run / "provenance.json").read_text())
    (run / "metrics.csv").write_text("")
    stream = StringIO()
    console = Console(file=stream, width=80)
    console.print(provenance_table(provenance, "0123456789abcdef" * 4))
    console.print(verification_table(str(run), [check.as_dict() for check in verify(run)]))
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith(" lemma 3") and line.rstrip().endswith("ok") for line in lines)
    assert any(line.startswith("evaluations: violated ") for line in lines)
