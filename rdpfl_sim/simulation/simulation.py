"""The run itself: it lets an experiment come to life, evaluates models, and writes down what happened."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from simpy.core import EmptySchedule
from torch import Tensor

from rdpfl_sim.contracts.kinds import plugins_in
from rdpfl_sim.errors import OUT_OF_MEMORY, PluginError, Problem, RunError, ScenarioError, is_out_of_memory
from rdpfl_sim.execution.allocation import gc_paused
from rdpfl_sim.execution.determinism import deterministic_torch
from rdpfl_sim.methods.aggregation import when_trimmed_less
from rdpfl_sim.methods.base import ClientView, State, Trained
from rdpfl_sim.methods.deferred import Update, Updates
from rdpfl_sim.records.evaluation_log import EvaluationLog
from rdpfl_sim.records.events import Recorder
from rdpfl_sim.records.metrics_file import MetricsRow
from rdpfl_sim.records.reader import RunReader
from rdpfl_sim.records.run_folder import PROVENANCE, SUMMARY, TOPOLOGY, TRACEBACK, RunFolder
from rdpfl_sim.records.status import RunStatus
from rdpfl_sim.records.telemetry import Telemetry
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.simulation import summary as summing_up
from rdpfl_sim.simulation.checkpoint import Checkpointer
from rdpfl_sim.simulation.evaluation_schedule import EvaluationSchedule
from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.simulation.provenance import provenance
from rdpfl_sim.simulation.signals import on_interrupt
from rdpfl_sim.simulation.snapshot import Snapshot, restore
from rdpfl_sim.system.files import UnsafeFileError
from rdpfl_sim.world.adversary.adversary import Adversary
from rdpfl_sim.world.client import Client, ClientContext, ClientState, single_payload
from rdpfl_sim.world.kernel import Kernel, Timer
from rdpfl_sim.world.mailbox import Mailbox
from rdpfl_sim.world.network.network import Network
from rdpfl_sim.world.world import World


class Progress(Protocol):
    """Somebody who wants to know how far the run is."""

    def update(self, rounds_done: int, time_s: float, accuracy: float | None, messages: int) -> None:
        """A client finished the training of a round; `rounds_done` is the sum over all clients."""


@dataclass(frozen=True)
class Result:
    """What a run gives back: its summary, every evaluation, the final models, and where the files are."""

    summary: dict[str, Any]
    rows: list[MetricsRow]
    models: list[Tensor]
    folder: Path | None

    @property
    def metrics(self) -> list[MetricsRow]:
        """One row per client and evaluation, read from metrics.csv if there is a folder."""
        return self.rows if self.folder is None else RunReader(self.folder).read_metrics()


def simulate(
    scenario: Scenario | Experiment,
    folder: str | Path | None = None,
    progress: Progress | None = None,
    on_folder: Callable[[Path], None] | None = None,
) -> Result:
    """Run a scenario until every client has finished; with `folder`, write a run folder into it.

    `on_folder` is told the run folder as soon as there is one.
    """
    experiment = Experiment(scenario) if isinstance(scenario, Scenario) else scenario
    files = None if folder is None else _folder(Path(folder), experiment.scenario.name)
    if files is not None and on_folder is not None:
        on_folder(files.path)
    try:
        threads = experiment.scenario.execution.threads
        with (
            failure_noted(files, experiment.scenario),
            deterministic_torch(threads, experiment.device),
            gc_paused(),
        ):
            return Simulation(experiment, files, progress).run()
    finally:
        experiment.trainer.close()
        if files is not None:
            files.close()


@contextmanager
def failure_noted(files: RunFolder | None, scenario: Scenario) -> Iterator[None]:
    """Say in the run folder that the run has failed, if it does; and where, if it was an error in code."""
    try:
        yield
    except Exception as error:
        told = _told(error, files, scenario)
        if files is not None:
            if isinstance(told, PluginError) or not isinstance(told, RunError):
                files.write_traceback(error)
            files.mark_failed(str(told) if isinstance(told, RunError) else f"{type(told).__name__}: {told}")
        if told is error:
            raise
        raise told from error


class Simulation:
    """One run: the live world and its records."""

    STATE = ("num_trained", "wall_s", "warnings")

    def __init__(self, experiment: Experiment, files: RunFolder | None, progress: Progress | None) -> None:
        scenario = experiment.scenario
        self.experiment, self.scenario, self.files, self.progress = experiment, scenario, files, progress
        self.byzantine = frozenset(experiment.byzantine)
        self.kernel = Kernel(initial_time=0.0)
        self.time_limit = Timer(self.kernel, self._run_out_of_time)
        self.telemetry = Telemetry(self.byzantine, experiment.hops, when_trimmed_less(scenario.method))
        self.recorder = Recorder(
            lambda: self.kernel.now,
            experiment.streams,
            files.events if files is not None and scenario.output.events else None,
            scenario.output.message_events,
            self.telemetry,
            inspects=scenario.output.telemetry,
        )
        self.updates = Updates(experiment.method, experiment.trainer.together, self.recorder.catch_up)
        self.network = self._network()
        self.clients: list[Client] = []
        self.adversaries = self._adversaries()
        self.clients += self._clients()
        self.network.receivers = [client.receive for client in self.clients]
        self.world = World(
            self.kernel,
            self.network,
            self.clients,
            self.recorder,
            changes=experiment.changes(),
            fresh_state=lambda client: self._fresh_state(client, experiment.initial_model(client)),
            on_gone=lambda client: self.evaluations.once_more([client]),
            on_end=lambda: self._end(RunStatus.FINISHED),
        )
        self.metrics: list[MetricsRow] = []
        self.scores = EvaluationLog(
            self.byzantine,
            len(self.clients) - len(self.byzantine),
            self.metrics.append if files is None else files.write_metrics,
        )
        self.evaluations = EvaluationSchedule(experiment, self.kernel, self.recorder, self.scores)
        self.checkpointer = (
            None if files is None else Checkpointer(scenario.checkpoint, scenario.clients.count, files)
        )
        self.is_checkpoint_due = False
        self.num_trained = 0
        self.started_s = time.monotonic()
        self.wall_s = 0.0
        """How long the run has taken, with all its parts if it was interrupted."""
        self.warnings: list[str] = []
        """Of this run, not of its scenario: what was not the same when it was resumed."""
        self.status: RunStatus | None = None
        """How the run has ended; None while it goes on."""

    def run(self, snapshot: Snapshot | None = None, warnings: Sequence[str] = ()) -> Result:
        """Run to the end, or until interrupted, and write everything down.

        With a snapshot of an earlier run of the same scenario, go on from there, with `warnings` besides its
        own.
        """
        with on_interrupt(self._interrupt):
            self.begin(snapshot)
            self.warnings += warnings
            self._live()
        return self.finish()

    def begin(self, snapshot: Snapshot | None = None) -> None:
        """Prepare the first event, or the first after a snapshot."""
        if self.files is not None:
            about = provenance(self.files.path, self.scenario.hash, self.experiment.device)
            self.files.write_json(PROVENANCE, about)
        if snapshot is None:
            self._write_beginning()
            self.evaluations.begin(self.clients)
            if self.scenario.timing.max_time_s is not None:
                self.time_limit.set(self.scenario.timing.max_time_s)
            self.world.start()
        else:
            restore(self, snapshot)
            self.started_s -= self.wall_s
        self._show_progress()

    def finish(self) -> Result:
        """What has come of it, after the last event."""
        self.updates.compute()
        if self.status is RunStatus.INTERRUPTED:
            self._checkpoint()
        else:
            self.evaluations.once_more(self.clients)
        self._show_progress()
        summary = summing_up.sum_up(self)
        if self.files is not None:
            self.files.sync()
            self.files.write_json(SUMMARY, summary)
        if self.checkpointer is not None and self.status is not RunStatus.INTERRUPTED:
            self.checkpointer.clear()
        models = [client.state.learning.w[0].cpu() for client in self.clients]
        return Result(summary, self.metrics, models, None if self.files is None else self.files.path)

    def _live(self) -> None:
        """Let one event after the other happen, with pauses for checkpoints."""
        try:
            while self.status is None:
                self.kernel.run_until_paused()
                if self.is_checkpoint_due:
                    self._checkpoint()
        except EmptySchedule:
            raise AssertionError("everybody waits, and nothing will ever happen") from None

    def _network(self) -> Network:
        section = self.scenario.network
        unlimited = section.bandwidth.name == "unlimited"
        return Network(
            self.kernel,
            self.scenario.clients.count,
            self.recorder,
            self.experiment.link,
            bandwidth=None if unlimited else section.bandwidth.bind()(self.kernel),
            transport=section.transport.bind()(),
            duplication=section.duplication,
            compression=section.compression,
        )

    def _clients(self) -> list[Client]:
        experiment, scenario, timing = self.experiment, self.scenario, self.scenario.timing
        self.surroundings = surroundings = ClientContext(
            kernel=self.kernel,
            network=self.network,
            trainer=experiment.trainer,
            method=experiment.method,
            updates=self.updates,
            observing_adversaries=[adversary for adversary in self.adversaries if adversary.observed_clients],
            observer=self.recorder,
            degree=lambda client: len(self.clients[client].neighbours),
            seed=experiment.streams.key,
            wait=timing.wait.bind()(),
            staleness=timing.staleness.bind()(),
            rounds=scenario.rounds,
            duration_s=lambda client, round_: (
                experiment.compute_times.duration_s(client, round_) * self.world.slowdown(client)
            ),
            on_training=self._on_training,
            on_round=lambda client: self.evaluations.after_round(client),
            on_finish=lambda client: self.world.finish(client),
        )
        adversary_of = {member: adversary for adversary in self.adversaries for member in adversary.members}
        same = experiment.initial_model(0).unsqueeze(0)
        clients = []
        for client, neighbours in enumerate(experiment.neighbours):
            w = same if scenario.training.start == "same" else experiment.initial_model(client).unsqueeze(0)
            view = ClientView(client, 0, len(neighbours), surroundings)
            learning = experiment.method.init(w, [view])
            if client == 0:  # all messages are of one form
                trained = Trained(w, num_steps=(1,))
                example = single_payload(experiment.method.payload(learning, trained, [view])[1])
            mailbox = Mailbox(
                neighbours,
                self.recorder,
                form=example.form,
                last_round=scenario.rounds,
                capacity=timing.mailbox_per_sender,
                prefer=timing.prefer,
            )
            state = ClientState(Update(learning), mailbox)
            clients.append(Client(client, neighbours, adversary_of.get(client), state, surroundings))
        return clients

    def _fresh_state(self, client: int, w: Tensor) -> State:
        return self.experiment.method.init(w.unsqueeze(0), [self.surroundings.view(client, 0)])

    def _adversaries(self) -> list[Adversary]:
        return [
            Adversary(
                plan,
                members,
                self.byzantine,
                self.kernel,
                self.network,
                self.clients,
                self.experiment.streams,
                method=self.experiment.method,
            )
            for plan, members in zip(self.experiment.plans(), self.experiment.groups, strict=True)
            if members
        ]

    def _on_training(self) -> None:
        self.num_trained += 1
        self.world.num_trained += 1
        self._show_progress()
        if self.files is not None:
            self.files.flush()
        if self.checkpointer is not None and self.checkpointer.is_due(self.num_trained):
            self.is_checkpoint_due = True
            self.kernel.pause()

    def _checkpoint(self) -> None:
        self.is_checkpoint_due = False
        self.wall_s = time.monotonic() - self.started_s
        if self.checkpointer is not None:
            self.checkpointer.save(self)

    def _show_progress(self) -> None:
        if self.progress is not None:
            self.progress.update(
                self.num_trained, self.kernel.now, self.scores.honest_mean, self.network.num_sent
            )

    def _interrupt(self) -> None:
        self._end(RunStatus.INTERRUPTED)

    def _run_out_of_time(self) -> None:
        self._end(RunStatus.OUT_OF_TIME)

    def _end(self, status: RunStatus) -> None:
        if self.status is None:
            self.status = status
            self.kernel.pause()

    def _write_beginning(self) -> None:
        experiment = self.experiment
        if self.files is not None:
            self.files.write_scenario(self.scenario.to_dict())
            self.files.write_json(TOPOLOGY, experiment.topology)
        self.recorder.event(
            "run_started",
            seed=self.scenario.seed,
            num_parameters=experiment.model.num_parameters,
            byzantine=experiment.byzantine,
        )


def _folder(parent: Path, name: str) -> RunFolder:
    try:
        return RunFolder.create(parent, name)
    except (OSError, ValueError) as error:  # a NUL character is no OSError
        reason = error.strerror if isinstance(error, OSError) else error
        problem = Problem("output.folder", f"no run folder can be made there: {reason}", str(parent))
        raise ScenarioError([problem]) from error


def _told(error: Exception, files: RunFolder | None, scenario: Scenario) -> Exception:
    """An error as a user should see it: what a plug-in does, or the machine lacks, is no fault of ours."""
    if is_out_of_memory(error):
        return RunError(OUT_OF_MEMORY)
    broken = _broken_plugin(error, scenario)
    if broken is not None:
        place = ", ".join(["", *getattr(error, "__notes__", [])])
        where = "" if files is None else f"; see {files.path / TRACEBACK}"
        return PluginError(broken.plugin, f"{broken.flaw}{place}{where}")
    if isinstance(error, UnsafeFileError):
        return RunError(f"{error.filename}: {error.strerror}")
    if isinstance(error, OSError) and files is not None:
        return RunError(f"the run's files cannot be written to {files.path}: {error.strerror or error}")
    return error


def _broken_plugin(error: Exception, scenario: Scenario) -> PluginError | None:
    """The plug-in whose code an error comes from, if it does."""
    if isinstance(error, PluginError):
        return error
    for _, component in plugins_in(scenario):
        plugin = type(component).plugin
        if plugin is not None and plugin.lines(error):
            return PluginError(plugin, f"raises {plugin.explain(error)}")
    return None
