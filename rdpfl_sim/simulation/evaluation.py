"""Evaluate models. All evaluations due at one simulated time run together, after its other events.

The last evaluation of every client is due at the end of the run, where all of them run together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from rdpfl_sim.execution.executor import EvalJob, EvalResult, Executor
from rdpfl_sim.records.metrics import MetricsRow, selected_moments
from rdpfl_sim.records.record_types import TrainedScores, UpdatedScores, ValidationScores
from rdpfl_sim.simulation.consensus import ConsensusMonitor
from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.simulation.models import BestModels
from rdpfl_sim.simulation.recorder import Recorder
from rdpfl_sim.simulation.theory import TheoryMonitor
from rdpfl_sim.world.client import Client, TrainedModel
from rdpfl_sim.world.jobs import Job
from rdpfl_sim.world.kernel import EVALUATION, Call, Kernel

NOT_EVALUATED: Mapping[str, float | None] = dict.fromkeys(
    [*TrainedScores.__annotations__, *UpdatedScores.__annotations__]
)
"""The scores of a record whose moments are not selected."""


@dataclass(frozen=True)
class Candidate:
    """The models of a client to evaluate: the trained one, and the one that `job` computes by its update."""

    client: Client
    round: int
    trained: TrainedModel
    job: Job
    updated_s: float
    is_updated_new: bool
    """Whether the updated model has not been evaluated before."""
    is_global: bool

    @property
    def w(self) -> Tensor:
        """The updated model."""
        return self.job.updated.state.w[0]

    def model(self, moment: str) -> tuple[float, Tensor]:
        """Return the time of a moment, and the model vector."""
        return (self.trained.time_s, self.trained.w[0]) if moment == "trained" else (self.updated_s, self.w)


class Evaluations:
    """Evaluates models after the rounds that the scenario selects; keeps the latest evaluation per client."""

    STATE = ("candidates", "latest", "_honest_sum")
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
        self.moments = selected_moments(self.section.moments)
        self.headline = self.moments[0]
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
        self._honest_sum = 0.0

    def after_round(self, client: Client) -> None:
        """Schedule an evaluation of a client that has finished a round, if one is due now."""
        round_ = client.state.last_round
        if round_ % self.section.every == 0 and round_ < self.rounds:
            if not self.candidates:
                self.kernel.call_at(Call(self._on_end_of_time_step), self.kernel.now, EVALUATION)
            self._add(client, is_last=False)

    def evaluate_changed(self, clients: Iterable[Client]) -> None:
        """Evaluate clients with models that are new, or have changed since their last evaluation."""
        for client in clients:
            state = client.state
            if any(getattr(state, f"is_{moment}_new") for moment in self.moments):
                self._add(client, is_last=True)
        self.evaluate_pending()

    def evaluate_pending(self) -> None:
        """Evaluate all pending models. Equal models of a client are evaluated once."""
        candidates, self.candidates = self.candidates, []
        jobs: list[EvalJob] = []
        indices: list[list[int]] = []
        is_initial = not self.latest
        for candidate in candidates:
            indices.append([])
            for moment in self.moments:
                _, w = candidate.model(moment)
                if not indices[-1] or not torch.equal(w, jobs[-1].w):
                    jobs.append(EvalJob(candidate.client.id, w, candidate.is_global, is_initial))
                indices[-1].append(len(jobs) - 1)
        results = self.executor.evaluate(jobs)
        for candidate, of_moments in zip(candidates, indices, strict=True):
            self._report(candidate, [results[index] for index in of_moments])
        self._report_consensus(is_last=False)

    def end(self, clients: Iterable[Client]) -> None:
        """Make the evaluations that are due at the end of the run."""
        self.evaluate_changed(clients)
        self._report_consensus(is_last=True)

    def _add(self, client: Client, is_last: bool) -> None:
        """Add a client's models to the pending evaluations, with the client's last finished round."""
        state = client.state
        every = self.section.global_every or self.section.every
        is_global = self.section.global_test and (is_last or state.last_round % every == 0)
        self.candidates.append(
            Candidate(
                client,
                state.last_round,
                state.trained,
                state.job,
                state.updated_s,
                state.is_updated_new,
                is_global,
            )
        )
        state.is_trained_new = state.is_updated_new = False

    def _on_end_of_time_step(self, _: Call) -> None:
        self.evaluate_pending()

    def _report(self, candidate: Candidate, results: Iterable[EvalResult]) -> None:
        """Record the evaluation of a client."""
        candidate.client.report_update()
        client, recorder = candidate.client.id, self.recorder
        scores = dict(NOT_EVALUATED)
        if self.section.validation_fraction > 0:
            scores |= dict.fromkeys(ValidationScores.__annotations__)
        for moment, result in zip(self.moments, results, strict=True):
            scores[f"{moment}_time_s"], _ = candidate.model(moment)
            scores |= {f"{moment}_{name}": value for name, value in scores_of(result).items()}
        recorder.event("evaluated", client=client, round=candidate.round, **scores)
        if self.theory is not None and candidate.is_updated_new and client not in self.byzantine:
            observed = self.theory.observe(client, candidate.w)
            recorder.event("theory", client=client, round=candidate.round, **observed)
        if self.consensus is not None and client not in self.byzantine:
            self.consensus.observe(client, candidate.round, candidate.w)
        if self.best is not None:
            accuracy = scores[f"{self.headline}_validation_accuracy"]
            assert accuracy is not None, "the best models are chosen by validation accuracy"
            _, w = candidate.model(self.headline)
            self.best.observe(client, accuracy, w)
        details = {"hops": self.hops[client], **recorder.telemetry.since_last_evaluation(client)}
        self.add(client, candidate.round, {**scores, **details})

    def _report_consensus(self, is_last: bool) -> None:
        """Record the average model of the honest clients, if it is due."""
        if self.consensus is not None and self.consensus.is_due(is_last):
            self.recorder.event("consensus", **self.consensus.evaluate())

    def add(self, client: int, round_: int, scores: Mapping[str, Any]) -> None:
        """Write the row of an evaluation, and update the honest clients' mean accuracy."""
        if client not in self.byzantine:
            self._honest_sum += self._accuracy(scores) - self._accuracy(self.latest.get(client, {}))
        row = {
            "client": client,
            "byzantine": int(client in self.byzantine),
            "round": round_,
            **dict.fromkeys(ValidationScores.__annotations__),
            **scores,
        }
        self.latest[client] = cast("MetricsRow", row)
        self.write(self.latest[client])

    @property
    def honest_mean(self) -> float | None:
        """The mean personal accuracy of the honest clients at their latest evaluations."""
        return self._honest_sum / self.num_honest if self.latest else None

    def _accuracy(self, scores: Mapping[str, Any]) -> float:
        return float(scores.get(f"{self.headline}_personal_accuracy", 0.0))


def scores_of(result: EvalResult) -> dict[str, float | None]:
    """Return the scores of one model by column; without a validation split, there are no such columns."""
    evaluations = {"personal": result.personal, "global": result.on_global}
    if result.validation is not None:
        evaluations["validation"] = result.validation
    return {
        f"{test}_{name}": None if found is None else getattr(found, name)
        for test, found in evaluations.items()
        for name in ("accuracy", "loss")
    }
