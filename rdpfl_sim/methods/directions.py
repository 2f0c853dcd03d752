"""What the methods that exchange descent directions have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Literal, TypeAlias

import torch
from torch import Tensor

from rdpfl_sim.components.choice import OneAfterOthers, OneOf
from rdpfl_sim.components.option_table import Component
from rdpfl_sim.components.options import LARGE, Doc, NonNegative, Positive
from rdpfl_sim.errors import OptionError
from rdpfl_sim.maths.aggregators import AGGREGATORS, Aggregator
from rdpfl_sim.maths.aggregators.aggregator import Chain
from rdpfl_sim.maths.aggregators.message_weights import message_weights, trims_less
from rdpfl_sim.maths.aggregators.preaggregators import PRE_AGGREGATORS
from rdpfl_sim.maths.batched import column
from rdpfl_sim.methods.base import Case, Inspection, neighbour_share
from rdpfl_sim.methods.exchange import Local, Received

AGGREGATION = OneAfterOthers(AGGREGATORS, others=OneOf(PRE_AGGREGATORS), combine=Chain)
AggregatorChoice: TypeAlias = Annotated[
    Aggregator,
    AGGREGATION,
    Doc("RobustAgg, over the neighbours' directions; a list begins with pre-aggregators"),
]
Collaboration: TypeAlias = Annotated[NonNegative, Doc("weight of the neighbourhood direction")]
Step: TypeAlias = Annotated[
    Literal["local"] | Positive,
    Doc("'local': gamma = coefficient * eta * K, so that lambda = 0 is local SGD; a number is gamma itself"),
]
Coefficient: TypeAlias = Annotated[Positive, Doc("the paper's global update coefficient, for step = 'local'")]


@dataclass(frozen=True)
class Descent:
    """The two ends of Algorithm 1: the local direction u, and the personalised step."""

    learning_rate: float
    lambda_: float
    step: Literal["local"] | float
    coefficient: float

    def __post_init__(self) -> None:
        if self.step != "local" and self.coefficient != 1.0:
            raise OptionError("coefficient", "belongs to step = 'local'; a number for step is gamma itself")

    def direction(self, w: Tensor, own: Local) -> Tensor:
        """u = (w - w~) / (eta K), the mean gradient along the K local steps (eq. local_direction)."""
        if own.direction is not None:
            return own.direction
        return (w - own.w_tilde).div_(self.learning_rate * own.num_steps)

    def directions(self, w: Tensor, own: Sequence[Local]) -> Tensor:
        """u of many clients, as rows."""
        return torch.stack([self.direction(start, one) for start, one in zip(w, own, strict=True)])

    def gamma(self, own: Local) -> float:
        """The step size, by either reading of the paper's global update coefficient (docs/paper.md, 4)."""
        if self.step == "local":
            return min(self.coefficient * self.learning_rate * own.num_steps, LARGE)  # float32 holds no more
        return float(self.step)

    def apply(self, w: Tensor, u: Tensor, d: Tensor | None, own: Local) -> Tensor:
        """w - gamma (u + lambda d) (eq. personalized_update); d = None stands for zero."""
        direction = u if d is None else torch.add(u, d, alpha=self.lambda_)
        return torch.add(w, direction, alpha=-self.gamma(own))

    def neighbour_share(self, u_norm: float, d_norm: float) -> float | None:
        """Return |lambda d| / |u|, the share of neighbours in the step."""
        return neighbour_share(self.lambda_ * d_norm, u_norm)

    def apply_together(self, w: Tensor, u: Tensor, d: Tensor, own: Sequence[Local]) -> Tensor:
        """w - gamma (u + lambda d) of many clients, as rows; u and d are overwritten."""
        gammas = column([self.gamma(one) for one in own], w)
        return torch.sub(w, torch.add(u, d, alpha=self.lambda_, out=u).mul_(gammas), out=d)


def stack(received: Sequence[Received]) -> Tensor:
    """The received directions as rows, each scaled by its weight.

    A stale direction with weight below 1 is shrunk towards zero, "no opinion", which every aggregator
    understands; scaling by staleness follows Zhang et al. 2016 (staleness-aware asynchronous SGD).
    """
    return torch.stack([m.vector if m.weight == 1.0 else m.vector * m.weight for m in received])


def stack_together(cases: Sequence[Case]) -> Tensor:
    """The directions that n clients have received, m each, as a tensor (m, n, d); scaled by their weights."""
    columns = zip(*(case.received for case in cases), strict=True)
    rows = stack([message for column in columns for message in column])
    return rows.view(-1, len(cases), rows.shape[1])


def when_trimmed_less(method: Component) -> Callable[[int], bool]:
    """For a number of messages n: whether the method's trimmed mean cuts fewer than ceil(trim n) per side."""
    aggregator = getattr(method, "aggregator", None)
    if not isinstance(aggregator, Component):
        return lambda num_messages: False
    return cache(partial(trims_less, aggregator.bind()))


def inspect(u: Tensor, d_hat: Tensor | None, aggregator: Aggregator, messages: Tensor) -> Inspection:
    """How far each message is from the own update and from the prediction, and how much it counts."""
    weights = message_weights(aggregator, messages, u)
    return Inspection(
        distance_to_own=distances(messages, u),
        distance_to_predicted=None if d_hat is None else distances(messages, d_hat),
        weight=None if weights is None else weights.tolist(),
    )


def distances(messages: Tensor, point: Tensor) -> list[float]:
    """|u_j - point| of every message."""
    lengths: list[float] = torch.linalg.vector_norm(messages - point, dim=1, dtype=torch.float64).tolist()
    return lengths
