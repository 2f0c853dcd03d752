"""Attacks that need no information about other clients."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import torch
from annotated_types import Ge, Le
from torch import Tensor

from rdpfl_sim.attacks.view import View, as_update, attack
from rdpfl_sim.components.options import LARGE, Doc, NonNegative, Positive

Signed: TypeAlias = Annotated[float, Ge(-LARGE), Le(LARGE)]
Spread: TypeAlias = Annotated[NonNegative, Doc("standard deviation per coordinate")]


@attack(sends_own=True)
def none(view: View) -> Tensor:
    """u: the client's own update; the Byzantine client behaves honestly."""
    return view.own


@attack(poisons_labels=True, sends_own=True)
def label_flip(view: View) -> Tensor:
    """u: the client's own update, trained on flipped labels, y -> C - 1 - y (Fang et al. 2020)."""
    return view.own


@attack
def sign_flip(
    view: View, *, scale: Annotated[Positive, Doc("factor of the reversed update")] = 1.0
) -> Tensor:
    """-scale u: the client's own update, reversed (Yin et al. 2018)."""
    return as_update(view.changed(view.own, -scale), view)


@attack
def scaling(view: View, *, factor: Annotated[Signed, Doc("factor of the update")] = 10.0) -> Tensor:
    """factor u: amplified to dominate an average (Bagdasaryan et al. 2020 scale by the number of clients)."""
    return as_update(view.changed(view.own, factor), view)


@attack
def noise(view: View, *, sigma: Spread = 200.0) -> Tensor:
    """u + N(0, sigma^2 I): the client's own update plus noise (sigma as in Blanchard et al. 2017)."""
    return as_update(view.own + sigma * _standard_normal(view), view)


@attack
def random(view: View, *, sigma: Spread = 200.0) -> Tensor:
    """N(0, sigma^2 I): only Gaussian noise (Blanchard et al. 2017, with sigma = 200)."""
    return sigma * _standard_normal(view)


@attack
def constant(view: View, *, value: Annotated[Signed, Doc("value of every entry")] = 1.0) -> Tensor:
    """value (1, ..., 1): the same number in every entry (the same-value attack of Li et al. 2019)."""
    return torch.full_like(view.own, value)


@attack
def zero(view: View) -> Tensor:
    """(0, ..., 0), no change: moves an average towards the current model."""
    return torch.zeros_like(view.own) if view.origin is None else view.origin.clone()


@attack(sends_malformed=True)
def nan(view: View) -> Tensor:
    """(NaN, ..., NaN): the message of a broken client, which mailboxes reject."""
    return torch.full_like(view.own, torch.nan)


@attack(sends_malformed=True)
def inf(view: View) -> Tensor:
    """(inf, ..., inf): the message of a diverged client, which mailboxes reject."""
    return torch.full_like(view.own, torch.inf)


def _standard_normal(view: View) -> Tensor:
    generator = torch.Generator().manual_seed(view.seed)
    return torch.randn(view.own.shape, generator=generator).to(view.own)
