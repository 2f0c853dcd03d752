"""Interface of learning methods.

A method is stateless and batched. Tensors have one row per client, a single client is a batch of one, and the
bits of a row do not depend on the other rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

Diagnostics: TypeAlias = Mapping[str, Tensor]
"""(n,) each; NaN where a value does not apply. Each entry becomes a field of the `estimate` record."""


@dataclass(frozen=True)
class State:
    """Learning state of n clients, never modified in place. Methods with more state define a subclass."""

    w: Tensor  # (n, d)


@dataclass(frozen=True)
class TrainingTask:
    """Local training of a round: K steps of SGD from w, and optional changes to them."""

    w: Tensor  # (n, d)
    mask: Tensor | None = None  # (n, d); entries outside the mask do not change
    momentum: float | None = None  # replaces the scenario's momentum
    second_w: Tensor | None = None  # (n, d), a second model that is trained on the same batches ...
    proximal_mu: float = 0.0  # ... with proximal_mu / 2 |v - w|^2 added to its loss


@dataclass(frozen=True)
class Trained:
    """Result of local training."""

    w: Tensor  # (n, d)
    num_steps: tuple[int, ...]  # n numbers
    losses: tuple[float, ...]  # n numbers, the mean batch losses; NaN if training has diverged
    second_w: Tensor | None = None  # (n, d), for methods that train two models
    direction: Tensor | None = None  # (n, d), (w_before - w) / (eta K) if the executor has computed it


@dataclass(frozen=True)
class Inbox:
    """Messages that n clients use in a round, m per client, sorted by sender. m may be 0."""

    vectors: Tensor  # (n, m, p)
    masks: Tensor | None  # (n, m, p), for methods that send a part of the model
    weight_rows: Sequence[Sequence[float]]
    degree_rows: Sequence[Sequence[int]]

    @property
    def num_messages(self) -> int:
        """m, the number of messages per client."""
        return self.vectors.shape[1]

    @property
    def all_fresh(self) -> bool:
        """Whether every message has weight 1."""
        return all(weight == 1.0 for row in self.weight_rows for weight in row)

    @cached_property
    def weights(self) -> Tensor:
        """(n, m), in float64; below 1 for stale messages."""
        weights = torch.tensor(self.weight_rows, dtype=torch.float64, device=self.vectors.device)
        return weights.view(len(self.vectors), -1)

    @cached_property
    def degrees(self) -> Tensor:
        """(n, m), the senders' numbers of neighbours."""
        degrees = torch.tensor(self.degree_rows, dtype=torch.int64, device=self.vectors.device)
        return degrees.view(len(self.vectors), -1)


@dataclass(frozen=True)
class Outgoing:
    """Payloads that n clients send."""

    vectors: Tensor  # (n, p)
    masks: Tensor | None = None  # (n, p)


@dataclass(frozen=True)
class MessageStats:
    """Weights and distances of the messages of a round.

    Weights are the shares of the messages in the aggregate. They add up to 1, or to less if the client's own
    model has a share too.
    """

    distance_to_own: Tensor  # (n, m)
    weight: Tensor | None  # (n, m)
    distance_to_predicted: Tensor | None = None  # (n, m); NaN without a prediction


@dataclass(frozen=True)
class Layer:
    """One parameter of the model: its position in the flat vector, and its shape in torch."""

    name: str
    start: int
    shape: tuple[int, ...]

    @property
    def span(self) -> slice:
        """The entries of the layer in the vector."""
        return slice(self.start, self.start + prod(self.shape))


@dataclass(frozen=True)
class RunInfo:
    """Facts about a run that a method may use when it is created."""

    learning_rate: float
    rounds: int
    layers: Sequence[Layer] = ()


class Batch(Protocol):
    """A batch of a client's own training data, for testing models."""

    @property
    def labels(self) -> Tensor:
        """Classes of the examples (n,)."""

    def logits(self, w: Tensor) -> Tensor:
        """Return the output of model w, (n, classes)."""

    def loss(self, w: Tensor) -> float:
        """Return the mean cross-entropy of model w."""

    def gradient(self, w: Tensor) -> Tensor:
        """Return the gradient of that loss at w."""


class ClientServices(Protocol):
    """Source of a client's random seeds and data."""

    def seed(self, purpose: str, client: int, round_: int) -> int:
        """Return the seed for one purpose, client and round."""

    def batch(self, client: int, round_: int) -> Batch:
        """Return a batch of a client's own data, a different one in every round."""


class ClientView(NamedTuple):
    """The properties of a client that a method may use: id, round, number of neighbours, seeds, own data."""

    id: int
    round: int
    degree: int
    services: ClientServices

    def seed(self, purpose: str) -> int:
        """Return a seed for this purpose, client and round."""
        return self.services.seed(purpose, self.id, self.round)

    def batch(self) -> Batch:
        """Return a batch of the client's own training data, the same for the whole round."""
        return self.services.batch(self.id, self.round)


class Method(ABC):
    """A personalised learning method. It stores its options and no state of clients."""

    exchanges = True
    """False if clients never send messages."""
    batched = True
    """False if every batch must have one row, for instance because clients test models on their own data."""
    bound_on_d: str | None = None
    """The option that is an upper bound on the diagnostic `d_norm` of every round (Lemma 3), or None."""

    @classmethod
    def unused_options(cls, given: Collection[str], options: Mapping[str, object]) -> Iterator[str]:
        """Yield a warning for each given option that has no effect in combination with the others."""
        yield from ()

    def init(self, w: Tensor, clients: Sequence[ClientView]) -> State:
        """Return the state of clients that start with models w (n, d)."""
        return State(w)

    def training(self, state: State) -> TrainingTask:
        """Return the training task: the starting models, and momentum, masks or a second model if needed."""
        return TrainingTask(state.w)

    @abstractmethod
    def payload(
        self, state: State, trained: Trained, clients: Sequence[ClientView]
    ) -> tuple[State, Outgoing]:
        """Return the clients' new state and the payloads that they send."""

    @abstractmethod
    def update(
        self, state: State, trained: Trained, inbox: Inbox, clients: Sequence[ClientView]
    ) -> tuple[State, Diagnostics]:
        """Return the state after the round."""

    @abstractmethod
    def message_stats(
        self, state: State, trained: Trained, inbox: Inbox, clients: Sequence[ClientView]
    ) -> MessageStats:
        """Return the weight of each message and its distance from the client's own payload, for telemetry."""

    def predicted_direction(self, state: State) -> Tensor | None:
        """Return the clients' predictions for the next round, or None. Adversaries may use them."""
        return None

    def reference_point(self, state: State) -> Tensor | None:
        """Return the point that means "no change" in a payload: None for directions, the model for models."""
        return None


def layer_starts(layers: Sequence[Layer]) -> list[int]:
    """Return the start of each layer in the vector; weights and biases count as one layer."""
    starts: dict[str, int] = {}
    for layer in layers:
        starts.setdefault(layer.name.rpartition(".")[0], layer.start)
    return list(starts.values())
