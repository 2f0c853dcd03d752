"""A run survives kills and power failures at any moment, and a forgotten fsync is found."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from stat import S_ISREG
from typing import Any

import pytest

from rdpfl_sim import files as files_module
from rdpfl_sim import simulate
from rdpfl_sim.records.reader import RunReader
from rdpfl_sim.simulation import checkpoint_file, run_folder
from rdpfl_sim.simulation.resume import remove_checkpoints
from tests.fuzz.storage import Names, Recording, disturbances, recorded, results
from tests.simulation.test_resume import At, interrupt
from tests.simulation.test_snapshot import SMALL
from tests.support import cheap, small_scenario


def fail() -> None:
    raise ArithmeticError("leaves a traceback")


def errors(
    folder: Path, name: str, num_states: int, end: Callable[[], None] | None = None, **changes: Any
) -> Iterator[str]:
    """Yield what goes wrong in a disturbed run, which ends by itself or otherwise."""
    sections = {**SMALL[name], "rounds": 3, "checkpoint": {"every_rounds": 1}, **changes}
    experiment = cheap(small_scenario(**sections))

    def start(parent: Path) -> None:
        with suppress(ArithmeticError):
            simulate(experiment, parent, None if end is None else At(13, end))

    expected = results(simulate(experiment, folder / "whole").folder)
    return disturbances(start, cheap, expected, folder / "states", num_states, Random(name))


@pytest.mark.slow
@pytest.mark.parametrize("end", [None, interrupt, fail])
@pytest.mark.parametrize("name", SMALL)
def test_run_survives_kills_and_power_failures(
    tmp_path: Path, name: str, end: Callable[[], None] | None
) -> None:
    assert list(errors(tmp_path, name, 12, end)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes", [{"output": {"events": False}}, {"output": {"models": "final"}}, {"checkpoint": {}}]
)
def test_run_with_other_files_survives_kills_and_power_failures(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    assert list(errors(tmp_path, "synchronous", 12, interrupt, **changes)) == []


def test_partial_traceback_of_a_run_whose_power_failed_is_removed(tmp_path: Path) -> None:
    run = run_folder.RunFolder.create(tmp_path, "run")
    run.close()
    (run.path / ".traceback.txt.0123456789abcdef.partial").write_text("Traceback (most")
    run_folder.RunFolder(run.path).close()
    assert {path.name for path in run.path.iterdir()} == {"events.jsonl", "metrics.csv"}


def test_checkpoints_are_removed_only_when_the_summary_is_on_the_disk(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    with recorded(Recording(tmp_path / "disk")) as first:
        simulate(cheap(small_scenario(rounds=2, checkpoint={"every_rounds": 1})), tmp_path / "disk" / "runs")
    [moment] = [
        place
        for place, operation in enumerate(first.log, start=1)
        if isinstance(operation, Names) and operation.changed.get("summary.json") is not None
    ]
    with recorded(first.after_kill(moment, tmp_path / "killed")) as killed:
        [run] = (killed.folder / "runs").iterdir()
        assert RunReader(run).is_complete()
        assert remove_checkpoints(run)
    for seed in range(20):
        killed.after_power_failure(len(killed.log), tmp_path / str(seed), Random(seed))
        [run] = (tmp_path / str(seed) / "runs").iterdir()
        assert RunReader(run).is_complete() or list(run.glob("checkpoints/*.safetensors"))


class Forgetful:
    """The module `os` with an fsync that does nothing for files."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fsync(self, descriptor: int) -> None:
        if not S_ISREG(os.fstat(descriptor).st_mode):
            os.fsync(descriptor)


def forget(folder: Path) -> None:
    pass


def make_volatile(path: Path, parents: bool = False) -> None:
    path.mkdir(parents=parents)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name", "forgetful", "error"),
    [
        pytest.param(run_folder, "os", Forgetful(), "events.jsonl, metrics.csv", id="records"),
        pytest.param(checkpoint_file, "os", Forgetful(), "resumed at 0", id="checkpoint"),
        pytest.param(files_module, "os", Forgetful(), "scenario.toml: is not", id="small files"),
        pytest.param(checkpoint_file, "sync_folder", forget, "resumed at 0", id="name of a checkpoint"),
        pytest.param(files_module, "sync_folder", forget, "resumed at -1", id="names of small files"),
        pytest.param(run_folder, "make_new_folder", make_volatile, "resumed at -1", id="run folder"),
        pytest.param(files_module, "make_new_folder", make_volatile, "resumed at 0", id="checkpoint folder"),
    ],
)
def test_forgotten_fsync_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, forgetful: Any, error: str
) -> None:
    monkeypatch.setattr(owner, name, forgetful)
    assert any(error in found for found in errors(tmp_path, "synchronous", 200))
