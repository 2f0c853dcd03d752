"""Evaluate models. All evaluations due at one simulated time run together, after its other events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor

from rdpfl_sim.components.options import SLACK
from rdpfl_sim.execution.executor import EvalJob, EvalResult, Executor
from rdpfl_sim.records.metrics import TARGETS, MetricsRow
from rdpfl_sim.records.record_types import ValidationScores
from rdpfl_sim.simulation.consensus import ConsensusMonitor
from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.simulation.models import BestModels
from rdpfl_sim.simulation.recorder import Recorder
from rdpfl_sim.simulation.theory import TheoryMonitor
from rdpfl_sim.world.client import Client
from rdpfl_sim.world.jobs import Job
from rdpfl_sim.world.kernel import EVALUATION, Call, Kernel


@dataclass(frozen=True)
class Candidate:
    """A model to evaluate: the model after a round, which the job of the next round computes."""

    client: Client
    round: int
    job: Job
    is_global: bool

    @property
    def w(self) -> Tensor:
        """The model vector."""
        return self.job.updated.state.w[0]


class Evaluations:
    """Evaluates models after the rounds that the scenario selects; keeps the latest evaluation per client."""

    STATE = ("candidates", "latest", "time_to_accuracy_s", "_honest_sum")
    CALLS = ("_on_end_of_time_step",)

    def __init__(
        self,
        experiment: Experiment,
        executor: Executor,
        kernel: Kernel,
        recorder: Recorder,
        write: Callable[[MetricsRow], None],
    ) -> None:
        self.section, self.rounds = experiment.scenario.evaluation, experiment.scenario.rounds
        self.byzantine, self.hops = experiment.deployment.byzantine, experiment.deployment.hops
        self.num_honest = experiment.scenario.clients.count - len(self.byzantine)
        self.executor = executor
        self.kernel = kernel
        self.recorder = recorder
        self.write = write
        self.theory = TheoryMonitor(experiment) if self.section.theory else None
        self.consensus = ConsensusMonitor(experiment) if self.section.consensus else None
        self.best = BestModels() if experiment.scenario.output.models == "best" else None
        self.candidates: list[Candidate] = []
        self.latest: dict[int, MetricsRow] = {}
        self.time_to_accuracy_s: dict[str, float] = {}
        """The time at which the honest clients' mean accuracy first reached each target, if it did."""
        self._honest_sum = 0.0

    def begin(self, clients: Iterable[Client]) -> None:
        """Evaluate the initial models."""
        for client in clients:
            self._add(client, is_last=True)
        self.evaluate_pending()

    def after_round(self, client: Client) -> None:
        """Schedule an evaluation of a client that has finished a round, if one is due."""
        round_ = client.state.last_round
        is_last = round_ == self.rounds
        if round_ % self.section.every == 0 or is_last:
            if not self.candidates:
                self.kernel.call_at(Call(self._on_end_of_time_step), self.kernel.now, EVALUATION)
            self._add(client, is_last)

    def evaluate_changed(self, clients: Iterable[Client]) -> None:
        """Evaluate final models that have changed since their last evaluation."""
        for client in clients:
            if client.state.needs_evaluation:
                self._add(client, is_last=True)
        self.evaluate_pending()

    def evaluate_pending(self) -> None:
        """Evaluate all pending models."""
        candidates, self.candidates = self.candidates, []
        jobs = [EvalJob(candidate.client.id, candidate.w, candidate.is_global) for candidate in candidates]
        for candidate, result in zip(candidates, self.executor.evaluate(jobs), strict=True):
            self._report(candidate, scores_of(result))
        self._report_consensus(is_last=False)

    def end(self, clients: Iterable[Client]) -> None:
        """Make the evaluations that are due at the end of the run."""
        self.evaluate_changed(clients)
        self._report_consensus(is_last=True)

    def _add(self, client: Client, is_last: bool) -> None:
        """Add a client's model to the pending evaluations, with the client's last finished round."""
        round_, client.state.needs_evaluation = client.state.last_round, False
        every = self.section.global_every or self.section.every
        is_global = self.section.global_test and (is_last or round_ % every == 0)
        self.candidates.append(Candidate(client, round_, client.state.job, is_global))

    def _on_end_of_time_step(self, _: Call) -> None:
        self.evaluate_pending()

    def _report(self, candidate: Candidate, scores: dict[str, float | None]) -> None:
        """Record the evaluation of a model."""
        candidate.client.report_update()
        client, recorder = candidate.client.id, self.recorder
        recorder.event("evaluated", client=client, round=candidate.round, **scores)
        if self.theory is not None and client not in self.byzantine:
            observed = self.theory.observe(client, candidate.w)
            recorder.event("theory", client=client, round=candidate.round, **observed)
        if self.consensus is not None and client not in self.byzantine:
            self.consensus.observe(client, candidate.round, candidate.w)
        if self.best is not None:
            accuracy = scores["validation_accuracy"]
            assert accuracy is not None, "the best models are chosen by validation accuracy"
            self.best.observe(client, accuracy, candidate.w)
        details = {"hops": self.hops[client], **recorder.telemetry.since_last_evaluation(client)}
        self.add(self.kernel.now, client, candidate.round, {**scores, **details})

    def _report_consensus(self, is_last: bool) -> None:
        """Record the average model of the honest clients, if it is due."""
        if self.consensus is not None and self.consensus.is_due(is_last):
            self.recorder.event("consensus", **self.consensus.evaluate())

    def add(self, time_s: float, client: int, round_: int, scores: Mapping[str, Any]) -> None:
        """Write the row of an evaluation, and update the honest clients' mean accuracy."""
        if client not in self.byzantine:
            self._honest_sum += _accuracy(scores) - _accuracy(self.latest.get(client, {}))
        row = {
            "time_s": time_s,
            "client": client,
            "byzantine": int(client in self.byzantine),
            "round": round_,
            **dict.fromkeys(ValidationScores.__annotations__),
            **scores,
        }
        self.latest[client] = cast("MetricsRow", row)
        self.write(self.latest[client])
        mean = self.honest_mean
        for target in TARGETS[len(self.time_to_accuracy_s) :]:
            if mean is None or mean < target - SLACK:
                break
            self.time_to_accuracy_s[str(target)] = time_s

    @property
    def honest_mean(self) -> float | None:
        """The mean personal accuracy of the honest clients at their latest evaluations."""
        return self._honest_sum / self.num_honest if self.latest else None


def scores_of(result: EvalResult) -> dict[str, float | None]:
    """Return the scores of an evaluation by column; without a validation split, there are no such columns."""
    evaluations = {"personal": result.personal, "global": result.on_global}
    if result.validation is not None:
        evaluations["validation"] = result.validation
    return {
        f"{test}_{name}": None if found is None else getattr(found, name)
        for test, found in evaluations.items()
        for name in ("accuracy", "loss")
    }


def _accuracy(scores: Mapping[str, Any]) -> float:
    return float(scores.get("personal_accuracy", 0.0))
