"""Attacks computed from the mean and the standard deviation of the honest updates."""

from __future__ import annotations

from statistics import NormalDist
from typing import Annotated

from torch import Tensor

from rdpfl_sim.aggregators import mean
from rdpfl_sim.attacks.view import View, as_update, attack, moments
from rdpfl_sim.components.options import Doc, Positive


@attack(needs="honest")
def ipm(
    view: View, *, epsilon: Annotated[Positive, Doc("above h / f, a plain average is reversed")] = 0.1
) -> Tensor:
    """-epsilon mu: makes the inner product of the average and mu small or negative (Xie et al. 2020)."""
    return as_update(view.changed(mean(view.honest), -epsilon), view)


@attack(needs="honest", collective=True)
def alie(
    view: View,
    *,
    z: Annotated[Positive | None, Doc("in standard deviations (default: computed from h and f)")] = None,
) -> Tensor:
    """mu - z sigma: a small bias, hidden within the spread of the honest updates (Baruch et al. 2019).

    By default z = Phi^-1((h - s) / h), where s = floor(n / 2 + 1) - f is the number of honest supporters that
    f of n = h + f clients need for a majority. The quantile is clamped to [1/2, 1 - 1/h]: a majority of
    attackers (s <= 0, z infinite) stays as close to mu as the outermost of h honest updates, and too few
    attackers (z negative) send mu.
    """
    mu, sigma = moments(view.honest)
    if z is None:
        h, f = len(view.honest), view.num_byzantine
        s = (h + f) // 2 + 1 - f
        z = NormalDist().inv_cdf(max(0.5, min((h - s) / h, 1 - 1 / h)))
    return as_update(mu - z * sigma, view)
