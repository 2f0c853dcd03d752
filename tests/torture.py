"""Kill runs, sweeps and their workers 200 times at random moments (`python -m tests.torture`).

The files of every run and the results of every sweep must equal those of an undisturbed one. Nothing may
hang, and no process may survive. In addition, every pinned case is resumed from all states of its folder
between the last event and the last file, and after power failures at random moments. A replay of its
interrupted run must have no violations.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from importlib.util import find_spec
from io import StringIO
from math import inf
from pathlib import Path
from random import Random
from typing import Any

import tomli_w

from rdpfl_sim import Scenario, ScenarioError, resume, simulate
from rdpfl_sim.cli.main import main as command_line
from rdpfl_sim.records.reader import RunReader
from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.simulation.resume import remove_checkpoints
from rdpfl_sim.verification.replay import compare
from rdpfl_sim.verification.verify import verify
from tests.fuzz.storage import Recording, disturbances, recorded, results
from tests.killing import (
    Command,
    run_for,
    run_to_the_end,
    run_until_killed_after_summary,
    run_until_terminated,
)
from tests.pinned.cases import scenarios
from tests.runs import At, interrupt

SCENARIOS = Path(__file__).parents[1] / "scenarios"
OVERRIDES = [
    "model=softmax",
    "evaluation.global_test=false",
    "checkpoint.every_rounds=1",
    "output.figures=false",
]
NAMES = ["complete_clean", "small_world_async", "stress/everything", "stress/reliable_transport"]
KILLS_PER_RUN = 10
KILLS_PER_SWEEP = 6
NUM_MOMENTS = 5
NUM_DISTURBANCES = 10
EVENTS, METRICS = "events.jsonl", "metrics.csv"
RECORDS = (EVENTS, METRICS, "topology.json", "scenario.toml")

Outcomes = Iterator[tuple[int, str, Sequence[str]]]
"""For each run or sweep: number of kills, description, and files that differ."""


def main() -> int:
    """Execute all parts in turn; return 1 at the first difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    random, total, start_s = Random(options.seed), 0, time.monotonic()
    shares = {
        last_files: inf,
        disturbed_runs: inf,
        interrupted_runs: inf,
        runs: 0.6,
        finishing_runs: 0.1,
        sweeps: 0.2,
    }
    if find_spec("ray") is not None:
        shares |= {sweeps_on_ray: 0.05, runs_on_ray: 0.05}
    for part, share in shares.items():
        with tempfile.TemporaryDirectory() as folder:
            part_kills = 0
            for num_kills, what, different in part(Path(folder), random):
                total, part_kills = total + num_kills, part_kills + num_kills
                verdict = f"DIFFERENT {', '.join(different)}" if different else "identical"
                elapsed = f"{time.monotonic() - start_s:5.0f} s, {total:4d} kills"
                print(f"{elapsed}: {what}, killed {num_kills} times, {verdict}", flush=True)  # noqa: T201
                if different:
                    return 1
                if part_kills >= share * options.kills:
                    break
    return 0


def last_files(folder: Path, random: Random) -> Outcomes:
    """Resume runs from every state between the last event, or an interruption, and the last file."""
    file = _write_toml(folder / "mine.toml", _small(rounds=4))
    (folder / "whole").mkdir()
    states = _states(partial(_quietly, "run", file, "--output", folder / "whole"), folder / "whole", random)
    [whole] = (folder / "whole").iterdir()
    yield len(states), "run with figures", _unequal(whole, states, partial(_quietly, "resume"))
    for name, raw in _variants():
        experiment = Experiment(Scenario.from_dict(raw | {"checkpoint": {"every_rounds": 1}}))
        moment = At(random.randrange(1, 2 * experiment.scenario.clients.count), interrupt)
        with tempfile.TemporaryDirectory(dir=folder) as parent:
            complete, interrupted = Path(parent, "complete"), Path(parent, "interrupted")
            complete.mkdir()
            interrupted.mkdir()
            states = [
                *_states(partial(simulate, experiment, complete), complete, random),
                *_states(partial(simulate, experiment, interrupted, moment), interrupted, random),
            ]
            [whole] = complete.iterdir()
            yield len(states), name, _unequal(whole, states, partial(_finish, experiment))


def disturbed_runs(folder: Path, random: Random) -> Outcomes:
    """Resume runs after kills and power failures at random moments, also of the resumed runs."""
    for name, raw in _variants():
        experiment = Experiment(Scenario.from_dict(raw | {"checkpoint": {"every_rounds": 1}}))
        with tempfile.TemporaryDirectory(dir=folder) as parent, redirect_stderr(StringIO()):
            whole = simulate(experiment, Path(parent, "whole")).folder
            assert whole is not None
            start = partial(simulate, experiment)
            found = disturbances(
                start, Experiment, results(whole), Path(parent, "states"), NUM_DISTURBANCES, random
            )
            different = list(found)
        yield NUM_DISTURBANCES, f"{name}, disturbed", different


def interrupted_runs(folder: Path, random: Random) -> Outcomes:
    """Interrupt runs at a random moment, compare them with their replay, and resume them."""
    for num, (name, raw) in enumerate(_variants()):
        reference = run_to_the_end(raw, folder / f"reference-{num}")
        parent = folder / f"run-{num}"
        wall_s = json.loads((reference / "summary.json").read_text())["wall"]["seconds"]
        run = run_until_terminated(raw, parent, random.uniform(0, wall_s))
        checks = [*verify(run), compare(run, reference)]
        different = [f"{check.name} ({check.first})" for check in checks if check.outcome == "violated"]
        num_kills = int(not RunReader(run).is_complete())
        run_to_the_end(raw, parent)
        different += [] if results(run) == results(reference) else ["files of the resumed run"]
        yield num_kills, f"{name}, interrupted", different


def runs(folder: Path, random: Random) -> Outcomes:
    """Kill and resume runs repeatedly."""
    raws = [Scenario.load(SCENARIOS / f"{name}.toml", OVERRIDES).to_dict() for name in NAMES]
    references = [run_to_the_end(raw, folder / f"reference-{k}") for k, raw in enumerate(raws)]
    num_runs = 0
    while True:
        which = num_runs % len(raws)
        parent = folder / f"run-{num_runs}"
        num_kills = 0
        while num_kills < KILLS_PER_RUN and run_for(raws[which], parent, random.expovariate(1)):
            num_kills += 1
        yield (
            num_kills,
            NAMES[which],
            _differing_files(references[which], run_to_the_end(raws[which], parent), RECORDS),
        )
        num_runs += 1


def finishing_runs(folder: Path, random: Random) -> Outcomes:
    """Kill runs between their summary and their last figure, and resume them."""
    file = _write_toml(folder / "mine.toml", _small(rounds=2))
    Command("run", file, "--output", folder / "reference").wait()
    [reference] = (folder / "reference").iterdir()
    num_runs = 0
    while True:
        parent, moment = folder / f"run-{num_runs}", num_runs % NUM_MOMENTS
        run_until_killed_after_summary(file, parent, moment)
        [run] = parent.iterdir()
        Command("resume", run).wait()
        names = {path.name for path in (*reference.iterdir(), *run.iterdir())} - {
            "summary.json",
            "provenance.json",
        }
        yield 1, f"moment {moment} after the summary", _differing_files(reference, run, sorted(names))
        num_runs += 1


def sweeps(
    folder: Path, random: Random, engine: Sequence[str] = (), victims: str = "multiprocessing"
) -> Outcomes:
    """Kill processes of a sweep, including the main one, and restart the sweep until it is complete."""
    file = _write_toml(folder / "mine.toml", {"seeds": [1, 2, 3, 4], "base": _small(rounds=30)})
    words = ["sweep", file, "--workers", "2", *engine, "--output"]
    assert Command(*words, folder / "reference").wait() == 0
    num_sweeps = 0
    while True:
        output, num_kills, is_complete = folder / f"sweep-{num_sweeps}", 0, False
        while not is_complete:
            command = Command(*words, output)
            num_kills += _kill_repeatedly(command, random, victims, KILLS_PER_SWEEP - num_kills)
            is_complete = command.wait() == 0
        results = [_results(parent / "mine" / "results.csv") for parent in (folder / "reference", output)]
        left = [path.name for path in (output / "mine" / ".running").iterdir() if path.name != "lock"]
        yield (
            num_kills,
            " ".join(["sweep", *engine]),
            [*left, *(["results.csv"] if results[0] != results[1] else [])],
        )
        num_sweeps += 1


def sweeps_on_ray(folder: Path, random: Random) -> Outcomes:
    """Kill processes of a sweep on Ray."""
    return sweeps(folder, random, ["--engine", "ray"], "ray::")


def runs_on_ray(folder: Path, random: Random) -> Outcomes:
    """Kill a run and its Ray workers, and resume the run until it is complete."""
    raw = _small(rounds=30)
    reference = run_to_the_end(raw, folder / "reference")
    file = _write_toml(
        folder / "mine.toml", {**raw, "execution": {"executor": {"name": "ray", "workers": 2}}}
    )
    num_runs = 0
    while True:
        parent, num_kills, is_complete = folder / f"run-{num_runs}", 0, False
        while not is_complete:
            started = list(parent.glob("*/scenario.toml"))
            command = (
                Command("resume", started[0].parent) if started else Command("run", file, "--output", parent)
            )
            num_kills += _kill_repeatedly(command, random, "ray::Actor", KILLS_PER_SWEEP - num_kills)
            is_complete = command.wait() == 0
        [run] = (path.parent for path in parent.glob("*/summary.json"))
        yield num_kills, "run on Ray", _differing_files(reference, run, (EVENTS, METRICS))
        num_runs += 1


def _kill_repeatedly(command: Command, random: Random, victims: str, max_kills: int) -> int:
    """Kill the main process or processes with `victims` in their title; return the number of kills."""
    num_kills = 0
    while num_kills < max_kills:
        pause_s = random.expovariate(0.3)
        deadline_s = time.monotonic() + pause_s
        while time.monotonic() < deadline_s and command.process.poll() is None:
            time.sleep(0.01)
        if command.process.poll() is not None:
            break
        workers = {*command.processes(victims)}.difference(command.processes("Agent"), [command.process.pid])
        if random.random() < 0.3:
            command.kill()
            num_kills += 1
        elif workers:
            try:
                os.kill(random.choice(sorted(workers)), signal.SIGKILL)
                num_kills += 1
            except ProcessLookupError:  # it has ended in the meantime
                continue
    return num_kills


def _variants() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield all pinned cases without figures, each unchanged and without waiting for neighbours."""
    for name, scenario in scenarios():
        raw = scenario.to_dict()
        raw["output"]["figures"] = False
        yield name, raw
        try:
            unwaiting = Scenario.from_dict(raw | {"timing": raw["timing"] | {"wait": "none"}})
        except ScenarioError:  # its attack needs a deadline
            continue
        yield f"{name} without waiting", unwaiting.to_dict()


def _states(run: Callable[[], object], folder: Path, random: Random) -> list[Path]:
    """Execute a run in a folder; return copies as after kills and power failures since its last event."""
    with recorded(Recording(folder)) as recording:
        run()
    copies = folder.with_name(f"states of {folder.name}")
    return [next(state.iterdir()) for state in recording.states_after_last_event(copies, random)]


def _unequal(whole: Path, states: Sequence[Path], finish: Callable[[Path], object]) -> list[str]:
    """Resume a run from every state; return the states whose results are not those of the whole run."""
    expected, unequal = results(whole), []
    for state in states:
        finish(state)
        unequal += [state.name] if results(state) != expected else []
    return unequal


def _finish(experiment: Experiment, run: Path) -> None:
    """Resume a run, or remove the checkpoints of a complete one."""
    if RunReader(run).is_complete():
        remove_checkpoints(run)
    else:
        with redirect_stderr(StringIO()):  # a run that starts again from the beginning logs a warning
            resume(run, experiment=experiment)


def _quietly(*words: str | Path) -> None:
    """Execute a command in this process without its output."""
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        command_line([*map(str, words), "--quiet"])


def _small(rounds: int) -> dict[str, Any]:
    """Return a scenario that takes a few seconds and draws figures."""
    overrides = [*OVERRIDES, f"rounds={rounds}", "output.figures=true", "execution.executor=inline"]
    overrides += ["clients.count=8", "checkpoint.every_rounds=10"]
    return Scenario.load(SCENARIOS / "small_world_async.toml", overrides).to_dict()


def _write_toml(path: Path, content: dict[str, Any]) -> Path:
    path.write_text(tomli_w.dumps(content))
    return path


def _differing_files(reference: Path, other: Path, names: Sequence[str]) -> list[str]:
    return [name for name in names if _content(reference / name) != _content(other / name)]


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _results(path: Path) -> list[dict[str, str]]:
    """Return the rows of results.csv without wall-clock times."""
    with path.open(newline="", encoding="utf-8") as file:
        return [
            {key: value for key, value in row.items() if not key.startswith("result.wall.")}
            for row in csv.DictReader(file)
        ]


if __name__ == "__main__":
    sys.exit(main())
