"""Algorithm 2 for many clients at once: `Rdpfl.update` with a row for each client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rdpfl_sim.maths.batched import aggregate_together, bb_coefficients, clip_rows, norms
from rdpfl_sim.maths.vectors import LARGEST, next_threshold
from rdpfl_sim.methods import base
from rdpfl_sim.methods.batching import Outcome
from rdpfl_sim.methods.directions import stack_together
from rdpfl_sim.methods.rdpfl_state import lemma_3, next_state

if TYPE_CHECKING:
    from rdpfl_sim.methods.rdpfl import Rdpfl


def update_alike(method: Rdpfl, cases: Sequence[base.Case]) -> list[Outcome]:
    """As `Rdpfl.update`, with a row for each client."""
    states: list[Any] = [case.state for case in cases]
    own = [case.own for case in cases]
    w = torch.stack([state.w for state in states])
    u = method.descent.directions(w, own)
    d_bar = aggregate_together(method.aggregator, stack_together(cases)).clamp_(-LARGEST, LARGEST)
    d_hat, betas = predict_alike(method, states, d_bar)
    delta = d_bar - d_hat
    delta_norms = norms(delta)
    drivers = [state.delta_norm for state in states] if method.threshold == "lagged" else delta_norms.tolist()
    taus = [
        next_threshold(state.tau, driver, method.alpha, method.c)
        for state, driver in zip(states, drivers, strict=True)
    ]
    clipped = torch.zeros(len(cases), dtype=torch.bool)
    if method.clip:
        delta, clipped = clip_rows(delta, delta_norms.new_tensor(taus), delta_norms)
    d = delta.add_(d_hat)
    d_norms = norms(d)
    d, bounded = clip_rows(d, torch.full_like(d_norms, method.max_norm), d_norms)
    if bounded.any():
        d_norms = torch.where(bounded, norms(d), d_norms)
    lemma_3(d_norms.max().item(), method.max_norm)
    u_norms = norms(u)
    w = method.descent.apply_together(w, u, d, own)
    lengths = u_norms.tolist(), d_norms.tolist()
    shares = map(method.descent.neighbour_share, *lengths)
    told = zip(
        *(*lengths, shares, delta_norms.tolist(), betas, taus),
        *(clipped.tolist(), bounded.tolist()),
        strict=True,
    )
    names = ("u_norm", "d_norm", "neighbour_share", "delta_norm", "beta", "tau", "clipped", "bounded")
    diagnostics = [dict(zip(names, row, strict=True)) for row in told]
    return [
        (next_state(state, w_i.clone(), d_bar_i.clone(), report["tau"], report["delta_norm"]), report)
        for state, w_i, d_bar_i, report in zip(states, w, d_bar, diagnostics, strict=True)
    ]


def predict_alike(method: Rdpfl, states: Sequence[Any], d_bar: Tensor) -> tuple[Tensor, list[float | None]]:
    """As `Rdpfl.predict`, with a row for each client; without a prediction, d_hat = d_bar."""
    nothing: list[float | None] = [None] * len(states)
    if not method.remembers(states[0]):
        return d_bar, nothing
    d_bar_1 = torch.stack([state.d_bar_1 for state in states])
    if not method.extrapolates(states[0]):
        return d_bar_1, nothing
    s = torch.stack([state.w_1 for state in states])
    s -= torch.stack([state.w_2 for state in states])
    betas = bb_coefficients(
        s, d_bar_1 - torch.stack([state.d_bar_2 for state in states]), method.epsilon, method.beta_limit
    )
    sound = norms(s).isfinite()
    moved = s.mul_(betas.to(s.dtype).unsqueeze(1)).add_(d_bar_1).clamp_(-LARGEST, LARGEST)
    found = [beta if yes else None for beta, yes in zip(betas.tolist(), sound.tolist(), strict=True)]
    return torch.where(sound.unsqueeze(1), moved, d_bar_1), found
