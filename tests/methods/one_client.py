"""Methods applied to one client: vectors, payloads and plain numbers in place of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rdpfl_sim.methods.base import ClientView, Inbox, Method, Payload, State, Trained
from rdpfl_sim.methods.batching import (
    ClientMessageStats,
    Received,
    UpdateInput,
    make_inbox,
    update_in_batches,
)
from tests.support import Services

CLIENT = ClientView(0, 1, 2, Services())


def client(degree: int = 2, round_: int = 1, batch: Any = None) -> ClientView:
    """Return client 0."""
    return ClientView(0, round_, degree, Services(batch))


def message(
    vector: Tensor | list[float],
    weight: float = 1.0,
    *,
    degree: int = 2,
    mask: Tensor | None = None,
) -> Received:
    """Return a message; it is stale if its weight is below 1."""
    payload = Payload(torch.as_tensor(vector, dtype=torch.float32), mask)
    return Received(payload, weight, degree)


def messages(*vectors: Tensor | list[float], weights: Sequence[float] | None = None) -> list[Received]:
    """Return one message per vector."""
    weights = weights or [1.0] * len(vectors)
    pairs = zip(vectors, weights, strict=True)
    return [message(vector, weight) for vector, weight in pairs]


def inbox(received: Sequence[Received], size: int = 2) -> Inbox:
    """Return the messages as the inbox of one client."""
    return make_inbox([received], torch.zeros(1, size))


def start(method: Method, w: Tensor, view: ClientView = CLIENT) -> State:
    """Return the state of a client that starts with model w."""
    return method.init(w.unsqueeze(0), [view])


def send(method: Method, state: State, trained: Trained, view: ClientView = CLIENT) -> tuple[State, Payload]:
    """Return the client's state and its payload."""
    state, outgoing = method.payload(state, trained, [view])
    [vector] = outgoing.vectors
    return state, Payload(vector, None if outgoing.masks is None else outgoing.masks[0])


def update(
    method: Method, state: State, trained: Trained, received: Sequence[Received], view: ClientView = CLIENT
) -> Any:
    """Return the state after a round, and its diagnostics as plain numbers."""
    [updated] = update_in_batches(method, [UpdateInput(state, trained, received, view)], False)
    return updated.state, updated.diagnostics


def stats(
    method: Method, state: State, trained: Trained, received: Sequence[Received], view: ClientView = CLIENT
) -> ClientMessageStats:
    """Return how the method treats each message."""
    one = UpdateInput(state, trained, received, view)
    [updated] = update_in_batches(method, [one], with_message_stats=True)
    assert updated.message_stats is not None
    return updated.message_stats
