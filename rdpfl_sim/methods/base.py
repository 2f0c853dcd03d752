"""Interface of learning methods.

A method is stateless and batched. Tensors have one row per client, a single client is a batch of one, and the
bits of a row do not depend on the other rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from math import isfinite, prod
from typing import NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

from rdpfl_sim.components.registry import Facts, Registry

Form: TypeAlias = tuple[torch.Size | torch.dtype, ...]
"""Shapes and data types of a payload."""


class Payload:
    """A flat vector, shared by all recipients of a broadcast.

    With a mask (bool, of the vector's shape) only the entries under the mask are transmitted, plus one bit
    per entry. A recipient checks `form` and `is_finite`. `squares_finite` implies `is_finite` and is cheaper
    to compute.
    """

    __slots__ = ("form", "is_finite", "mask", "size_bytes", "squares_finite", "vector")

    def __init__(self, vector: Tensor, mask: Tensor | None = None) -> None:
        self.vector = vector
        self.mask = mask
        self.form: Form = (vector.shape, vector.dtype)
        self.size_bytes = vector.nbytes
        self.squares_finite = squares_finite(vector)
        self.is_finite = self.squares_finite or is_finite(vector)
        if mask is not None:
            self.form += (mask.shape, mask.dtype)
            num_sent = int(torch.count_nonzero(mask))
            self.size_bytes = num_sent * vector.element_size() + -(-mask.numel() // 8)


def is_finite(v: Tensor) -> bool:
    """Return whether no entry is NaN or infinite."""
    return squares_finite(v) or bool(torch.isfinite(v).all())


def squares_finite(v: Tensor) -> bool:
    """Return whether v is a vector whose entries are finite and small enough that |v|^2 is finite too."""
    return v.dim() == 1 and v.is_floating_point() and isfinite(v.dot(v).item())


Diagnostics: TypeAlias = Mapping[str, Tensor]
"""(n,) each; NaN where a value does not apply. Each entry becomes a field of the `estimate` record."""


@dataclass(frozen=True, eq=False)
class Report(Diagnostics):
    """The declared diagnostics of a method, as a mapping. Fields that are None are left out."""

    def __getitem__(self, name: str) -> Tensor:
        value: Tensor = getattr(self, name)
        return value

    def __iter__(self) -> Iterator[str]:
        return (field.name for field in fields(self) if getattr(self, field.name) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


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

    @property
    def models(self) -> list[Tensor]:
        """The initial weights of the one or two models."""
        return [self.w] if self.second_w is None else [self.w, self.second_w]


@dataclass(frozen=True)
class Trained:
    """Result of local training."""

    w: Tensor  # (n, d)
    num_steps: tuple[int, ...]  # n numbers
    losses: tuple[float, ...]  # n numbers, the mean batch losses; NaN if training has diverged
    learning_rates: tuple[float, ...]  # n numbers, eta of this round
    second_w: Tensor | None = None  # (n, d), for methods that train two models
    direction: Tensor | None = None  # (n, d), (w_before - w) / (eta K) if the executor has computed it
    velocity: Tensor | None = None  # (n, models, d), if momentum continues in the next round


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
class BoundTerms:
    """The configured terms of the paper's bound (eq. 18)."""

    gamma: float
    learning_rate: float
    num_steps: int
    lambda_: float
    max_norm: float


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
    momentum: str | None = None
    """The option that replaces the scenario's momentum and starts it at zero in every round, or None."""
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

    def trained_model(self, trained: Trained) -> Tensor:
        """Return the models (n, d) that clients use after their local training, before the exchange."""
        return trained.w

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

    def bound_terms(self, learning_rate: float, num_steps: int) -> BoundTerms | None:
        """Return the terms of the paper's bound for eta and K, or None if it does not apply."""
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


METHODS = Registry("method", Facts)
method = METHODS.register


def neighbour_share(by_neighbours: Tensor, by_training: Tensor) -> Tensor:
    """Return how far neighbours moved the models (n,), relative to local training.

    For methods that exchange directions, it is |lambda d| / |u|. For methods that exchange models, it is
    |w - x| / |x - w'|, where x is the trained model, w' the model before the round and w the model after it
    (docs/understand/methods.md). It is NaN if local training did not change the model or has diverged.
    """
    share = by_neighbours / by_training
    return share.where((by_training > 0) & by_training.isfinite() & share.isfinite(), torch.nan)
