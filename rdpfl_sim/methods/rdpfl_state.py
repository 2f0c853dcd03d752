"""What a client remembers in R-DPFL from round to round."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rdpfl_sim.methods import base


@dataclass(frozen=True)
class State(base.State):
    """A client's model and the history of its estimator.

    The history holds the last two rounds in which messages arrived: d_bar (t-1 and t-2) and the model
    after each. A silent round leaves it as it is.
    """

    tau: float
    delta_norm: float = 0.0
    num_observed: int = 0
    d_bar_1: Tensor | None = None
    d_bar_2: Tensor | None = None
    w_1: Tensor | None = None
    w_2: Tensor | None = None


def next_state(state: State, w: Tensor, d_bar: Tensor, tau: float, delta_norm: float) -> State:
    """The state after a round in which messages arrived."""
    return State(
        w=w,
        tau=tau,
        delta_norm=delta_norm,
        num_observed=state.num_observed + 1,
        d_bar_1=d_bar,
        d_bar_2=state.d_bar_1,
        w_1=w,
        w_2=state.w_1,
    )


def lemma_3(d_norm: float, max_norm: float) -> None:
    """|d| <= G_d, an invariant."""
    assert d_norm <= max_norm * (1 + 1e-5), f"Lemma 3 is violated: |d| = {d_norm} > G_d = {max_norm}"
