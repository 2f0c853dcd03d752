"""ClippedGossip: no neighbour can move a model by more than a radius.

He, Karimireddy and Jaggi, "Byzantine-Robust Decentralized Learning via ClippedGossip", arXiv:2202.01545.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from torch import Tensor

from rdpfl_sim.components.options import Doc, Positive, PositiveFraction
from rdpfl_sim.methods.base import ClientView, Inbox, RunInfo, method
from rdpfl_sim.methods.gossip import Gossip, distances, metropolis
from rdpfl_sim.vectors import square_root


@method
class ClippedGossip(Gossip):
    """w <- x + sum_j W_ij Clip(x_j - x; tau): gossip in which every move is clipped (ClippedGossip).

    The adaptive radius is tau = sqrt(sum_j W_ij |x_j - x|^2 / delta), summed over the honest neighbours.
    These are unknown. The sum therefore omits the farthest models, with at least a fraction delta of all
    received weight, but always includes the nearest model.
    """

    def __init__(
        self,
        run: RunInfo,
        *,
        radius: Annotated[
            Literal["adaptive"] | Positive,
            Doc("tau; 'adaptive' computes it from the distances of the neighbours"),
        ] = "adaptive",
        delta: Annotated[
            PositiveFraction, Doc("assumed weight of Byzantine neighbours, for the adaptive radius")
        ] = 0.3,
    ) -> None:
        self.radius = radius
        self.delta = delta

    def shares(self, x: Tensor, inbox: Inbox, clients: Sequence[ClientView]) -> Tensor:
        """Return W_ij min(1, tau / |x_j - x|); 0 for models at an infinite distance."""
        weights, lengths = metropolis(inbox, clients), distances(x, inbox)
        if self.radius == "adaptive":
            tau = self._adaptive_radius(weights, lengths)
        else:
            tau = torch.full_like(lengths[:, 0], float(self.radius))
        factors = torch.where(lengths > 0, (tau.unsqueeze(1) / lengths).clamp(max=1.0), 1.0)
        return (weights * factors).where(lengths.isfinite(), 0.0)

    def _adaptive_radius(self, weights: Tensor, lengths: Tensor) -> Tensor:
        """Return tau (n,)."""
        lengths, order = lengths.sort(dim=1, stable=True)
        weights = weights.gather(1, order)
        limit = (1 - self.delta) * weights.cumsum(dim=1)[:, -1:] + 1e-9  # allow for rounding
        counts = weights.cumsum(dim=1) <= limit
        counts[:, 0] = True
        squares = (weights * lengths**2).where(counts, 0.0)
        return square_root(squares.cumsum(dim=1)[:, -1] / self.delta)
