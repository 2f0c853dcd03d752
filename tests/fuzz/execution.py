"""Run a random scenario, interrupt and resume it, verify its records, and check the models."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import chdir, contextmanager
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tomli_w
import torch
from simpy.core import EmptySchedule

from rdpfl_sim import Scenario
from rdpfl_sim.execution.executor import Inline
from rdpfl_sim.execution.threads import Threads
from rdpfl_sim.records.files import EVENTS
from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.simulation.run_folder import RunFolder
from rdpfl_sim.simulation.simulation import Result, Simulation
from rdpfl_sim.verification.verify import verify
from tests.fuzz.healing import check_progress, heal
from tests.fuzz.scenarios import RandomScenario
from tests.runs import Lived, Mail, lived
from tests.support import cheap

NUM_RESUMED = 8
"""Checkpoints from which a run is resumed, at most."""

FORGED = ("stamps", "links")
"""Invariants of `verify` that do not hold if a test forges messages of honest clients or absent ones."""

REMOTE = ("ray",)
"""Executors whose workers are other processes, which have no access to replaced objects."""


class FailedScenarioError(Exception):
    """A run that breaks a rule. `rule` is the same for all scenarios that break it."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule


@contextmanager
def loaded(drawn: RandomScenario) -> Iterator[Scenario]:
    """Yield a scenario in a folder with its files, or raise a `ScenarioError`."""
    with TemporaryDirectory() as folder, chdir(folder):
        for name, content in {**drawn.files, "scenario.toml": tomli_w.dumps(drawn.scenario)}.items():
            data = content.encode() if isinstance(content, str) else content
            (Path(folder) / name).write_bytes(data)
        yield Scenario.load(Path(folder) / "scenario.toml")


@contextmanager
def built(drawn: RandomScenario) -> Iterator[Experiment]:
    """Yield the experiment of a scenario, whose training costs nothing if its executor is in this process."""
    with loaded(drawn) as scenario:
        is_remote = scenario.execution.executor.name in REMOTE
        yield Experiment(scenario) if is_remote else cheap(scenario, any_executor=True)


def execute(drawn: RandomScenario) -> int:
    """Run a scenario twice, the second time with interruptions; raise a `FailedScenarioError` on a flaw.

    Return the number of clients that were found to finish a round after all faults had ended.
    """
    with built(drawn) as experiment, TemporaryDirectory() as folder:
        files = RunFolder.create(Path(folder), "run")
        try:
            once = _lived(experiment, drawn, folder=files)
        finally:
            files.close()
        _check(once, files.path, drawn)
        records = (files.path / EVENTS).read_bytes()
    if drawn.heal_at_s is not None:
        return _check_progress(once, records, drawn.heal_at_s)
    if experiment.scenario.execution.executor.name not in REMOTE:
        _check_resumed(drawn, once, records)
    return 0


def records_of(drawn: RandomScenario) -> bytes:
    """Run a scenario once, and return all lines of events.jsonl but the first."""
    with built(drawn) as experiment:
        events, *_ = _lived(experiment, drawn).traces
        return events.partition(b"\n")[2]


def _lived(experiment: Experiment, drawn: RandomScenario, **how: Any) -> Lived:
    """Execute a run. Every error of the simulator is a flaw: the scenario is valid."""

    def prepare(simulation: Simulation) -> None:
        if drawn.heal_at_s is not None:
            simulation.world.changes = heal(simulation.world.changes, drawn.heal_at_s)

    try:
        return lived(experiment, mail=drawn.odd_messages, prepare=prepare, **how)
    except EmptySchedule as error:
        raise FailedScenarioError("deadlock", "the event queue is empty, but clients are waiting") from error
    except Exception as error:
        place = _innermost(error)
        raise FailedScenarioError(f"{type(error).__name__} in {place}", str(error)) from error


def _innermost(error: BaseException) -> str:
    """Return the module and function that raised an error."""
    trace = error.__traceback__
    assert trace is not None
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{Path(trace.tb_frame.f_code.co_filename).stem}.{trace.tb_frame.f_code.co_name}"


def _check(run: Lived, folder: Path, drawn: RandomScenario) -> None:
    for check in verify(folder):
        if check.outcome == "violated" and not (drawn.odd_messages and check.name in FORGED):
            raise FailedScenarioError(f"verify: {check.name}", f"line {check.line}: {check.first}")
    check_end(run.simulation, run.result)
    check_models(run.simulation, run.result, drawn.odd_messages)


def _check_resumed(drawn: RandomScenario, once: Lived, records: bytes) -> None:
    pause = 1 + once.num_events // NUM_RESUMED
    with built(drawn) as experiment:
        again = _lived(experiment, drawn, leave_after=lambda event: event % pause == 0)
    events, _, summary, _ = again.traces
    first = repr({key: value for key, value in once.result.summary.items() if key != "wall"})
    if events != records or summary != first:
        raise FailedScenarioError("resume", "a run that is interrupted and resumed has other records")
    ours, theirs = ([w.numpy().tobytes() for w in run.result.models.vectors] for run in (once, again))
    if ours != theirs:
        raise FailedScenarioError("resume", "a run that is interrupted and resumed has other models")


def _check_progress(run: Lived, records: bytes, heal_at_s: float) -> int:
    flaw, num_clients = check_progress(run.simulation, records, heal_at_s)
    if flaw is not None:
        raise FailedScenarioError("progress", flaw)
    return num_clients


def check_end(simulation: Simulation, result: Result) -> None:
    """Check the status of a run, and the size of mailboxes."""
    status, scenario = result.summary["status"], simulation.scenario
    if (
        status == "finished"
        and not scenario.faults
        and result.summary["rounds_done"] != [scenario.rounds] * 2
    ):
        raise FailedScenarioError("end", f"finished after the rounds {result.summary['rounds_done']}")
    if status == "out of time":
        if result.summary["simulated_s"] != scenario.timing.max_time_s:
            raise FailedScenarioError("end", f"out of time after {result.summary['simulated_s']} s")
        if simulation.kernel.peek() == inf:
            raise FailedScenarioError("end", "deadlock: the event queue is empty")
    for client in simulation.clients:
        for queue in client.mailbox.queues.values():
            if len(queue.unread) > scenario.timing.mailbox_per_sender:
                raise FailedScenarioError("memory", f"client {client.id} has {len(queue.unread)} messages")


def check_models(simulation: Simulation, result: Result, mail: Mail) -> None:
    """Check that honest models are finite if no step can exceed the range of float32.

    The entries of an honest direction are at most 2: 1, and as much for rounding. The contribution of
    neighbours is bounded by Lemma 3 in R-DPFL, and by the received messages in the undefended method. The
    methods that exchange models stay between received models, which are finite. Real training has no bound.
    """
    scenario, experiment = simulation.scenario, simulation.experiment
    method: Any = scenario.method
    honest = [client.state.learning.w[0] for client in simulation.clients if client.adversary is None]
    num_diverged = sum(not torch.isfinite(w).all() for w in honest)
    warned = f"honest clients whose models have diverged: {num_diverged}" in result.summary["warnings"]
    if warned != (num_diverged > 0):
        raise FailedScenarioError("warning", f"{num_diverged} models have diverged, warned: {warned}")
    num_steps = max(experiment.settings.num_steps(len(shard)) for shard in experiment.train_shards)
    gamma, added = scenario.training.learning_rate * num_steps, 0.0
    if method.name in ("rdpfl", "direct"):
        gamma = method.step if method.step != "local" else method.coefficient * gamma
        arrives = inf if experiment.deployment.byzantine or mail else 2.0
        added = method.lambda_ * (method.max_norm if method.name == "rdpfl" else arrives)
    elif gamma > 1e30:  # less is lost in the rounding of the largest number
        return
    is_bounded = scenario.rounds * gamma * (2.0 + added) < 1e37
    is_real = not isinstance(simulation.executor, Inline | Threads)
    if is_bounded and num_diverged and not is_real:
        raise FailedScenarioError("divergence", f"{num_diverged} honest models have diverged")
