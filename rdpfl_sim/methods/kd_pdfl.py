"""KD-PDFL: neighbours are weighted by how similar the outputs of their models are on the own data.

Jeong and Kountouris, "Personalized Decentralized Federated Learning with Knowledge Distillation", IEEE ICC
2023. The paper compares outputs by a Wasserstein distance and weights models by their similarity.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, isfinite
from typing import Annotated, Literal

import torch
from torch import Tensor
from torch.nn.functional import kl_div, log_softmax

from rdpfl_sim.components.options import Doc, Positive
from rdpfl_sim.methods.base import Batch, ClientView, Inbox, RunInfo
from rdpfl_sim.methods.gossip import Gossip
from rdpfl_sim.methods.registry import method


@method
class KdPdfl(Gossip):
    """w <- sum_j c_j x_j, c_j ~ exp(-D_j / scale), D_j = distance of the outputs on an own batch (KD-PDFL).

    The own model takes part, at distance 0. A model whose outputs are not finite has no share.
    """

    batched = False

    def __init__(
        self,
        run: RunInfo,
        *,
        distance: Annotated[
            Literal["wasserstein", "kl"],
            Doc("between the softened outputs: of each class over the batch, or of each example"),
        ] = "wasserstein",
        temperature: Annotated[Positive, Doc("softens the outputs, as in distillation")] = 2.0,
        scale: Annotated[Positive, Doc("the distance at which a model counts 1/e as much as the own")] = 0.1,
    ) -> None:
        self.distance = wasserstein if distance == "wasserstein" else divergence
        self.temperature = temperature
        self.scale = scale

    def shares(self, x: Tensor, inbox: Inbox, clients: Sequence[ClientView]) -> Tensor:
        """Return the similarities, divided by their sum with that of the own model, which is 1."""
        [client] = clients
        batch = client.batch()
        own = self._outputs(batch, x[0])
        similarities = []
        for vector, weight in zip(inbox.vectors[0], inbox.weights[0].tolist(), strict=True):
            distance = self.distance(own, self._outputs(batch, vector))
            similarity = exp(-max(distance, 0.0) / self.scale) if isfinite(distance) else 0.0
            similarities.append(weight * similarity)
        total = 1.0 + sum(similarities)
        shares = [[similarity / total for similarity in similarities]]
        return torch.tensor(shares, dtype=torch.float64, device=x.device)

    def _outputs(self, batch: Batch, w: Tensor) -> Tensor:
        """Return logarithms of the softened class probabilities, (n, classes)."""
        return log_softmax(batch.logits(w) / self.temperature, dim=1)


def wasserstein(own: Tensor, other: Tensor) -> float:
    """Return the mean over classes of the W1 distance between the probabilities of the class.

    In one dimension W1 is the mean difference of the sorted values.
    """
    return (own.exp().sort(dim=0).values - other.exp().sort(dim=0).values).abs().mean().item()


def divergence(own: Tensor, other: Tensor) -> float:
    """Return the mean over examples of KL(own || other)."""
    return kl_div(other, own, reduction="batchmean", log_target=True).item()
