"""A run that was interrupted, killed or has crashed has the same results after it is resumed."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import tomli_w

from rdpfl_sim import Scenario, ScenarioError, resume, simulate
from rdpfl_sim.cli.main import main
from rdpfl_sim.execution.arithmetic import VARIABLES
from rdpfl_sim.simulation.checkpoint_file import Checkpoints
from rdpfl_sim.simulation.provenance import RESUMED_ELSEWHERE, environment
from rdpfl_sim.simulation.run_folder import RunFolder
from tests.fuzz.storage import Recording, recorded, results
from tests.killing import run_to_the_end, run_until_killed, run_until_killed_after_summary
from tests.runs import At, interrupt, left
from tests.simulation.test_snapshot import SMALL
from tests.support import small_scenario

OFTEN = {"checkpoint": {"every_rounds": 1}}


def scenario(name: str = "asynchronous", **changes: Any) -> Scenario:
    return small_scenario(**{**SMALL[name], "rounds": 6, **OFTEN, **changes})


def crash() -> None:
    raise MemoryError("no more")


@pytest.mark.parametrize("action", [interrupt, crash])
@pytest.mark.parametrize("name", SMALL)
def test_resumed_run_leaves_the_same_files_as_one_that_was_not_interrupted(
    tmp_path: Path, name: str, action: Callable[[], None]
) -> None:
    whole = simulate(scenario(name), tmp_path / "whole")
    folder = left(scenario(name), tmp_path / "left", 13, action)
    assert list((folder / "checkpoints").iterdir())
    resumed = resume(folder)
    assert resumed.summary["digest"] == whole.summary["digest"]
    assert resumed.folder == folder
    assert results(folder) == results(whole.folder)
    assert resumed.metrics == whole.metrics
    assert len(json.loads((folder / "provenance.json").read_text())["sessions"]) == 2


@pytest.mark.parametrize("changes", [{"output": {"events": False}}, {"method": "dfedavgm"}])
def test_resumed_run_has_the_warnings_of_one_that_was_not_interrupted(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    whole = simulate(scenario(**changes), tmp_path / "whole")
    resumed = resume(left(scenario(**changes), tmp_path / "left", 13, interrupt))
    assert resumed.summary["warnings"] == whole.summary["warnings"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "num_trained"), [*((name, -1) for name in SMALL), ("everything", 13)])
def test_run_that_stops_before_any_file_operation_after_its_last_event_has_the_same_result(
    tmp_path: Path, name: str, num_trained: int
) -> None:
    unfigured = scenario(name, output={"figures": False})
    whole = simulate(unfigured, tmp_path / "whole")
    (tmp_path / "run").mkdir()
    with recorded(Recording(tmp_path / "run")) as recording:
        simulate(unfigured, tmp_path / "run", At(num_trained, interrupt))
    states = recording.states_after_last_event(tmp_path / "states", Random(name))
    assert len(states) >= 10, "files are appended to, created, renamed and removed"
    for state in states:
        [run] = state.iterdir()
        assert main(["resume", str(run), "--quiet"]) == 0
        assert results(run) == results(whole.folder), state.name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["synchronous", "asynchronous", "everything"])
def test_run_that_is_killed_repeatedly_has_the_same_result(tmp_path: Path, name: str) -> None:
    random, raw = Random(name), scenario(name).to_dict()
    moments = [("events", random.randrange(1, 70)) for _ in range(4)]
    moments += [("blocks", random.randrange(1, 60)) for _ in range(3)]  # while a checkpoint is written
    random.shuffle(moments)
    num_killed = sum(run_until_killed(raw, tmp_path / "killed", moment) for moment in moments)
    assert num_killed >= 4, "the run has come to its end too early to be of interest"
    whole = simulate(scenario(name), tmp_path / "whole")
    assert results(run_to_the_end(raw, tmp_path / "killed")) == results(whole.folder)


def test_failure_that_simpy_has_not_raised_yet_is_not_in_a_checkpoint(tmp_path: Path) -> None:
    # Of six clients that train at the same instant one fails; the sixth of them asks for a checkpoint.
    folder = left(scenario("synchronous"), tmp_path, 8, crash)
    [path] = (folder / "checkpoints").iterdir()
    assert path.name.startswith("000001-")
    assert resume(folder).summary["status"] == "finished"


def test_settings_of_checkpoints_do_not_change_the_records(tmp_path: Path) -> None:
    seldom, often, by_the_clock = (
        simulate(scenario(checkpoint=section), tmp_path)
        for section in ({}, {"every_rounds": 1}, {"every_minutes": 1e-9})
    )
    for name in ("events.jsonl", "metrics.csv"):
        texts = {(result.folder / name).read_bytes() for result in (seldom, often, by_the_clock)}
        assert len(texts) == 1
    assert len({result.summary["digest"] for result in (seldom, often, by_the_clock)}) == 1


def test_complete_run_keeps_no_checkpoints(tmp_path: Path) -> None:
    folder = simulate(scenario(), tmp_path).folder
    assert not (folder / "checkpoints").exists()


def test_damaged_checkpoint_is_skipped_for_the_previous_one(tmp_path: Path) -> None:
    whole = simulate(scenario(), tmp_path / "whole")
    folder = left(scenario(), tmp_path / "left", 20, crash)
    newest = max((folder / "checkpoints").iterdir())
    newest.write_bytes(newest.read_bytes()[:-100])
    assert resume(folder).summary["digest"] == whole.summary["digest"]
    assert results(folder) == results(whole.folder)


def test_without_a_checkpoint_the_run_starts_again_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = simulate(scenario(), tmp_path / "whole")
    folder = left(scenario(), tmp_path / "left", 20, crash)
    Checkpoints(folder / "checkpoints").clear()
    resume(folder)
    assert "the run starts again from the beginning" in caplog.text
    assert results(folder) == results(whole.folder)


def test_checkpoint_whose_records_are_missing_is_not_used(tmp_path: Path) -> None:
    whole = simulate(scenario(), tmp_path / "whole")
    folder = left(scenario(), tmp_path / "left", 20, crash)
    (folder / "events.jsonl").write_bytes(b"")
    resume(folder)
    assert results(folder) == results(whole.folder)


@pytest.mark.slow
@pytest.mark.parametrize("moment", range(5))
def test_run_that_is_killed_after_its_summary_is_completed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], moment: int
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(tomli_w.dumps(scenario().to_dict()))
    assert main([str(file), "--output", str(tmp_path / "whole")]) == 0
    run_until_killed_after_summary(file, tmp_path / "killed", moment)
    [whole], [folder] = ((tmp_path / name).iterdir() for name in ("whole", "killed"))
    assert (folder / "checkpoints").exists() == (moment == 0)
    assert not (folder / "topology.png").exists()
    capsys.readouterr()
    assert main(["resume", str(folder)]) == 0
    done = "its checkpoints were removed and " if moment == 0 else ""
    assert f"this run is already complete; {done}its figures were drawn" in capsys.readouterr().err
    assert results(folder) == results(whole)
    assert main(["resume", str(folder)]) == 0
    assert "this run is already complete; there is nothing to resume" in capsys.readouterr().err


def test_figures_of_an_unfinished_run_are_drawn_again(tmp_path: Path) -> None:
    result = simulate(scenario(), tmp_path)
    for name in ("curves.png", "topology.png"):
        (result.folder / name).write_bytes(b"drawn when the run was interrupted")
        os.utime(result.folder / name, (0, 0))
    assert main(["resume", str(result.folder)]) == 0
    assert (result.folder / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_complete_run_is_not_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = simulate(scenario(output={"figures": False}), tmp_path).folder
    before = results(folder)
    (folder / "checkpoints").mkdir()
    with pytest.raises(ScenarioError, match="is already complete"):
        resume(folder)
    assert main(["resume", str(folder)]) == 0
    assert "there is nothing to resume" in capsys.readouterr().err
    assert results(folder) == before


def test_run_in_progress_is_not_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = left(scenario(), tmp_path, 20, crash)
    owner = RunFolder(folder)
    with pytest.raises(ScenarioError, match="is still running in another process"):
        resume(folder)
    assert main(["resume", str(folder)]) == 2
    assert "is still running in another process" in capsys.readouterr().err
    owner.close()
    assert main(["resume", str(folder), "--quiet"]) == 0


@pytest.mark.parametrize("name", ["nowhere", "."])
def test_folder_without_a_run_is_rejected_with_a_message(tmp_path: Path, name: str) -> None:
    with pytest.raises(ScenarioError, match=r"is not a run folder: it has no scenario\.toml"):
        resume(tmp_path / name)


def test_changed_scenario_is_not_resumed(tmp_path: Path) -> None:
    folder = left(scenario(), tmp_path, 20, crash)
    before = (folder / "events.jsonl").read_bytes()
    file = folder / "scenario.toml"
    file.write_text(file.read_text().replace("rounds = 6", "rounds = 7"))
    with pytest.raises(ScenarioError, match=r"scenario\.toml: has changed since the run started"):
        resume(folder)
    assert (folder / "events.jsonl").read_bytes() == before


@pytest.mark.slow
def test_other_processor_instructions_cause_a_permanent_warning_of_a_native_run(tmp_path: Path) -> None:
    def execute(code: str, **variables: str) -> str:
        imports = "from contextlib import suppress\nfrom rdpfl_sim.errors import RunError\n"
        imports += "from tests.simulation.test_resume import *\n"
        done = subprocess.run(
            [sys.executable, "-c", imports + code],
            env={**{key: value for key, value in os.environ.items() if key not in VARIABLES}, **variables},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stderr

    folder = tmp_path / "left"
    native = "scenario(execution={'arithmetic': 'native'})"
    execute(f"left({native}, Path({str(folder)!r}), 10, crash)")
    [folder] = folder.iterdir()
    there = execute(
        f"with suppress(RunError): resume({str(folder)!r}, At(20, crash))", ATEN_CPU_CAPABILITY="default"
    )
    back = execute(f"resume({str(folder)!r})")
    warnings = json.loads((folder / "summary.json").read_text())["warnings"][-2:]
    ((here, other),) = re.findall(
        f"^{RESUMED_ELSEWHERE}: instructions was (.*), is (DEFAULT.*)$", warnings[0]
    )
    assert warnings[1] == f"{RESUMED_ELSEWHERE}: instructions was {other}, is {here}"
    assert warnings[0] in there
    assert warnings[1] in back


@pytest.mark.parametrize(
    ("key", "value", "warning"),
    [
        ("versions", {"torch": "0.4"}, "torch was 0.4, is "),
        ("arithmetic", "native", "arithmetic was native, is portable"),
        ("machine", {"processor": "an abacus"}, None),
        ("device", "cuda:7", "device was cuda:7, is cpu"),
        ("threads", 64, "threads was 64, is 1"),
        ("versions", {"matplotlib": "0.1"}, None),
    ],
)
def test_resume_warns_only_about_differences_that_can_change_the_last_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, value: Any, warning: str | None
) -> None:
    here = {**environment("cpu", "portable"), "threads": 1}
    there = {**here, key: {**here[key], **value} if isinstance(value, dict) else value}
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("rdpfl_sim.simulation.checkpoint.environment", lambda *_: there)
        folder = left(scenario(), tmp_path, 20, crash)
    warnings = resume(folder).summary["warnings"]
    found = [text for text in warnings if text.startswith(RESUMED_ELSEWHERE)]
    assert len(found) == (warning is not None)
    assert warning is None or found[0].startswith(f"{RESUMED_ELSEWHERE}: {warning}")


def test_full_disk_prevents_the_checkpoint_and_not_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = simulate(scenario(), tmp_path / "whole")

    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Checkpoints, "save", full)
    result = simulate(scenario(), tmp_path / "full")
    assert results(result.folder) == results(whole.folder)
    assert "the run continues without it: [Errno 28] No space left on device" in caplog.text


def test_progress_and_wall_clock_continue_after_resuming(tmp_path: Path) -> None:
    whole = At(-1, interrupt)
    simulate(scenario("synchronous"), tmp_path / "whole", whole)
    folder = left(scenario("synchronous"), tmp_path / "left", 17, interrupt)
    before_s = json.loads((folder / "summary.json").read_text())["wall"]["seconds"]
    rest = At(-1, interrupt)
    resumed = resume(folder, rest)
    assert rest.seen[0][0] == 17
    assert rest.seen[1:] == whole.seen[-len(rest.seen) + 1 :]
    assert resumed.summary["wall"]["seconds"] > before_s


def test_ctrl_c_prints_a_resume_command_that_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('rounds = 6\nclients = { count = 4 }\nmodel = "softmax"\noutput = { figures = false }\n')
    whole = simulate(Scenario.load(path), tmp_path / "whole")
    monkeypatch.setattr("rdpfl_sim.cli.live.make_progress", lambda *_: Shown(At(9, interrupt)))
    assert main([str(path), "--output", str(tmp_path / "runs")]) == 130
    messages = capsys.readouterr().err
    [hint] = [line for line in messages.splitlines() if line.startswith("resume with: rdpfl-sim resume ")]
    monkeypatch.undo()
    assert main(hint.removeprefix("resume with: rdpfl-sim ").split()) == 0
    folder = Path(capsys.readouterr().out.splitlines()[-1])
    assert results(folder) == results(whole.folder)


class Shown:
    """A progress display, as the command line uses it."""

    def __init__(self, progress: At) -> None:
        self.progress = progress

    def __enter__(self) -> At:
        return self.progress

    def __exit__(self, *error: object) -> None:
        pass
