"""What every method is: what a client sends, and how it updates its model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, prod
from typing import Protocol, TypeAlias

from torch import Tensor

from rdpfl_sim.errors import note_client_round
from rdpfl_sim.methods.exchange import Local, Payload, Received, Work

Diagnostics: TypeAlias = Mapping[str, float | bool | None]
"""What a method reports of one round; each entry becomes a field of the round's record."""


@dataclass(frozen=True)
class Inspection:
    """How a method treats the messages of one round, in their order.

    Distances are Euclidean: to the client's own update, and to what the method predicted, if it predicts.
    Weights say with which share each message entered the aggregate; they add up to 1, or to less if the
    client's own model has a share too.
    """

    distance_to_own: list[float]
    distance_to_predicted: list[float] | None
    weight: list[float] | None


@dataclass(frozen=True)
class Layer:
    """One parameter of the model: its place in the flat vector, and its shape as torch has it."""

    name: str
    start: int
    shape: tuple[int, ...]

    @property
    def place(self) -> slice:
        """Where it is in the vector."""
        return slice(self.start, self.start + prod(self.shape))


@dataclass(frozen=True)
class Settings:
    """What a method knows of the run before it starts."""

    learning_rate: float
    rounds: int
    layers: Sequence[Layer] = ()


def layer_starts(layers: Sequence[Layer]) -> list[int]:
    """Where in the vector each layer begins; its weights and biases count as one."""
    starts: dict[str, int] = {}
    for layer in layers:
        starts.setdefault(layer.name.rpartition(".")[0], layer.start)
    return list(starts.values())


def neighbour_share(by_neighbours: float, by_training: float) -> float | None:
    """Return how far neighbours moved the model in a round, as a multiple of how far local training did.

    For methods that exchange directions it is |lambda d| / |u|, for those that exchange models
    |w - x| / |x - w'|, where x is the trained model, w' the model before and w the one after the round
    (docs/methods.md). It is None if local training moved nothing or has diverged.
    """
    if not 0 < by_training < inf:
        return None
    share = by_neighbours / by_training
    return share if isfinite(share) else None


class Batch(Protocol):
    """Some of a client's own training data: what a client can find out with it about any model."""

    @property
    def labels(self) -> Tensor:
        """The classes of the examples (n,)."""

    def logits(self, w: Tensor) -> Tensor:
        """What model w answers, (n, classes)."""

    def loss(self, w: Tensor) -> float:
        """The mean cross-entropy of model w."""

    def gradient(self, w: Tensor) -> Tensor:
        """The gradient of that loss at w."""


class Facilities(Protocol):
    """Who can answer the questions that a method may ask."""

    @property
    def degree(self) -> Callable[[int], int]:
        """How many neighbours a client has now."""

    @property
    def seed(self) -> Callable[[str, int, int], int]:
        """A seed for a purpose of a client in a round."""

    @property
    def batch(self) -> Callable[[int, int], Batch]:
        """Some of a client's own data; another batch in every round."""


@dataclass(slots=True)
class Home:
    """What a method knows of the client that it works for: who it is, its round, and whom it may ask."""

    client: int
    round: int
    facilities: Facilities

    def degree(self, client: int | None = None) -> int:
        """How many neighbours the client, or another one, has now."""
        return self.facilities.degree(self.client if client is None else client)

    def seed(self, purpose: str) -> int:
        """A seed for this purpose, client and round."""
        return self.facilities.seed(purpose, self.client, self.round)

    def batch(self) -> Batch:
        """Some of the client's own training data, the same for the whole round."""
        return self.facilities.batch(self.client, self.round)


@dataclass(frozen=True)
class State:
    """A client's learning state; methods that remember more derive from it.

    States are values: `update` returns a new one and never changes a tensor that it was given.
    """

    w: Tensor


@dataclass(slots=True)
class Case:
    """What a client's update is made from: see `Method.update`."""

    state: State
    own: Local
    received: Sequence[Received]
    home: Home


class Method(ABC):
    """A personalised learning method. It holds its options and no state of any client."""

    exchanges = True
    """False if clients never send anything, so that nobody waits."""

    def start(self, w: Tensor, home: Home) -> State:
        """The state of a client that begins with model w."""
        return State(w)

    def work(self, state: State) -> Work:
        """What the client trains in a round."""
        return Work(state.w)

    @abstractmethod
    def outgoing(self, state: State, own: Local, home: Home) -> tuple[State, Payload]:
        """What the client sends to its neighbours after its local training, and its state from then on."""

    @abstractmethod
    def update(
        self, state: State, own: Local, received: Sequence[Received], home: Home
    ) -> tuple[State, Diagnostics]:
        """The state after the round, given the messages that arrived (possibly none), sorted by sender."""

    def update_together(self, cases: Sequence[Case]) -> list[tuple[State, Diagnostics]]:
        """What `update` makes of each case, up to rounding; of each case the same bits in any company."""
        return [update_one(self, case) for case in cases]

    @abstractmethod
    def inspect(self, state: State, own: Local, received: Sequence[Received], home: Home) -> Inspection:
        """What `update` makes of these messages (at least one), for people who study the method."""

    def origin(self, state: State) -> Tensor | None:
        """The point that stands for "no change" in what the client sends; None is zero, for directions."""
        return None

    def expects(self, state: State) -> Tensor | None:
        """The neighbourhood direction that the client predicts for its next round, if it predicts one."""
        return None


def update_one(method: Method, case: Case) -> tuple[State, Diagnostics]:
    """What `Method.update` makes of a case; an error says whose it was."""
    try:
        return method.update(case.state, case.own, case.received, case.home)
    except Exception as error:
        note_client_round(error, case.home.client, case.home.round)
        raise
