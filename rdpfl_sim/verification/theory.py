"""Both sides of the paper's bound, computed again from the records of losses and gradients."""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose
from typing import Any

import torch

from rdpfl_sim.methods.base import Method, Settings
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.simulation.theory import Terms, Trajectory, counted, terms_of
from rdpfl_sim.verification.check import Record

ESTIMATES = ("G_g", "sigma_u")
"""Constants that the run has estimated from single batches, which no record holds."""

TOLERANCE = 1e-6
"""How well the bound agrees with the one that follows from the constants; they are squared on the way."""


class Theory:
    """Follows the looks at every honest client's loss."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.looks: dict[int, list[Record]] = {}
        self.num_steps: dict[int, int] = {}

    def training_finished(self, record: Record, line: int) -> None:
        """A client takes as many steps in every round."""
        self.num_steps[record["client"]] = record["num_steps"]

    def theory(self, record: Record, line: int) -> None:
        """The loss of an honest client was looked at."""
        self.looks.setdefault(record["client"], []).append(record)

    def summary_beside(self, said: dict[str, Any], num_rounds: Sequence[int]) -> dict[str, Any]:
        """The verdict on every client, with the constants that are said."""
        rate = self.scenario.training.learning_rate
        method: Method = self.scenario.method.bind()(Settings(rate, self.scenario.rounds))
        verdicts = {}
        for client, looks in sorted(self.looks.items()):
            verdict = said["clients"][str(client)]
            if client in self.num_steps:  # else it has never trained, and no record tells its K
                terms = terms_of(method, rate, self.num_steps[client])
                verdict = _verdict(looks, verdict, num_rounds[client], terms)
            verdicts[client] = verdict
        return counted(verdicts)


def _verdict(
    looks: Sequence[Record], said: dict[str, Any], num_rounds: int, terms: Terms | None
) -> dict[str, Any]:
    """What the run makes of a client; the bound is taken as it is said if it agrees up to rounding."""
    keys = ("gradient_norm", "loss", "L")
    if None in (*(look[key] for look in looks for key in keys), *(said.get(key, 0.0) for key in ESTIMATES)):
        return said  # it has diverged: JSON has no such numbers
    sigma_u = said["sigma_u"] if terms is not None else 0.0
    way = Trajectory(
        w=torch.zeros(1, dtype=torch.float64),
        gradient=torch.tensor([looks[-1]["gradient_norm"]], dtype=torch.float64),
        first_loss=looks[0]["loss"],
        last_loss=looks[-1]["loss"],
        mean_square=said["G_g"] ** 2,
        variance=sigma_u**2 * (1 if terms is None else terms.num_steps),
        smoothness=looks[-1]["L"],
        num_looks=len(looks) - 1,
        sum_squares=_sum_of_squares(looks[1:]),
    )
    found = way.verdict(num_rounds, terms)
    close = [key for key in (*ESTIMATES, "bound") if key in found and _is_close(found[key], said[key])]
    return {**found, **{key: said[key] for key in close}}


def _sum_of_squares(looks: Sequence[Record]) -> float:
    """The sum as the run computes it, one after the other."""
    total = 0.0
    for look in looks:
        total += look["gradient_norm"] ** 2
    return total


def _is_close(found: float, said: Any) -> bool:
    return isinstance(said, float) and isclose(found, said, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
