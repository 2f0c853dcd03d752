"""DisPFL: personal sparse models; only what two masks share is averaged.

Dai, Shen, He, Tian and Tao, "DisPFL: Towards Communication-Efficient Personalized Federated Learning via
Decentralized Sparse Training", ICML 2022, Algorithm 1. A round there averages, trains, prunes and regrows;
here it trains, prunes, regrows and then averages, which is the same loop begun one step later. As in the
authors' code a model is sent with the mask under which it was trained, so that nothing that has just regrown
votes with a zero, and the new mask is applied to the average.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import cos, pi, prod
from typing import Annotated, Literal

import torch
from torch import Tensor

from rdpfl_sim.components.options import Doc, Fraction, PositiveFraction
from rdpfl_sim.maths.vectors import norm
from rdpfl_sim.methods import base
from rdpfl_sim.methods.exchange import Local, Payload, Received, Work
from rdpfl_sim.methods.gossip import ModelExchange, distances, finite
from rdpfl_sim.methods.registry import method
from rdpfl_sim.rounding import round_up


@dataclass(frozen=True)
class State(base.State):
    """A sparse model: w is zero outside the mask. `next_mask` is that of the model after this round."""

    mask: Tensor
    next_mask: Tensor


@method
class Dispfl(ModelExchange):
    """w <- mean of the x_j whose masks hold a coordinate, times the own mask (DisPFL).

    The mask starts at random with the layer densities of Erdos-Renyi-Kernel. After each training the
    ceil(r nnz) smallest weights of every layer are pruned and as many zeros regrown, r = prune / 2
    (1 + cos(pi (t - 1) / T)); t = 1, 2, ... is the client's own round.
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
        return State(w * mask, mask, mask)

    def work(self, state: base.State) -> Work:
        """K steps of the weights under the mask."""
        assert isinstance(state, State)
        return Work(state.w, mask=state.mask)

    def outgoing(self, state: base.State, own: Local, home: base.Home) -> tuple[State, Payload]:
        """The trained weights under the mask; then the mask moves on."""
        assert isinstance(state, State)
        next_mask = self._evolved(state.mask, own.w_tilde, home)
        return replace(state, next_mask=next_mask), Payload(own.w_tilde, state.mask)

    def update(
        self, state: base.State, own: Local, received: Sequence[Received], home: base.Home
    ) -> tuple[State, base.Diagnostics]:
        """At each coordinate of the new mask, the mean over all whose masks hold it; zero if none does."""
        assert isinstance(state, State)
        x = own.w_tilde
        w = torch.zeros_like(x)
        models = [x, *(message.vector for message in received)]
        for vector, share in zip(models, _shares(state, received), strict=True):
            w += vector * share
        w = finite(w).masked_fill_(~state.next_mask, 0.0)  # also where a diverged model is no number
        moved = norm(w - x.masked_fill(~state.next_mask, 0.0))  # pruning is none of the neighbours' doing
        report = {
            "density": state.mask.float().mean().item(),
            "moved": moved,
            "neighbour_share": base.neighbour_share(moved, norm(x - state.w)),
        }
        return State(w, state.next_mask, state.next_mask), report

    def inspect(
        self, state: base.State, own: Local, received: Sequence[Received], home: base.Home
    ) -> base.Inspection:
        """How far each model is from the own, and its mean weight over the new mask."""
        assert isinstance(state, State)
        size = int(state.next_mask.sum())
        weights = [share.sum().item() / size for share in _shares(state, received)[1:]]
        sparse = [replace(m, vector=m.vector * _mask(m)) for m in received]
        return base.Inspection(distances(own.w_tilde, sparse), None, weights)

    def _evolved(self, mask: Tensor, w: Tensor, home: base.Home) -> Tensor:
        """The mask without the smallest weights, and with as many free places, those just freed included."""
        # The authors' code counts rounds from 0, so that the first one replaces the whole fraction `prune`.
        rate = self.prune / 2 * (1 + cos(pi * (home.round - 1) / self.rounds))
        if self.regrow == "gradient":
            promise = home.batch().gradient(w).abs()
        else:
            generator = torch.Generator().manual_seed(home.seed("regrow"))
            promise = torch.rand(len(w), generator=generator).to(w.device)
        evolved = mask.clone()
        for layer in self.layers:
            here, size, hope = evolved[layer.place], w[layer.place].abs(), promise[layer.place]
            held = here.nonzero().squeeze(1)
            num = round_up(rate * len(held))
            here[held[size[held].argsort(stable=True)[:num]]] = False
            free = (~here).nonzero().squeeze(1)
            here[free[hope[free].argsort(descending=True, stable=True)[:num]]] = True
        return evolved


def _shares(state: State, received: Sequence[Received]) -> list[Tensor]:
    """The share of every model, the own first, at each coordinate: by its mask, less if it is stale."""
    weights = [state.mask.float(), *(_mask(message) * message.weight for message in received)]
    total = torch.stack(weights).sum(dim=0)
    keep = state.next_mask & (total > 0)
    return [torch.where(keep, weight / total, 0.0) for weight in weights]


def _mask(message: Received) -> Tensor:
    assert message.mask is not None, "mailboxes refuse what has another form"
    return message.mask


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
