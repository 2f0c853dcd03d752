"""The attack that copies one honest client."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from torch import Tensor

from rdpfl_sim.components.options import Count, Doc
from rdpfl_sim.maths.attacks.view import View, attack, moments, unit


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
