"""Update clients in batches: stack their inputs as rows, and split the results again."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import Field, dataclass, fields
from math import isnan
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias, TypeVar

import torch
from torch import Tensor

from rdpfl_sim.errors import note_client_round
from rdpfl_sim.inputs import call_read_only
from rdpfl_sim.methods.base import (
    ClientView,
    Diagnostics,
    Inbox,
    MessageStats,
    Method,
    Payload,
    State,
    Trained,
)

MAX_FLOATS = 1 << 21
"""Maximum number of floats in the models and messages of a batch, so that they fit into the CPU cache."""

ClientDiagnostics: TypeAlias = Mapping[str, float | bool | None]
"""Diagnostics of one client; None where a value does not apply."""

NO_DIAGNOSTICS: ClientDiagnostics = {}


class Received(NamedTuple):
    """A message that a client uses. `weight` is below 1 if it is stale, `degree` belongs to its sender."""

    payload: Payload
    weight: float
    degree: int


@dataclass(frozen=True)
class ClientMessageStats:
    """Weights and distances of the messages that one client used, in the order of the messages."""

    distance_to_own: list[float]
    distance_to_predicted: list[float] | None
    weight: list[float] | None


class UpdateInput(NamedTuple):
    """All inputs of one client's update. State and training result have one row."""

    state: State
    trained: Trained
    received: Sequence[Received]
    client: ClientView


class Updated(NamedTuple):
    """One client's state after a round, with one row, and the method's diagnostics of the round."""

    state: State
    diagnostics: ClientDiagnostics = NO_DIAGNOSTICS
    message_stats: ClientMessageStats | None = None
    velocity: Tensor | None = None
    """(1, models, d), the momentum of the last training, if it continues in the next round."""


def update_in_batches(
    method: Method, inputs: Sequence[UpdateInput], with_message_stats: bool
) -> list[Updated]:
    """Update every client. Clients with equal numbers of messages share a batch if the method permits it."""
    if len(inputs) == 1:
        return _update(method, inputs, with_message_stats)
    batches: dict[Hashable, list[int]] = {}
    for position, one in enumerate(inputs):
        key = len(one.received) if method.batched else position
        batches.setdefault(key, []).append(position)
    results: dict[int, Updated] = {}
    for positions in batches.values():
        size = _batch_size(inputs[positions[0]])
        for start in range(0, len(positions), size):
            batch = positions[start : start + size]
            updated = _update(method, [inputs[p] for p in batch], with_message_stats)
            results.update(zip(batch, updated, strict=True))
    return [results[position] for position in range(len(inputs))]


def make_inbox(received: Sequence[Sequence[Received]], like: Tensor) -> Inbox:
    """Return the messages of n clients, m each, as one inbox; an empty one is similar to `like`."""
    return Inbox(
        _stack_messages([[message.payload.vector for message in row] for row in received], like),
        _stack_masks(received, like),
        [[message.weight for message in row] for row in received],
        [[message.degree for message in row] for row in received],
    )


def _stack_messages(vectors: Sequence[Sequence[Tensor]], like: Tensor) -> Tensor:
    """Return a tensor (n, m, p), stored in the order (m, n, p) because aggregators sort rows (n, p)."""
    n, m = len(vectors), len(vectors[0])
    if m == 0:
        return like.new_zeros(n, 0, like.shape[1])
    by_sender = torch.stack([vectors[client][message] for message in range(m) for client in range(n)])
    return by_sender.view(m, n, -1).transpose(0, 1)


def _stack_masks(received: Sequence[Sequence[Received]], like: Tensor) -> Tensor | None:
    masks = [[m.payload.mask for m in row if m.payload.mask is not None] for row in received]
    return _stack_messages(masks, like) if masks[0] else None


def _update(method: Method, inputs: Sequence[UpdateInput], with_message_stats: bool) -> list[Updated]:
    try:
        states = [one.state for one in inputs]
        state, trained = stack(states), stack([one.trained for one in inputs])
        inbox = make_inbox([one.received for one in inputs], trained.w)
        clients = [one.client for one in inputs]
        stats: Sequence[ClientMessageStats | None] = [None] * len(inputs)
        if with_message_stats and inbox.num_messages > 0:
            of_messages = call_read_only(method.message_stats, state, trained, inbox, clients)
            stats = _split_message_stats(of_messages)
        new_state, diagnostics = call_read_only(method.update, state, trained, inbox, clients)
    except Exception as error:
        if len(inputs) == 1:
            note_client_round(error, inputs[0].client.id, inputs[0].client.round)
        else:
            for one in inputs:  # repeat client by client, so that the error names the client
                _update(method, [one], with_message_stats)
        raise
    new_states = split(new_state, state, states)
    rows = zip(new_states, _split_diagnostics(diagnostics, len(inputs)), stats, strict=True)
    return [Updated(*row) for row in rows]


def _split_message_stats(stats: MessageStats) -> list[ClientMessageStats]:
    """Return one value per client."""
    optional = [stats.distance_to_predicted, stats.weight]
    known = [stats.distance_to_own, *(part for part in optional if part is not None)]
    own, *numbers = torch.stack([part.double() for part in known]).tolist()  # one copy from a GPU
    predicted, weights = (None if part is None else numbers.pop(0) for part in optional)
    return [
        ClientMessageStats(
            distance_to_own,
            None if predicted is None or any(isnan(x) for x in predicted[row]) else predicted[row],
            None if weights is None else weights[row],
        )
        for row, distance_to_own in enumerate(own)
    ]


def _split_diagnostics(diagnostics: Diagnostics, num_rows: int) -> list[ClientDiagnostics]:
    columns = {name: column.tolist() for name, column in diagnostics.items()}
    return [
        {name: None if column[row] != column[row] else column[row] for name, column in columns.items()}
        for row in range(num_rows)
    ]


def _batch_size(one: UpdateInput) -> int:
    """Return the number of clients per batch. Each needs memory for its messages and about ten vectors."""
    return max(1, MAX_FLOATS // ((len(one.received) + 10) * one.state.w.numel()))


class Rows(Protocol):
    """A dataclass whose tensors have one row per client."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


T = TypeVar("T", bound=Rows)


def stack(values: Sequence[T]) -> T:
    """Return one value with all rows. Tuples are joined; other fields are taken from the first value."""
    first = values[0]
    if len(values) == 1:
        return first
    entries = {}
    for field in fields(first):
        entry = getattr(first, field.name)
        if isinstance(entry, Tensor):
            entry = torch.cat(list(map(attrgetter(field.name), values)))
        elif isinstance(entry, tuple):
            entry = tuple(item for value in values for item in getattr(value, field.name))
        entries[field.name] = entry
    return type(first)(**entries)


def split(value: T, before: T, rows_before: Sequence[T]) -> list[T]:
    """Return one value per row of `value`, which was computed from `before`, the stack of `rows_before`.

    Tensors that are unchanged from `before` are not copied: the rows of `rows_before` are reused. Other
    vectors are copied, so that no client keeps the whole batch in memory.
    """
    num_rows = len(rows_before)
    if num_rows == 1:
        return [value]
    known: dict[int, list[Tensor]] = {}
    for field in fields(before):
        entry = getattr(before, field.name)
        if isinstance(entry, Tensor):
            known[id(entry)] = [getattr(row, field.name) for row in rows_before]
    columns = []
    names = [field.name for field in fields(value)]
    for name in names:
        entry = getattr(value, name)
        if not isinstance(entry, Tensor):
            columns.append([entry] * num_rows)
            continue
        if id(entry) not in known:
            rows = torch.split(entry, 1)
            known[id(entry)] = [row.clone() for row in rows] if entry.dim() > 1 else list(rows)
        columns.append(known[id(entry)])
    return [_make(type(value), names, entries) for entries in zip(*columns, strict=True)]


def _make(cls: type[T], names: Sequence[str], entries: Sequence[object]) -> T:
    """Return `cls(**dict(zip(names, entries)))`, without the slow `__init__` of frozen dataclasses."""
    value = object.__new__(cls)
    value.__dict__.update(zip(names, entries, strict=True))
    return value
