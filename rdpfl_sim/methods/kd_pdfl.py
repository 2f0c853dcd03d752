"""KD-PDFL: neighbours count by how similarly their models answer on the own data.

Jeong and Kountouris, "Personalized Decentralized Federated Learning with Knowledge Distillation", IEEE ICC
2023. The paper compares outputs by a Wasserstein distance and weights models by their similarity.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, isfinite
from typing import Annotated, Literal

from torch import Tensor
from torch.nn.functional import kl_div, log_softmax

from rdpfl_sim.components.options import Doc, Positive
from rdpfl_sim.methods import base
from rdpfl_sim.methods.exchange import Received
from rdpfl_sim.methods.gossip import Gossip
from rdpfl_sim.methods.registry import method


@method
class KdPdfl(Gossip):
    """w <- sum_j c_j x_j, c_j ~ exp(-D_j / scale), D_j = distance of the answers on an own batch (KD-PDFL).

    The own model takes part, at distance 0. A model that answers nonsense (NaN) has no share.
    """

    def __init__(
        self,
        settings: base.Settings,
        *,
        distance: Annotated[
            Literal["wasserstein", "kl"],
            Doc("between the softened answers: of each class over the batch, or of each example"),
        ] = "wasserstein",
        temperature: Annotated[Positive, Doc("softens the answers, as in distillation")] = 2.0,
        scale: Annotated[Positive, Doc("the distance at which a model counts 1/e as much as the own")] = 0.1,
    ) -> None:
        self.distance = wasserstein if distance == "wasserstein" else divergence
        self.temperature = temperature
        self.scale = scale

    def shares(self, x: Tensor, received: Sequence[Received], home: base.Home) -> list[float]:
        """The similarities, divided by their sum with that of the own model, which is 1."""
        batch = home.batch()
        own = self._answers(batch, x)
        similarities = []
        for message in received:
            distance = self.distance(own, self._answers(batch, message.vector))
            similar = exp(-max(distance, 0.0) / self.scale) if isfinite(distance) else 0.0
            similarities.append(message.weight * similar)
        total = 1.0 + sum(similarities)
        return [similarity / total for similarity in similarities]

    def _answers(self, batch: base.Batch, w: Tensor) -> Tensor:
        """Logarithms of the softened class probabilities, (n, classes)."""
        return log_softmax(batch.logits(w) / self.temperature, dim=1)


def wasserstein(own: Tensor, other: Tensor) -> float:
    """The mean over classes of the W1 distance between the probabilities that each model gives the class.

    In one dimension W1 is the mean difference of the sorted values.
    """
    return (own.exp().sort(dim=0).values - other.exp().sort(dim=0).values).abs().mean().item()


def divergence(own: Tensor, other: Tensor) -> float:
    """The mean over examples of KL(own || other)."""
    return kl_div(other, own, reduction="batchmean", log_target=True).item()
