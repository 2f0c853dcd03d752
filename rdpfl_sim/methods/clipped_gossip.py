"""ClippedGossip: nobody can pull farther than a radius.

He, Karimireddy and Jaggi, "Byzantine-Robust Decentralized Learning via ClippedGossip", arXiv:2202.01545.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, sqrt
from typing import Annotated, Literal

from torch import Tensor

from rdpfl_sim.components.options import Doc, Positive, PositiveFraction
from rdpfl_sim.methods import base
from rdpfl_sim.methods.exchange import Received
from rdpfl_sim.methods.gossip import Gossip, distances, metropolis
from rdpfl_sim.methods.registry import method


@method
class ClippedGossip(Gossip):
    """w <- x + sum_j W_ij Clip(x_j - x; tau): gossip in which every pull is clipped (ClippedGossip).

    The adaptive radius is tau = sqrt(sum_j W_ij |x_j - x|^2 / delta), summed over the honest neighbours.
    Nobody knows these: the farthest models are left out, with at least delta of all weight that arrived; the
    nearest always counts.
    """

    def __init__(
        self,
        settings: base.Settings,
        *,
        radius: Annotated[
            Literal["adaptive"] | Positive,
            Doc("tau; 'adaptive' finds it from the distances of the neighbours"),
        ] = "adaptive",
        delta: Annotated[
            PositiveFraction, Doc("assumed weight of Byzantine neighbours, for the adaptive radius")
        ] = 0.3,
    ) -> None:
        self.radius = radius
        self.delta = delta

    def shares(self, x: Tensor, received: Sequence[Received], home: base.Home) -> list[float]:
        """W_ij min(1, tau / |x_j - x|)."""
        weights, lengths = metropolis(received, home), distances(x, received)
        tau = self._adaptive(weights, lengths) if self.radius == "adaptive" else float(self.radius)
        return [
            weight * min(1.0, tau / length) if 0 < length < inf else weight * (length == 0)
            for weight, length in zip(weights, lengths, strict=True)
        ]

    def _adaptive(self, weights: Sequence[float], lengths: Sequence[float]) -> float:
        total, trusted, limit = 0.0, 0.0, (1 - self.delta) * sum(weights) + 1e-9  # for rounding
        for place, (length, weight) in enumerate(sorted(zip(lengths, weights, strict=True))):
            trusted += weight
            if place == 0 or trusted <= limit:
                total += weight * length**2
        return sqrt(total / self.delta)
