"""The attack that sends vectors near the victim's prediction."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from rdpfl_sim.components.options import Doc, NonNegative
from rdpfl_sim.maths.aggregators import mean
from rdpfl_sim.maths.attacks.view import View, as_update, attack


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
