"""What a Byzantine client sends instead of its update.

An attack is a function from what the attacker knows (`View`) to the vector that it sends. The
decorators `sees_honest` and `sees_victim` say what it needs to know: an attack that sees the honest
updates waits until they exist. mu and sigma are the coordinate-wise mean and (population) standard
deviation of the honest updates g_1..g_h.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

import torch
from annotated_types import Ge, Le
from torch import Tensor

from rdpfl_sim.options import LARGE, Doc, NonNegative, Positive


@dataclass(frozen=True)
class View:
    """What an attacker knows when it makes up a message.

    `own` is the update that it would have sent. `honest` (h, d) are updates of the same round: those of
    all honest clients, or, for an attack that sees its victim, those of the victim's honest neighbours;
    `expected` is then the direction that the victim predicts. `seed` names a random stream for the message.
    """

    own: Tensor
    seen: Tensor | None
    expected: Tensor | None
    seed: int

    @property
    def honest(self) -> Tensor:
        """The honest updates (h, d), for an attack that is marked as seeing them."""
        if self.seen is None:
            raise TypeError(
                "an attack that uses view.honest must be marked with @sees_honest or @sees_victim"
            )
        return self.seen


Attack: TypeAlias = Callable[[View], Tensor]


def sees_honest(attack: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Mark an attack that uses `view.honest`."""
    attack.sees_honest = True  # type: ignore[attr-defined]
    return attack


def sees_victim(attack: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Mark an attack that makes one message for each victim, from `view.expected`."""
    attack.sees_victim = True  # type: ignore[attr-defined]
    return sees_honest(attack)


def none(view: View) -> Tensor:
    """The honest update: a Byzantine client that behaves."""
    return view.own


def sign_flip(view: View, *, scale: Positive = 1.0) -> Tensor:
    """-scale u: the own update, reversed (Yin et al. 2018)."""
    return view.own * -scale


def noise(
    view: View, *, sigma: Annotated[NonNegative, Doc("standard deviation per coordinate")] = 200.0
) -> Tensor:
    """u + N(0, sigma^2 I): Gaussian noise; Blanchard et al. 2017 use sigma = 200."""
    generator = torch.Generator().manual_seed(view.seed)
    return view.own + sigma * torch.randn(view.own.shape, generator=generator).to(view.own)


def scaling(view: View, *, factor: Annotated[float, Ge(-LARGE), Le(LARGE)] = 10.0) -> Tensor:
    """factor u: amplified to dominate an average (Bagdasaryan et al. 2020 scale by the number of clients)."""
    return view.own * factor


Direction: TypeAlias = Annotated[
    Literal["unit_vec", "sign", "std"], Doc("the perturbation p: mu/|mu|, sign(mu) or sigma")
]


@sees_honest
def min_max(view: View, *, direction: Direction = "std") -> Tensor:
    """mu - gamma p, as far out as the two most distant honest updates are from each other.

    The largest gamma with max_i |m - g_i|^2 <= max_ij |g_i - g_j|^2 (Shejwalkar and Houmansadr, NDSS 2021).
    Each constraint is a quadratic in gamma that 0 satisfies, so gamma is the least of their larger roots.
    """
    g = view.honest
    mu, p = _mean_and_perturbation(g, direction)
    budget = _squared_distances(g).max()
    offset = (mu - g).double()
    a, b, c = p.double().square().sum(), offset @ p.double(), offset.square().sum(dim=1)
    if a == 0:
        return mu
    gamma = ((b + (b.square() + a * (budget - c).clamp(min=0)).sqrt()) / a).min()
    return mu - gamma.to(mu) * p


@sees_honest
def min_sum(
    view: View,
    *,
    direction: Direction = "std",
    budget: Annotated[
        Literal["min", "max"], Doc("the authors' code uses the least sum, their text the largest")
    ] = "min",
) -> Tensor:
    """mu - gamma p, no farther from all honest updates together than an honest update is.

    The largest gamma with sum_i |m - g_i|^2 <= min_i sum_j |g_i - g_j|^2 (Shejwalkar and Houmansadr 2021).
    The terms linear in gamma cancel, so gamma^2 = (budget - sum_i |mu - g_i|^2) / (h |p|^2).
    """
    g = view.honest
    mu, p = _mean_and_perturbation(g, direction)
    sums = _squared_distances(g).sum(dim=1)
    allowed = sums.min() if budget == "min" else sums.max()
    a = len(g) * p.double().square().sum()
    if a == 0:
        return mu
    gamma = ((allowed - (mu - g).double().square().sum()).clamp(min=0) / a).sqrt()
    return mu - gamma.to(mu) * p


@sees_victim
def adaptive(
    view: View, *, step: Annotated[NonNegative, Doc("size of the step, in units of the honest mean")] = 0.5
) -> Tensor:
    """d_hat - step mu: what the victim expects, less a part of its honest neighbours' mean (Section V-D).

    A victim that predicts nothing is met with (1 - step) mu.
    """
    mu = view.honest.mean(dim=0)
    expected = mu if view.expected is None else view.expected
    return expected - step * mu


def _mean_and_perturbation(g: Tensor, direction: str) -> tuple[Tensor, Tensor]:
    mu = g.mean(dim=0)
    if direction == "std":
        return mu, g.std(dim=0, correction=0)
    if direction == "sign":
        return mu, mu.sign()
    return mu, torch.nn.functional.normalize(mu, dim=0)


def _squared_distances(g: Tensor) -> Tensor:
    # Differences, not a Gram matrix: late in training the updates are nearly equal and a Gram matrix cancels.
    return torch.cdist(g.double(), g.double(), compute_mode="donot_use_mm_for_euclid_dist").square()


ATTACKS: dict[str, Callable[..., Tensor]] = {
    "none": none,
    "sign_flip": sign_flip,
    "noise": noise,
    "scaling": scaling,
    "min_max": min_max,
    "min_sum": min_sum,
    "adaptive": adaptive,
}
