"""DisPFL: personal sparse models; only coordinates in both masks are averaged.

Dai, Shen, He, Tian and Tao, "DisPFL: Towards Communication-Efficient Personalized Federated Learning via
Decentralized Sparse Training", ICML 2022, Algorithm 1. A round there averages, trains, prunes and regrows;
here it trains, prunes, regrows and then averages, which is the same loop started one step later. As in the
authors' code, a model is sent with the mask under which it was trained, and the new mask is applied to the
average. Weights that have just regrown therefore do not enter averages as zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import cos, pi, prod
from typing import Annotated, Literal

import torch
from torch import Tensor

from rdpfl_sim.components.options import Doc, Fraction, PositiveFraction, round_up
from rdpfl_sim.methods.base import (
    ClientView,
    Diagnostics,
    Inbox,
    MessageStats,
    Outgoing,
    Report,
    RunInfo,
    State,
    Trained,
    TrainingTask,
    method,
    neighbour_share,
)
from rdpfl_sim.methods.gossip import ModelExchange, distances
from rdpfl_sim.vectors import clamp_finite, row_norms


@dataclass(frozen=True)
class DispflState(State):
    """Sparse models: w is zero outside the mask. `next_mask` is the mask after this round."""

    mask: Tensor  # (n, d)
    next_mask: Tensor  # (n, d)


@dataclass(frozen=True, eq=False)
class DispflReport(Report):
    """Share of the parameters in the mask, and the distance that neighbours moved the model."""

    density: Tensor  # (n,)
    moved: Tensor  # (n,)
    neighbour_share: Tensor  # (n,)


@method
class Dispfl(ModelExchange):
    """w <- mean of the x_j whose masks include a coordinate, times the client's own mask (DisPFL).

    The initial mask is random, with the layer densities of Erdos-Renyi-Kernel. After each training, the
    ceil(r nnz) smallest weights of every layer are pruned and as many zeros are regrown, where r = prune / 2
    (1 + cos(pi (t - 1) / T)) and t = 1, 2, ... is the client's own round.
    """

    batched = False

    def __init__(
        self,
        run: RunInfo,
        *,
        density: Annotated[PositiveFraction, Doc("fraction of weights in every client's mask")] = 0.5,
        prune: Annotated[Fraction, Doc("fraction of the mask that is replaced in the first round")] = 0.5,
        regrow: Annotated[
            Literal["gradient", "random"],
            Doc("where weights regrow: at the largest gradients (paper) or at random (authors' run script)"),
        ] = "gradient",
    ) -> None:
        self.layers = run.layers
        self.rounds = run.rounds
        self.densities = erk_densities([layer.shape for layer in run.layers], density)
        self.prune = prune
        self.regrow = regrow

    def init(self, w: Tensor, clients: Sequence[ClientView]) -> DispflState:
        """Draw a random mask for every client."""
        mask = torch.stack([self._initial_mask(w.shape[1], client) for client in clients]).to(w.device)
        return DispflState(w * mask, mask, mask)

    def training(self, state: State) -> TrainingTask:
        """Train the weights under the mask."""
        assert isinstance(state, DispflState)
        return TrainingTask(state.w, mask=state.mask)

    def payload(
        self, state: State, trained: Trained, clients: Sequence[ClientView]
    ) -> tuple[DispflState, Outgoing]:
        """Send the trained weights under the mask, and determine the next mask."""
        assert isinstance(state, DispflState)
        rows = zip(state.mask, trained.w, clients, strict=True)
        next_mask = torch.stack([self._next_mask(*row) for row in rows])
        return replace(state, next_mask=next_mask), Outgoing(trained.w, state.mask)

    def update(
        self, state: State, trained: Trained, inbox: Inbox, clients: Sequence[ClientView]
    ) -> tuple[DispflState, Diagnostics]:
        """Average each coordinate of the new mask over all models whose masks include it, or set it to 0."""
        assert isinstance(state, DispflState)
        x = trained.w
        w = torch.zeros_like(x)
        for vectors, share in zip([x, *inbox.vectors.unbind(dim=1)], _shares(state, inbox), strict=True):
            w = w + vectors * share
        w = clamp_finite(w).masked_fill(~state.next_mask, 0.0)  # also replaces NaN from a diverged model
        moved = row_norms(w - x.masked_fill(~state.next_mask, 0.0))  # without the effect of pruning
        report = DispflReport(
            density=state.mask.float().mean(dim=1).double(),
            moved=moved,
            neighbour_share=neighbour_share(moved, row_norms(x - state.w)),
        )
        return DispflState(w, state.next_mask, state.next_mask), report

    def message_stats(
        self, state: State, trained: Trained, inbox: Inbox, clients: Sequence[ClientView]
    ) -> MessageStats:
        """Return the distance of each model from the client's own, and its mean weight over the new mask."""
        assert isinstance(state, DispflState)
        sizes = state.next_mask.sum(dim=1)
        weights = [share.sum(dim=1) / sizes for share in _shares(state, inbox)[1:]]
        assert inbox.masks is not None
        sparse = replace(inbox, vectors=inbox.vectors * inbox.masks)
        return MessageStats(distances(trained.w, sparse), torch.stack(weights, dim=1))

    def _initial_mask(self, size: int, client: ClientView) -> Tensor:
        generator = torch.Generator().manual_seed(client.seed("mask"))
        mask = torch.zeros(size, dtype=torch.bool)
        for layer, density in zip(self.layers, self.densities, strict=True):
            layer_size = prod(layer.shape)
            num_kept = max(1, round(density * layer_size))
            mask[layer.start + torch.randperm(layer_size, generator=generator)[:num_kept]] = True
        return mask

    def _next_mask(self, mask: Tensor, w: Tensor, client: ClientView) -> Tensor:
        """Prune the smallest weights and regrow as many, possibly the same ones; return the new mask."""
        # The authors' code counts rounds from 0, so the first round replaces the whole fraction `prune`.
        rate = self.prune / 2 * (1 + cos(pi * (client.round - 1) / self.rounds))
        if self.regrow == "gradient":
            priority = client.batch().gradient(w).abs()
        else:
            generator = torch.Generator().manual_seed(client.seed("regrow"))
            priority = torch.rand(len(w), generator=generator).to(w.device)
        next_mask = mask.clone()
        for layer in self.layers:
            kept = next_mask[layer.span]
            sizes, priorities = w[layer.span].abs(), priority[layer.span]
            held = kept.nonzero().squeeze(1)
            num_replaced = round_up(rate * len(held))
            kept[held[sizes[held].argsort(stable=True)[:num_replaced]]] = False
            free = (~kept).nonzero().squeeze(1)
            kept[free[priorities[free].argsort(descending=True, stable=True)[:num_replaced]]] = True
        return next_mask


def _shares(state: DispflState, inbox: Inbox) -> list[Tensor]:
    """Return the share (n, d) of every model per coordinate, the client's own first; less for stale ones."""
    weights = [state.mask.float()]
    if inbox.masks is not None:
        stale = inbox.weights.float().unsqueeze(2)
        weights += (inbox.masks * stale).unbind(dim=1)
    total = torch.stack(weights).sum(dim=0)
    keep = state.next_mask & (total > 0)
    return [torch.where(keep, weight / total, 0.0) for weight in weights]


def erk_densities(shapes: Sequence[Sequence[int]], density: float) -> list[float]:
    """Return the density of each layer, with mean `density` over all weights. Larger layers are sparser.

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
