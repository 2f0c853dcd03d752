"""Attacks that are as far from the honest mean as possible without being outliers."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import torch
from torch import Tensor

from rdpfl_sim.aggregators import mean
from rdpfl_sim.attacks.view import View, as_update, attack, moments, unit
from rdpfl_sim.components.options import Count, Doc, NonNegative, Positive
from rdpfl_sim.vectors import blocks, square_root, squared_distances

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


@attack(needs="victim")
def adaptive(
    view: View, *, step: Annotated[NonNegative, Doc("size of the step, in units of the honest mean")] = 0.5
) -> Tensor:
    """d_hat - step mu: the victim's prediction minus a part of its honest neighbours' mean (Section V-D).

    A victim without a prediction receives (1 - step) mu.
    """
    mu = mean(view.honest)
    expected = mu if view.expected is None else view.expected
    change = mu if view.origin is None else mu - view.origin.double()
    return as_update(expected - step * change, view)


@attack(needs="victim")
def dissensus(
    view: View,
    *,
    epsilon: Annotated[Positive, Doc("1 cancels the effect of honest neighbours; above 1 reverses it")] = 1.0,
) -> Tensor:
    """x - epsilon sum_j (g_j - x) / f: prevents consensus of a victim at x with its h honest neighbours.

    The f attackers among its neighbours share the effect. He, Karimireddy and Jaggi 2022, with equal gossip
    weights. If the victim's own update is unknown, x = mu.
    """
    mu = mean(view.honest).double()
    x = mu if view.victim is None else view.victim
    return as_update(x - epsilon * len(view.honest) / view.num_byzantine * (mu - x), view)


@attack(needs="honest")
def mimic(
    view: View,
    *,
    warmup: Annotated[Count, Doc("rounds in which the attacker may change its target")] = 10,
) -> Tensor:
    """g_k, the update of the honest client k = argmax_i <z, g_i>; z is the direction of largest variance.

    Copies of an honest update cannot be distinguished from it and give it too much weight (Karimireddy et al.
    2022). In round t of the warm-up, m is the running mean of the honest updates, and z takes a step of
    online power iteration: z <- (t - 1) z + y / |y|, normalised, with y = sum_i (g_i - m) <g_i - m, z>. After
    the warm-up, k is fixed. If the update of k is unknown, the argmax over the others is copied. Without any
    honest update, the attacker sends its own. The initial z is the g_i farthest from the mean, so that
    attackers with the same observations find the same k.
    """
    g, memory = view.honest, view.memory
    if not view.ids:
        return view.own
    learning = memory.get("t", 0) < warmup
    if learning:
        _learn_direction(g, memory)
    elif memory["target"] in view.ids:
        return g[view.ids.index(memory["target"])].clone()
    k = int((g.double() @ memory["z"]).argmax())
    if learning:
        memory["target"] = view.ids[k]
    return g[k].clone()


def _learn_direction(g: Tensor, memory: dict[str, Any]) -> None:
    """Take a step of the power iteration of `mimic`; `memory` contains round t, mean m and direction z."""
    t = memory.get("t", 0) + 1
    mu, _ = moments(g)
    m = mu if t == 1 else memory["m"] + (mu - memory["m"]) / t
    x = g - m
    z = memory.get("z", torch.zeros_like(m))
    if not z.any():  # the first round, or all updates so far were equal
        z = unit(x[x.square().sum(dim=1).argmax()])
    y = (x @ z) @ x
    memory.update(t=t, m=m, z=unit((t - 1) * z + unit(y)))
