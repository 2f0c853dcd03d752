"""DisPFL: personal sparse models; only what two masks share is averaged.

Dai, Shen, He, Tian and Tao, "DisPFL: Towards Communication-Efficient Personalized Federated Learning via
Decentralized Sparse Training", ICML 2022, Algorithm 1. A round there averages, trains, prunes and regrows;
here it trains, prunes, regrows and then averages, which is the same loop begun one step later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, cos, pi, prod
from typing import Annotated, Literal

import torch
from torch import Tensor

from rdpfl_sim.maths.estimator import norm
from rdpfl_sim.maths.types import Local, Payload, Received, Work
from rdpfl_sim.methods import base
from rdpfl_sim.methods.gossip import distances
from rdpfl_sim.options import Doc, Fraction, PositiveFraction


@dataclass(frozen=True)
class State(base.State):
    """A sparse model: w is zero outside the mask. `sent` is the model that the client sent in this round."""

    mask: Tensor
    sent: Tensor


class Dispfl(base.Method):
    """w <- mean of the x_j whose masks hold a coordinate, times the own mask (DisPFL).

    The mask starts at random with the layer densities of Erdos-Renyi-Kernel. After each training the
    ceil(r nnz) smallest weights of every layer are pruned and as many zeros regrown, r = prune / 2
    (1 + cos(pi t / T)); t is the client's own round.
    """

    def __init__(
        self,
        settings: base.Settings,
        *,
        density: Annotated[PositiveFraction, Doc("fraction of the weights that every client has")] = 0.5,
        prune: Annotated[Fraction, Doc("fraction of them that is replaced in the first round")] = 0.5,
        regrow: Annotated[
            Literal["gradient", "random"],
            Doc("where weights regrow: at the largest gradients (the paper), or anywhere (its run script)"),
        ] = "gradient",
    ) -> None:
        self.layers = settings.layers
        self.rounds = settings.rounds
        self.densities = erk_densities([layer.shape for layer in settings.layers], density)
        self.prune = prune
        self.regrow = regrow

    def start(self, w: Tensor, home: base.Home) -> State:
        """A random mask of the client's own."""
        generator = torch.Generator().manual_seed(home.seed("mask"))
        mask = torch.zeros(len(w), dtype=torch.bool)
        for layer, density in zip(self.layers, self.densities, strict=True):
            size = prod(layer.shape)
            chosen = torch.randperm(size, generator=generator)[: max(1, round(density * size))]
            mask[layer.start + chosen] = True
        mask = mask.to(w.device)
        return State(w * mask, mask, w * mask)

    def work(self, state: base.State) -> Work:
        """K steps of the weights under the mask."""
        assert isinstance(state, State)
        return Work(state.w * state.mask, mask=state.mask)  # a round that was cut short leaves a new mask

    def outgoing(self, state: base.State, own: Local, home: base.Home) -> tuple[State, Payload]:
        """The trained weights under a mask that has moved on."""
        assert isinstance(state, State)
        mask = self._evolved(state.mask, own.w_tilde, home)
        sent = own.w_tilde * (mask & state.mask)  # what has regrown starts from zero
        return replace(state, mask=mask, sent=sent), Payload(sent, mask)

    def origin(self, state: base.State) -> Tensor | None:
        """The model before its training."""
        return state.w

    def update(
        self, state: base.State, own: Local, received: Sequence[Received], home: base.Home
    ) -> tuple[State, base.Diagnostics]:
        """At each coordinate of the own mask, the mean over all whose masks hold it."""
        assert isinstance(state, State)
        parts = [(state.sent, state.mask.to(state.sent)), *_weighted(received, state.sent)]
        total = torch.stack([weight for _, weight in parts]).sum(dim=0)
        w = torch.zeros_like(state.sent)
        for vector, weight in parts:
            w += vector * (weight / total.clamp(min=1.0))  # a mean in parts: the sum might overflow
        w *= state.mask
        moved = norm(w - state.sent)
        report = {"density": state.mask.float().mean().item(), "moved": moved}
        return State(w, state.mask, state.sent), report

    def inspect(
        self, state: base.State, own: Local, received: Sequence[Received], home: base.Home
    ) -> base.Inspection:
        """How far each model is from the own, and its mean weight over the own mask."""
        assert isinstance(state, State)
        weights = [weight[state.mask] for _, weight in _weighted(received, state.sent)]
        total = 1.0 + torch.stack(weights).sum(dim=0)
        shares = [(weight / total).mean().item() for weight in weights]
        return base.Inspection(distances(state.sent, received), None, shares)

    def _evolved(self, mask: Tensor, w: Tensor, home: base.Home) -> Tensor:
        """The mask without the smallest weights, and with as many other places."""
        rate = self.prune / 2 * (1 + cos(pi * min(home.round / self.rounds, 1.0)))
        if self.regrow == "gradient":
            promise = home.batch().gradient(w).abs()
        else:
            generator = torch.Generator().manual_seed(home.seed("regrow"))
            promise = torch.rand(len(w), generator=generator).to(w.device)
        evolved = mask.clone()
        for layer in self.layers:
            here = evolved[layer.place]
            num = min(ceil(rate * int(here.sum())), int((~here).sum()))
            size = w[layer.place].abs().masked_fill(~here, torch.inf)
            here[size.argsort(stable=True)[:num]] = False
            hope = promise[layer.place].masked_fill(here, -torch.inf)
            here[hope.argsort(descending=True, stable=True)[:num]] = True
        return evolved


def _weighted(received: Sequence[Received], own: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Every model that arrived, with its weight at each coordinate: its mask, less if it is stale."""
    found = []
    for message in received:
        assert message.mask is not None, "mailboxes refuse what has another form"
        found.append((message.vector, message.mask.to(own) * message.weight))
    return found


def erk_densities(shapes: Sequence[Sequence[int]], density: float) -> list[float]:
    """The densities of layers of these shapes, `density` over all: the larger a layer, the sparser.

    Erdos-Renyi-Kernel (Evci et al. 2020): proportional to sum(shape) / prod(shape), and at most 1.
    """
    sizes, raw = [prod(shape) for shape in shapes], [sum(shape) / prod(shape) for shape in shapes]
    dense: set[int] = set()
    while True:
        sparse = [place for place in range(len(shapes)) if place not in dense]
        budget = density * sum(sizes) - sum(sizes[place] for place in dense)
        share = budget / sum(raw[place] * sizes[place] for place in sparse) if sparse else 0.0
        full = {place for place in sparse if raw[place] * share >= 1}
        if not full:
            return [1.0 if place in dense else raw[place] * share for place in range(len(shapes))]
        dense |= full
