"""Every command that reads run folders rejects those of another schema with one message."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import tomli_w

from rdpfl_sim import simulate
from rdpfl_sim.cli.main import COMMANDS, main
from rdpfl_sim.errors import SchemaError
from rdpfl_sim.records.schema import SCHEMA, check_schema
from rdpfl_sim.results import Run
from rdpfl_sim.simulation.resume import resume
from rdpfl_sim.sweeps.runner import folder_of
from rdpfl_sim.sweeps.spec import SweepSpec
from rdpfl_sim.sweeps.strategies.bisection import Bisection, make_spec
from rdpfl_sim.sweeps.strategies.grid import plan_runs
from rdpfl_sim.verification.replay import replay
from rdpfl_sim.verification.verify import verify
from tests.support import small_scenario

READS_NO_RUNS = {"new", "run", "validate", "list", "schema", "data", "doctor", "completion"}
TAKES_A_RUN = {"resume", "watch", "compare", "show", "report", "verify", "trace", "tensorboard"}
TAKES_A_SCENARIO = {"sweep", "breakdown"}
TAKES_A_SWEEP = {"plot"}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = simulate(small_scenario(rounds=2), tmp_path_factory.mktemp("original")).folder
    assert folder is not None
    return folder


def make_old(run: Path, version: str = "0.1.0") -> None:
    """Remove the schema from a run folder."""
    for name, change in (("summary.json", "schema"), ("provenance.json", None)):
        content = json.loads((run / name).read_text())
        if change is not None:
            del content[change]
        else:
            content["sessions"][-1]["versions"]["rdpfl-sim"] = version
        (run / name).write_text(json.dumps(content))
    lines = (run / "events.jsonl").read_text()
    (run / "events.jsonl").write_text(lines.replace(f'"schema":{SCHEMA},', "", 1))


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    copied = Path(shutil.copytree(original, tmp_path / "runs" / "old"))
    make_old(copied)
    return copied


def refusal(run: Path) -> str:
    return f"{run} was written by rdpfl-sim 0.1.0 (record schema 1); rdpfl-sim 0.2.0 reads schema 3"


def test_every_command_either_reads_runs_or_not() -> None:
    assert COMMANDS.keys() == READS_NO_RUNS | TAKES_A_RUN | TAKES_A_SCENARIO | TAKES_A_SWEEP


@pytest.mark.parametrize("has_summary", [True, False])
@pytest.mark.parametrize("command", sorted(TAKES_A_RUN))
def test_run_folder_of_another_schema_is_rejected(
    command: str,
    has_summary: bool,
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rdpfl_sim.cli.tensorboard.find_spec", lambda name: object())
    if not has_summary:
        (run / "summary.json").unlink()
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    output = ["--output", str(tmp_path / "out")] if command in ("report", "trace", "tensorboard") else []
    assert main([command, str(run), *output]) == 2
    assert capsys.readouterr().err == f"rdpfl-sim {command}: {refusal(run)}\n"
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["compare", "report", "watch", "plot"])
def test_folder_that_contains_a_run_of_another_schema_is_rejected(
    command: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--x", "method"] if command == "plot" else []
    assert main([command, str(run.parent), *words]) == 2
    assert capsys.readouterr().err == f"rdpfl-sim {command}: {refusal(run)}\n"
    assert not (run.parent / "report.html").exists()


def test_sweep_does_not_continue_runs_of_another_schema(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = small_scenario(rounds=2).to_dict()
    spec = {"base": {key: value for key, value in base.items() if key != "seed"}, "seeds": [1]}
    (tmp_path / "mine.toml").write_text(tomli_w.dumps(spec))
    [planned] = plan_runs(SweepSpec.load(tmp_path / "mine.toml"))
    old = folder_of(planned, tmp_path / "sweeps" / "mine")
    old.parent.mkdir(parents=True)
    run.rename(old)
    assert main(["sweep", str(tmp_path / "mine.toml"), "--output", str(tmp_path / "sweeps")]) == 2
    assert capsys.readouterr().err.endswith(f"rdpfl-sim sweep: {refusal(old)}\n")


def test_breakdown_does_not_continue_runs_of_another_schema(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = small_scenario(name="mine", rounds=2)
    (tmp_path / "mine.toml").write_text(tomli_w.dumps(scenario.to_dict()))
    spec = make_spec(scenario, "method.lambda", 0.0, 1.0, [1], 0.5)
    output = tmp_path / "out" / "mine-method.lambda"
    old = folder_of(Bisection(spec).next_runs()[0], output)
    old.parent.mkdir(parents=True)
    run.rename(old)
    arguments = ["--vary", "method.lambda", "--from", "0", "--to", "1", "--seeds", "1,", "--tolerance", "0.5"]
    assert (
        main(["breakdown", str(tmp_path / "mine.toml"), *arguments, "--output", str(tmp_path / "out")]) == 2
    )
    assert capsys.readouterr().err.endswith(f"rdpfl-sim breakdown: {refusal(old)}\n")


@pytest.mark.parametrize("read", [Run, resume, verify, replay])
def test_functions_reject_a_run_folder_of_another_schema(read, run: Path) -> None:
    with pytest.raises(SchemaError, match=r"was written by rdpfl-sim 0\.1\.0"):
        read(run)


def test_failed_run_of_another_schema_is_rejected(run: Path) -> None:
    (run / "summary.json").write_text('{"status": "failed", "error": "the disk is full"}')
    with pytest.raises(SchemaError):
        Run(run)


def test_later_schema_is_rejected(run: Path) -> None:
    (run / "summary.json").write_text(json.dumps({"schema": SCHEMA + 1, "status": "finished"}))
    with pytest.raises(SchemaError, match=rf"\(record schema {SCHEMA + 1}\)"):
        check_schema(run)


def test_rejection_does_not_need_the_provenance(run: Path) -> None:
    (run / "provenance.json").unlink()
    with pytest.raises(SchemaError, match="was written by a different version of rdpfl-sim"):
        check_schema(run)


def test_folder_without_summary_and_records_has_no_schema(run: Path) -> None:
    (run / "summary.json").unlink()
    (run / "events.jsonl").write_text("")
    check_schema(run)
