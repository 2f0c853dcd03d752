"""Attacks that are as far from the honest mean as possible without being outliers."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import torch
from torch import Tensor

from rdpfl_sim.components.options import Doc
from rdpfl_sim.maths.attacks.view import View, as_update, attack, moments, unit
from rdpfl_sim.maths.distances import blocks, squared_distances
from rdpfl_sim.maths.vectors import square_root

Direction: TypeAlias = Annotated[
    Literal["unit_vec", "sign", "std"],
    Doc("the perturbation p: mu/|mu|, sign(mu) or sigma; of models, mu is the mean change"),
]


@attack(needs="honest", collective=True)
def min_max(view: View, *, direction: Direction = "std") -> Tensor:
    """mu - gamma p, no farther from any honest update than the largest distance between honest updates.

    The largest gamma with max_i |m - g_i|^2 <= max_ij |g_i - g_j|^2 (Shejwalkar and Houmansadr, NDSS 2021).
    Each constraint is a quadratic in gamma that 0 satisfies, so gamma is the least of their larger roots.
    """
    g = view.honest
    mu, p = _mean_and_perturbation(view, direction)
    a = p.square().sum()
    if a == 0:
        return as_update(mu, view)
    b = torch.stack([(m - rows) @ q for rows, m, q in blocks(g, mu, p)]).sum(dim=0)
    slack = (squared_distances(g).max() - _squared_distances_to(mu, g)).clamp(min=0)
    gamma = ((b + square_root(b.square() + a * slack)) / a).min()
    return as_update(mu - gamma * p, view)


@attack(needs="honest", collective=True)
def min_sum(
    view: View,
    *,
    direction: Direction = "std",
    budget: Annotated[
        Literal["min", "max"], Doc("min: smallest sum (the authors' code); max: largest sum (the paper)")
    ] = "min",
) -> Tensor:
    """mu - gamma p; its sum of squared distances to honest updates is at most that of an honest update.

    The largest gamma with sum_i |m - g_i|^2 <= min_i sum_j |g_i - g_j|^2 (Shejwalkar and Houmansadr 2021).
    For every x, sum_j |x - g_j|^2 = h |x - mu|^2 + sum_j |mu - g_j|^2, so the constraint is
    |m - mu| <= min_i |g_i - mu|: gamma = min_i |g_i - mu| / |p|.
    """
    g = view.honest
    mu, p = _mean_and_perturbation(view, direction)
    a = p.square().sum()
    if a == 0:
        return as_update(mu, view)
    squares = _squared_distances_to(mu, g)
    gamma = square_root((squares.min() if budget == "min" else squares.max()) / a)
    return as_update(mu - gamma * p, view)


def _mean_and_perturbation(view: View, direction: str) -> tuple[Tensor, Tensor]:
    """Return mu and p. The perturbations unit_vec and sign are those of the change mu - o."""
    mu, sigma = moments(view.honest)
    change = mu if view.origin is None else mu - view.origin.double()
    return mu, {"unit_vec": unit(change), "sign": change.sign(), "std": sigma}[direction]


def _squared_distances_to(x: Tensor, g: Tensor) -> Tensor:
    """Return |x - g_i|^2 for every i, in float64."""
    return torch.stack([(y - rows).square().sum(dim=1) for rows, y in blocks(g, x)]).sum(dim=0)
