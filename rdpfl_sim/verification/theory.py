"""The paper's results, checked from the records: Lemma 3, and both sides of the bound (eq. 18)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isclose

import torch

from rdpfl_sim.methods.base import Method, RunInfo
from rdpfl_sim.records.json_file import JsonObject
from rdpfl_sim.records.record_types import EstimateRecord, Theory, TrainingFinished
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.simulation.theory import Terms, Trajectory, bound_terms, summarise_verdicts
from rdpfl_sim.verification.check import Check, Needs

ESTIMATES = ("G_g", "sigma_u")
"""Constants that the run estimates from single batches, which no record contains."""

ROUNDING = 1e-5
"""Relative tolerance for float32 rounding."""

TOLERANCE = 1e-6
"""Relative tolerance for values that are computed from squared constants."""


class Lemma3:
    """Checks Lemma 3, |d| <= G_d, in every round of R-DPFL."""

    def __init__(self, scenario: Scenario) -> None:
        self.check = Check("lemma 3", "|d| <= G_d in every round of R-DPFL.", Needs.RECORDS)
        method = scenario.method
        self.largest_norm: float | None = None
        if method.name == "rdpfl":
            self.largest_norm = getattr(method, "max_norm", None)
        else:
            self.check.unchecked = f"applies to R-DPFL only; the method is {method.name}"

    def estimate(self, record: EstimateRecord, line: int) -> None:
        """Check the estimate of a round."""
        if self.largest_norm is not None:
            d_norm = record.get("d_norm")
            if d_norm is None or not d_norm <= self.largest_norm * (1 + ROUNDING):
                self.check.violated(line, f"|d| = {d_norm}, G_d = {self.largest_norm}")

    def round_closed(self, of_round: str, estimate: EstimateRecord | None, line: int) -> None:
        """Count a round whose estimate can no longer follow."""
        if self.largest_norm is not None:
            self.check.num_items += 1
            if estimate is None:
                self.check.violated(line, f"{of_round} has no estimate")


class RecomputedTheory:
    """Collects the `theory` records of every honest client."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.points: dict[int, list[Theory]] = {}
        self.num_steps: dict[int, int] = {}

    def training_finished(self, record: TrainingFinished, line: int) -> None:
        """Store the number of local steps, which is the same in every round."""
        self.num_steps[record["client"]] = record["num_steps"]

    def theory(self, record: Theory, line: int) -> None:
        """Add loss and gradient of an honest client."""
        self.points.setdefault(record["client"], []).append(record)

    def summary_beside(self, recorded: JsonObject, num_rounds: Sequence[int]) -> JsonObject:
        """Return the verdict on every client; estimated constants are copied from `recorded`."""
        rate = self.scenario.training.learning_rate
        method: Method = self.scenario.method.bind()(RunInfo(rate, self.scenario.rounds))
        verdicts = {}
        for client, points in sorted(self.points.items()):
            verdict = recorded["clients"][str(client)]
            if client in self.num_steps:  # otherwise it never trained, and its K is not recorded
                terms = bound_terms(method, rate, self.num_steps[client])
                verdict = _verdict(points, verdict, num_rounds[client], terms)
            verdicts[client] = verdict
        return summarise_verdicts(verdicts)


def _verdict(
    points: Sequence[Theory], recorded: JsonObject, num_rounds: int, terms: Terms | None
) -> JsonObject:
    """Return the verdict on a client; values that agree up to rounding are copied from `recorded`."""
    losses = _numbers(point["loss"] for point in points)
    norms = _numbers(point["gradient_norm"] for point in points)
    constants = _numbers(point["L"] for point in points)
    if not losses or not norms or not constants or None in [recorded.get(key, 0.0) for key in ESTIMATES]:
        return recorded  # diverged: JSON has no NaN or infinity
    sigma_u = recorded["sigma_u"] if terms is not None else 0.0
    way = Trajectory(
        w=torch.zeros(1, dtype=torch.float64),
        gradient=torch.tensor([norms[-1]], dtype=torch.float64),
        first_loss=losses[0],
        last_loss=losses[-1],
        mean_square=recorded["G_g"] ** 2,
        variance=sigma_u**2 * (1 if terms is None else terms.num_steps),
        smoothness=constants[-1],
        num_observations=len(points) - 1,
        sum_squares=_sum_of_squares(norms[1:]),
    )
    found = way.verdict(num_rounds, terms)
    close = [key for key in (*ESTIMATES, "bound") if key in found and _is_close(found[key], recorded[key])]
    return {**found, **{key: recorded[key] for key in close}}


def _numbers(values: Iterable[float | None]) -> list[float] | None:
    """Return the values, or None if one of them is missing."""
    found = list(values)
    numbers = [value for value in found if value is not None]
    return numbers if len(numbers) == len(found) else None


def _sum_of_squares(norms: Sequence[float]) -> float:
    """Return the sum, added in the same order as in the run."""
    total = 0.0
    for norm in norms:
        total += norm**2
    return total


def _is_close(found: float, recorded: object) -> bool:
    return isinstance(recorded, float) and isclose(found, recorded, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
