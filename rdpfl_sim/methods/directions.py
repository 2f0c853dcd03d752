"""Exchange of descent directions: the local direction u, and the personalised step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from operator import mul
from typing import Annotated, Literal, TypeAlias

import torch
from torch import Tensor

from rdpfl_sim.aggregators import (
    AGGREGATORS,
    PRE_AGGREGATORS,
    Aggregation,
    Aggregator,
    PreAggregator,
)
from rdpfl_sim.aggregators.aggregator import FixedSeed
from rdpfl_sim.components.options import LARGE, Doc, NonNegative, Positive
from rdpfl_sim.components.schema import Component, OneOf
from rdpfl_sim.errors import OptionError, PluginError
from rdpfl_sim.methods.base import (
    ClientView,
    Inbox,
    MessageStats,
    Method,
    Outgoing,
    Report,
    State,
    Trained,
    neighbour_share,
)
from rdpfl_sim.vectors import message_distances, row_norms

Lambda: TypeAlias = Annotated[NonNegative, Doc("weight of the neighbourhood direction")]
StepSize: TypeAlias = Annotated[
    Literal["local"] | Positive,
    Doc(
        "'local': gamma = coefficient * eta_t * K, so that lambda = 0 is local SGD; a number is gamma itself"
    ),
]
Coefficient: TypeAlias = Annotated[Positive, Doc("the paper's global update coefficient, for step = 'local'")]


@dataclass(frozen=True, eq=False)
class StepReport(Report):
    """|u|, |d| and |lambda d| / |u|, the step due to neighbours."""

    u_norm: Tensor  # (n,)
    d_norm: Tensor  # (n,)
    neighbour_share: Tensor  # (n,)


@dataclass(frozen=True)
class PersonalStep:
    """The first and last step of Algorithm 1: the local direction u, and w <- w - gamma (u + lambda d)."""

    lambda_: float
    step: Literal["local"] | float
    coefficient: float

    def __post_init__(self) -> None:
        if self.step != "local" and self.coefficient != 1.0:
            raise OptionError("coefficient", "requires step = 'local'; a number for step is gamma itself")

    def direction(self, w: Tensor, trained: Trained) -> Tensor:
        """Return u = (w - w~) / (eta_t K), the mean gradient along the K local steps (eq. local_direction).

        The executor `stacked` computes it in advance for all clients of a batch.
        """
        if trained.direction is not None:
            return trained.direction
        lengths = map(mul, trained.learning_rates, trained.num_steps)
        return (w - trained.w).div_(_column([*lengths], w))

    def gamma(self, learning_rate: float, num_steps: int) -> float:
        """Return a client's step size; docs/understand/paper.md, item 4, explains the two readings."""
        if self.step == "local":  # limited to LARGE because of float32
            return min(self.coefficient * learning_rate * num_steps, LARGE)
        return float(self.step)

    def apply(self, w: Tensor, u: Tensor, d: Tensor | None, trained: Trained) -> Tensor:
        """Return w - gamma (u + lambda d) (eq. personalized_update); d = None means zero."""
        direction = u if d is None else torch.add(u, d, alpha=self.lambda_)
        gammas = map(self.gamma, trained.learning_rates, trained.num_steps)
        return w - direction * _column([*gammas], w)

    def report(self, u: Tensor, d_norm: Tensor) -> StepReport:
        """Return the report of the step."""
        u_norm = row_norms(u)
        return StepReport(u_norm, d_norm, neighbour_share(self.lambda_ * d_norm, u_norm))


class DirectionExchange(Method):
    """A method that sends local descent directions u and aggregates the received ones."""

    personal_step: PersonalStep
    aggregation: Aggregation

    def payload(
        self, state: State, trained: Trained, clients: Sequence[ClientView]
    ) -> tuple[State, Outgoing]:
        """Send the local descent directions u."""
        return state, Outgoing(self.personal_step.direction(state.w, trained))

    def message_stats(
        self, state: State, trained: Trained, inbox: Inbox, clients: Sequence[ClientView]
    ) -> MessageStats:
        """Return distances from u and from the prediction, if any, and weights in the aggregate."""
        u, messages = self.personal_step.direction(state.w, trained), weighted_messages(inbox)
        predicted = self.predicted_direction(state)
        return MessageStats(
            message_distances(messages, u),
            self.aggregation.shares(messages, u, clients),
            None if predicted is None else message_distances(messages, predicted),
        )


def weighted_messages(inbox: Inbox) -> Tensor:
    """Return the received directions (n, m, d), each scaled by its weight.

    A stale direction with a weight below 1 is shrunk towards zero, which every aggregator reads as no change.
    Scaling by staleness follows Zhang et al. 2016 (staleness-aware asynchronous SGD).
    """
    if inbox.all_fresh:
        return inbox.vectors
    return inbox.vectors * inbox.weights.to(inbox.vectors.dtype).unsqueeze(2)


def _column(values: Sequence[float], like: Tensor) -> Tensor:
    """Return one number per row as a column (n, 1) with the type and device of `like`."""
    return torch.tensor(values, dtype=torch.float64, device=like.device).to(like.dtype).unsqueeze(1)


MAX_COMPARED = 32
"""With more messages per client, aggregators are not compared with the mean."""

SCALES = (1.0, 1e-3, 1e3)
"""Sizes of the entries, and of an outlier, with which aggregators are compared with the mean."""

AGGREGATOR = OneOf(
    AGGREGATORS,
    if_list="must be one aggregator, not a list; pre-aggregators belong in method.pre_aggregators",
)
AggregatorChoice: TypeAlias = Annotated[
    Aggregator, AGGREGATOR, Doc("RobustAgg, over the neighbours' directions")
]
PreAggregators: TypeAlias = Annotated[
    Sequence[Annotated[PreAggregator, OneOf(PRE_AGGREGATORS)]],
    Doc("pre-aggregators, applied in this order before the aggregator"),
]


def aggregation_components(method: Component) -> dict[str, Component]:
    """Return the pre-aggregators and the aggregator of a method by path, in order of application.

    Empty if the method does not aggregate with these components.
    """
    aggregator = getattr(method, "aggregator", None)
    if not isinstance(aggregator, Component):
        return {}
    before = getattr(method, "pre_aggregators", ())
    return {
        **{f"method.pre_aggregators[{index}]": component for index, component in enumerate(before)},
        "method.aggregator": aggregator,
    }


def when_too_few(method: Component) -> Callable[[int], bool]:
    """Return a function of n: whether n messages are too few for the options of the aggregator."""
    components = [component.bind() for component in aggregation_components(method).values()]
    if not components:
        return lambda num_messages: False
    *before, last = components
    return cache(Aggregation(last, before).too_few)


def unknown_weights(method: Component) -> Iterator[str]:
    """Yield a warning for each aggregator or pre-aggregator that does not declare message weights."""
    for path, component in aggregation_components(method).items():
        registry = AGGREGATORS if path == "method.aggregator" else PRE_AGGREGATORS
        if not registry.facts(component.name).has_weights:
            yield (
                f"{path}: {type(component).plugin} declares no weights, so telemetry has no message weights; "
                f"see the argument `weights` of @{registry.kind}"
            )


def never_differs_from_mean(method: Component, max_messages: int) -> Iterator[str]:
    """Yield a warning if the aggregate of at most `max_messages` messages is always their mean."""
    components = aggregation_components(method).values()
    names = [component.name for component in components]
    if names in ([], ["mean"]) or not 0 < max_messages <= MAX_COMPARED:
        return
    *before, last = (component.bind() for component in components)
    try:
        if not all(_is_mean(Aggregation(last, before), num) for num in range(max_messages, 0, -1)):
            return
    except (OptionError, PluginError):  # the run reports it if its messages cause it
        return
    outcome = (
        "one message is this message"
        if max_messages == 1
        else f"at most {max_messages} messages is their mean"
    )
    yield f"method.aggregator: {', then '.join(map(repr, names))} of {outcome}"


def _is_mean(aggregation: Aggregation, num_messages: int) -> bool:
    """Return whether the aggregate is the mean for random messages of several sizes, also with an outlier."""
    generator = torch.Generator().manual_seed(num_messages)
    for scale, outlier in product(SCALES, SCALES):
        u = scale * torch.randn(num_messages, 8, generator=generator)
        u[0] *= outlier
        own = scale * torch.randn(8, generator=generator)
        mean = u.mean(dim=0)
        result = aggregation(u.unsqueeze(0), own.unsqueeze(0), [FixedSeed()]).squeeze(0)
        if not torch.allclose(result, mean, rtol=1e-4, atol=1e-5 * float(u.abs().max())):
            return False
    return True
