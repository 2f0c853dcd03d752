"""The simulation of an experiment: its events, evaluations, checkpoints and records."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from simpy.core import EmptySchedule

from rdpfl_sim.errors import Problem, ScenarioError
from rdpfl_sim.execution.devices import deterministic_torch, gc_paused
from rdpfl_sim.files import JsonObject
from rdpfl_sim.methods.directions import when_too_few
from rdpfl_sim.records.files import PROVENANCE, SUMMARY, TOPOLOGY
from rdpfl_sim.records.metrics import MetricsRow
from rdpfl_sim.records.reader import RunReader
from rdpfl_sim.records.schema import SCHEMA
from rdpfl_sim.records.status import RunStatus
from rdpfl_sim.records.summary import message_counts
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.simulation.checkpoint import CheckpointWriter
from rdpfl_sim.simulation.evaluation import Evaluations
from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.simulation.models import Models, blocks_of, headline_model, saved_models
from rdpfl_sim.simulation.provenance import provenance
from rdpfl_sim.simulation.recorder import Recorder
from rdpfl_sim.simulation.run_folder import RunFolder
from rdpfl_sim.simulation.signals import on_interrupt, record_failure
from rdpfl_sim.simulation.summary import summarise
from rdpfl_sim.simulation.telemetry import Telemetry
from rdpfl_sim.world.adversary.adversary import Adversary
from rdpfl_sim.world.client import Client, ClientContext
from rdpfl_sim.world.compute_time import TrainingTimes
from rdpfl_sim.world.kernel import Kernel, Timer
from rdpfl_sim.world.network.bandwidth import BANDWIDTHS
from rdpfl_sim.world.network.network import Network
from rdpfl_sim.world.world import World


class Progress(Protocol):
    """Progress callback."""

    def update(self, rounds_done: int, time_s: float, accuracy: float | None, messages: int) -> None:
        """Show the progress. `rounds_done` is the number of local trainings of all clients."""


@dataclass(frozen=True)
class Result:
    """The result of a run: its summary, all evaluations, the models and the run folder, if any.

    `models[3]` is the model of client 3 at the end of the run or, with `output.models = "best"`, its best.
    """

    summary: JsonObject
    rows: list[MetricsRow]
    models: Models
    folder: Path | None

    @property
    def metrics(self) -> list[MetricsRow]:
        """One row per client and evaluation, read from metrics.csv if there is a folder."""
        return self.rows if self.folder is None else RunReader(self.folder).read_metrics()


def simulate(
    scenario: Scenario | Experiment | str | Path,
    folder: str | Path | None = None,
    progress: Progress | None = None,
    on_folder: Callable[[Path], None] | None = None,
) -> Result:
    """Run a scenario until every client has finished. If `folder` is given, create a run folder in it.

    The scenario may be given as a file or as the name of a bundled scenario. `on_folder` is called with the
    path of the run folder as soon as it exists.
    """
    if isinstance(scenario, str | Path):
        scenario = Scenario.load(scenario)
    experiment = Experiment(scenario) if isinstance(scenario, Scenario) else scenario
    files = None if folder is None else _create_folder(Path(folder), experiment.scenario.name)
    if files is not None and on_folder is not None:
        on_folder(files.path)
    try:
        threads = experiment.scenario.execution.threads
        with (
            record_failure(files, experiment.scenario),
            deterministic_torch(threads, experiment.device),
            gc_paused(),
        ):
            return Simulation(experiment, files, progress).run()
    finally:
        if files is not None:
            files.close()


class Simulation:
    """One run: the world, its evaluations and its records."""

    STATE = ("num_trained", "wall_s", "warnings")

    def __init__(self, experiment: Experiment, files: RunFolder | None, progress: Progress | None) -> None:
        scenario, deployment = experiment.scenario, experiment.deployment
        self.experiment, self.scenario, self.files, self.progress = experiment, scenario, files, progress
        self.byzantine = frozenset(deployment.byzantine)
        self.executor = experiment.make_executor()
        self.kernel = Kernel(initial_time=0.0)
        self.time_limit = Timer(self.kernel, partial(self.end, RunStatus.OUT_OF_TIME))
        self.telemetry = Telemetry(self.byzantine, deployment.hops, when_too_few(scenario.method))
        self.recorder = Recorder(
            self.kernel,
            experiment.streams,
            files.events if files is not None and scenario.output.events else None,
            scenario.output.message_events,
            self.telemetry,
        )
        self.metrics: list[MetricsRow] = []
        self.evaluations = Evaluations(
            experiment,
            self.executor,
            self.kernel,
            self.recorder,
            self.metrics.append if files is None else files.write_metrics,
        )
        self.training_times = TrainingTimes(experiment.compute_times)
        self.clients: list[Client] = []
        """Filled last. The network, adversaries and clients refer to each other through this list."""
        self.network = self._build_network()
        self.adversaries = self._build_adversaries()
        context = self._build_context()
        adversary_of = {member: adversary for adversary in self.adversaries for member in adversary.members}
        for client, neighbours in enumerate(deployment.neighbours):
            learning = experiment.initial_state(client)
            self.clients.append(Client(client, neighbours, adversary_of.get(client), learning, context))
        self.world = World(
            self.kernel,
            self.network,
            self.clients,
            self.recorder,
            self.training_times,
            changes=deployment.changes(),
            initial_state=experiment.initial_state,
            on_end=partial(self.end, RunStatus.FINISHED),
        )
        self.checkpoint_writer = (
            None if files is None else CheckpointWriter(scenario.checkpoint, scenario.clients.count, files)
        )
        self.is_checkpoint_due = False
        self.is_restored = False
        """Whether the run continues from a snapshot."""
        self.num_trained = 0
        self.started_s = time.monotonic()
        self.wall_s = 0.0
        """Wall-clock time of the run up to the last checkpoint, including earlier sessions."""
        self.warnings: list[str] = []
        """Warnings about differences between the environments of the run's sessions."""
        self.status: RunStatus | None = None
        """The final status; None while the run continues."""

    def run(self, warnings: Sequence[str] = ()) -> Result:
        """Run to the end, or until interrupted, and write all files. Add `warnings` to the run's warnings."""
        with closing(self.executor), on_interrupt(partial(self.end, RunStatus.INTERRUPTED)):
            self.begin()
            self.warnings += warnings
            self._run_events()
            return self.finish()

    def begin(self) -> None:
        """Schedule the first events, unless a snapshot has been restored."""
        if self.files is not None:
            experiment = self.experiment
            content = provenance(self.files.path, self.scenario, experiment.device, experiment.arithmetic)
            self.files.write_json(PROVENANCE, content)
        if self.is_restored:
            self.started_s -= self.wall_s
        else:
            self._record_start()
            self.evaluations.evaluate_changed(self.clients)
            if self.scenario.timing.max_time_s is not None:
                self.time_limit.set(self.scenario.timing.max_time_s)
            self.world.start()
        self._show_progress()

    def finish(self) -> Result:
        """Write the final records and the summary, and return the result.

        An interruption reports and evaluates no updates: the resumed run does so when they are due.
        """
        if self.status is RunStatus.INTERRUPTED:
            self._checkpoint()
        else:
            self.evaluations.end(self.clients)
        self._show_progress()
        self._record_end()
        summary, experiment = summarise(self), self.experiment
        vectors = saved_models(self.clients, self.evaluations.best, self.evaluations.headline)
        if self.files is not None:
            self.files.sync()
            if self.scenario.output.models != "none" and self.status is not RunStatus.INTERRUPTED:
                self.files.write_models(blocks_of(experiment.architecture, experiment.model, vectors))
            self.files.write_json(SUMMARY, summary)
        if self.checkpoint_writer is not None and self.status is not RunStatus.INTERRUPTED:
            self.checkpoint_writer.clear()
        models = Models(experiment.architecture, experiment.model, vectors)
        return Result(summary, self.metrics, models, None if self.files is None else self.files.path)

    def _run_events(self) -> None:
        """Process events until the run ends, with pauses for checkpoints.

        No checkpoint is written after the last event: a restored run continues with its next event.
        """
        try:
            while self.status is None:
                self.kernel.run_until_paused()
                if self.is_checkpoint_due and self.status is None:
                    self._checkpoint()
        except EmptySchedule:
            raise AssertionError("deadlock: clients are waiting, but the event queue is empty") from None

    def _build_network(self) -> Network:
        section = self.scenario.network
        is_limited = BANDWIDTHS.facts(section.bandwidth.name).is_limited
        return Network(
            self.kernel,
            self.scenario.clients.count,
            self.clients,
            self.recorder,
            self.experiment.deployment.link,
            bandwidth=section.bandwidth.bind()(self.kernel) if is_limited else None,
            transport=section.transport.bind()(),
            duplication=section.duplication,
            compression=section.compression,
        )

    def _build_adversaries(self) -> list[Adversary]:
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
            for plan, members in zip(self.experiment.plans(), self.experiment.deployment.groups, strict=True)
            if members
        ]

    def _build_context(self) -> ClientContext:
        timing = self.scenario.timing
        return ClientContext(
            kernel=self.kernel,
            network=self.network,
            executor=self.executor,
            observer=self.recorder,
            clients=self.clients,
            observing_adversaries=[adversary for adversary in self.adversaries if adversary.observed_clients],
            training_times=self.training_times,
            wait=timing.wait.bind()(),
            staleness=timing.staleness.bind()(),
            rounds=self.scenario.rounds,
            exchanges=self.experiment.method.exchanges,
            message_form=self.experiment.message_form(),
            trained_model=self.experiment.method.trained_model,
            messages_per_sender=timing.mailbox_per_sender,
            prefer=timing.prefer,
            on_training=self._on_training,
            on_round=self.evaluations.after_round,
        )

    def _on_training(self) -> None:
        self.num_trained += 1
        self.world.num_trained += 1
        self._show_progress()
        if self.files is not None:
            self.files.flush()
        if self.checkpoint_writer is not None and self.checkpoint_writer.is_due(self.num_trained):
            self.is_checkpoint_due = True
            self.kernel.pause()

    def _checkpoint(self) -> None:
        self.is_checkpoint_due = False
        self.wall_s = time.monotonic() - self.started_s
        if self.checkpoint_writer is not None:
            self.checkpoint_writer.save(self)

    def _show_progress(self) -> None:
        if self.progress is not None:
            self.progress.update(
                self.num_trained, self.kernel.now, self.evaluations.honest_mean, self.network.num_sent
            )

    def end(self, status: RunStatus) -> None:
        """End the run. If a signal arrives during the last event, the run is not interrupted but complete."""
        if self.status in (None, RunStatus.INTERRUPTED):
            self.status = status
            self.kernel.pause()

    def _record_start(self) -> None:
        experiment = self.experiment
        if self.files is not None:
            self.files.write_scenario(self.scenario.to_dict())
            self.files.write_json(TOPOLOGY, experiment.deployment.topology)
        self.recorder.event(
            "run_started",
            schema=SCHEMA,
            seed=self.scenario.seed,
            num_parameters=experiment.model.num_parameters,
            byzantine=experiment.deployment.byzantine,
        )

    def _record_end(self) -> None:
        for client in self.clients:
            self.recorder.model(client.id, headline_model(client, self.evaluations.headline))
        self.recorder.event("run_finished", status=self.status, **self.count_messages())

    def evaluated_rows(self) -> Iterable[MetricsRow]:
        """Return the rows of all evaluations so far."""
        return self.metrics if self.files is None else self.files.read_metrics()

    def count_messages(self) -> dict[str, int]:
        """Return the counts of messages by outcome."""
        mailboxes, network = [client.mailbox for client in self.clients], self.network
        return message_counts(
            network.num_sent,
            network.num_delivered,
            network.num_lost,
            network.num_in_flight,
            sum((mailbox.outcomes for mailbox in mailboxes), Counter()),
            sum(1 for mailbox in mailboxes for _ in mailbox.unread()),
        ) | {
            "copied": network.num_copied,
            "reordered": network.num_reordered,
            "bytes": round(network.num_bytes),
        }


def _create_folder(parent: Path, name: str) -> RunFolder:
    try:
        return RunFolder.create(parent, name)
    except (OSError, ValueError) as error:  # a NUL character raises a ValueError
        reason = error.strerror if isinstance(error, OSError) else error
        problem = Problem("output.folder", f"cannot create a run folder: {reason}", str(parent))
        raise ScenarioError([problem]) from error
