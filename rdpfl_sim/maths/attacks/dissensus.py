"""The attack that prevents consensus of a client with its neighbours."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from rdpfl_sim.components.options import Doc, Positive
from rdpfl_sim.maths.aggregators import mean
from rdpfl_sim.maths.attacks.view import View, as_update, attack


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
