"""KD-PDFL: neighbours are weighted by the similarity of their models' outputs on the client's own data.

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
from rdpfl_sim.methods.base import Batch, ClientView, Inbox, RunInfo, method
from rdpfl_sim.methods.gossip import Gossip


@method
class KdPdfl(Gossip):
    """w <- sum_j c_j x_j, c_j ~ exp(-D_j / scale), D_j = distance of the outputs on own data (KD-PDFL).

    The client's own model is included, at distance 0. A model whose outputs are not finite has no share.
    """

    batched = False

    def __init__(
        self,
        run: RunInfo,
        *,
        distance: Annotated[
            Literal["wasserstein", "kl"],
            Doc("distance between softened outputs: per class over the batch, or per example"),
        ] = "wasserstein",
        temperature: Annotated[Positive, Doc("softens the outputs, as in distillation")] = 2.0,
        scale: Annotated[Positive, Doc("distance at which a model has 1/e of the own model's weight")] = 0.1,
    ) -> None:
        self.distance = wasserstein if distance == "wasserstein" else divergence
        self.temperature = temperature
        self.scale = scale

    def shares(self, x: Tensor, inbox: Inbox, clients: Sequence[ClientView]) -> Tensor:
        """Return the similarities divided by their sum, which includes 1 for the client's own model."""
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
