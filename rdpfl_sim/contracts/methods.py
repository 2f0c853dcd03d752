"""The contract of methods: what each step takes and returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from rdpfl_sim.components.plugin import Plugin
from rdpfl_sim.contracts.contract import (
    Arguments,
    Contract,
    GlobalDraws,
    call_plugin,
    describe,
    equal,
    tensor_flaw,
)
from rdpfl_sim.errors import PluginError
from rdpfl_sim.methods.base import (
    ClientServices,
    ClientView,
    Diagnostics,
    Inbox,
    MessageStats,
    Method,
    Outgoing,
    State,
    Trained,
    TrainingTask,
)
from rdpfl_sim.methods.batching import Received, make_inbox
from rdpfl_sim.methods.payload import Payload, squares_finite
from rdpfl_sim.methods.rows import stack

NUM_MESSAGES = 3


class MethodContract(Contract):
    """A `Method`, created from facts about the run."""

    def flaw(self, arguments: Arguments, result: Any) -> str | None:
        """Reject any other object."""
        return None if isinstance(result, Method) else f"returns {describe(result)}, not a Method"

    def guarded(self, result: Any, plugin: Plugin) -> Any:
        """Return the method itself; its steps are checked from now on."""
        object.__setattr__(result, "__class__", _checked(cast("type[Method]", type(result)), plugin))
        return result


@cache
def _checked(cls: type[Method], plugin: Plugin) -> type[Method]:
    """Return a subclass that checks what the methods of `cls` return, and names the plug-in if they fail."""

    class Checked(cls):  # type: ignore[misc, valid-type]
        def init(self, w: Tensor, clients: Sequence[ClientView]) -> State:
            return _check_state(plugin, "init", call_plugin(plugin, super().init, w, clients), w)

        def training(self, state: State) -> TrainingTask:
            task = call_plugin(plugin, super().training, state)
            if not isinstance(task, TrainingTask):
                raise PluginError(plugin, f"returns {describe(task)} from 'training', not a TrainingTask")
            return task

        def payload(
            self, state: State, trained: Trained, clients: Sequence[ClientView]
        ) -> tuple[State, Outgoing]:
            sent = call_plugin(plugin, super().payload, state, trained, clients)
            if not isinstance(sent, tuple) or len(sent) != 2 or not isinstance(sent[1], Outgoing):
                raise PluginError(
                    plugin, f"returns {describe(sent)} from 'payload', not a State and an Outgoing"
                )
            _check_state(plugin, "payload", sent[0], state.w)
            vectors = sent[1].vectors
            if vectors.requires_grad or vectors.dim() != 2 or len(vectors) != len(clients):
                raise PluginError(plugin, "does not send one flat, detached vector per client")
            return sent

        def update(
            self, state: State, trained: Trained, inbox: Inbox, clients: Sequence[ClientView]
        ) -> tuple[State, Diagnostics]:
            outcome = call_plugin(plugin, super().update, state, trained, inbox, clients)
            if not isinstance(outcome, tuple) or len(outcome) != 2 or not isinstance(outcome[1], Mapping):
                raise PluginError(
                    plugin, f"returns {describe(outcome)} from 'update', not a State and a mapping"
                )
            given = [state.w, trained.w, inbox.vectors]
            finite = all(squares_finite(tensor.flatten()) for tensor in given)
            _check_state(plugin, "update", outcome[0], state.w, finite=finite)
            for name, values in outcome[1].items():
                if not isinstance(name, str) or not isinstance(values, Tensor) or len(values) != len(clients):
                    text = f"reports {name!r} as {describe(values)} from 'update', not one number per client"
                    raise PluginError(plugin, text)
            return outcome

        def message_stats(
            self, state: State, trained: Trained, inbox: Inbox, clients: Sequence[ClientView]
        ) -> MessageStats:
            stats = call_plugin(plugin, super().message_stats, state, trained, inbox, clients)
            if not isinstance(stats, MessageStats):
                raise PluginError(
                    plugin, f"returns {describe(stats)} from 'message_stats', not a MessageStats"
                )
            for part in (stats.distance_to_own, stats.distance_to_predicted, stats.weight):
                if part is not None and part.shape != inbox.weights.shape:
                    raise PluginError(plugin, "does not return one number per message from 'message_stats'")
            return stats

        def reference_point(self, state: State) -> Tensor | None:
            return _check_rows(plugin, "reference_point", call_plugin(plugin, super().reference_point, state))

        def predicted_direction(self, state: State) -> Tensor | None:
            rows = call_plugin(plugin, super().predicted_direction, state)
            return _check_rows(plugin, "predicted_direction", rows)

    Checked.__name__, Checked.__qualname__ = cls.__name__, cls.__qualname__
    Checked.__module__ = cls.__module__  # where checkpoints look for the classes of states
    return Checked


def _check_state(plugin: Plugin, step: str, state: Any, w: Tensor, *, finite: bool = False) -> State:
    if not isinstance(state, State):
        raise PluginError(plugin, f"returns {describe(state)} from '{step}', not a State")
    flaw = tensor_flaw(state.w, tuple(w.shape), w, finite=finite)
    if flaw is not None:
        raise PluginError(plugin, f"{flaw}, as the models in the state that '{step}' returns")
    return state


def _check_rows(plugin: Plugin, step: str, rows: Any) -> Tensor | None:
    if rows is not None and (not isinstance(rows, Tensor) or rows.dim() != 2):
        raise PluginError(plugin, f"returns {describe(rows)} from '{step}', not a matrix or None")
    return rows


class Round(NamedTuple):
    """Everything that a method returns in one round of one client, as rows."""

    updated: State
    diagnostics: Diagnostics
    sent: Outgoing
    stats: MessageStats | None
    reference_point: Tensor | None
    predicted_direction: Tensor | None


def rehearse(method: Method, plugin: Plugin, w: Tensor, services: ClientServices) -> None:
    """Run a round of client 0 with no, one and some messages, twice; raise a `PluginError` if they differ.

    A row must have the same bits alone and in a batch.
    """
    for num_messages in (0, 1, NUM_MESSAGES) if method.exchanges else (0,):
        draws = GlobalDraws()
        with draws:
            first = _round(method, plugin, w, num_messages, services)
            second = _round(method, plugin, w, num_messages, services)
        if draws.found is not None:
            raise PluginError(plugin, draws.flaw)
        if not equal(first, second):
            flaw = "returns two different results for the same state and messages"
            raise PluginError(plugin, flaw)
        if method.batched:
            together = _round(method, plugin, w, num_messages, services, num_rows=2)
            if not torch.equal(together.updated.w[:1], first.updated.w):
                flaw = "updates a client differently in a batch; rows must be independent, or batched = False"
                raise PluginError(plugin, flaw)


def _round(
    method: Method,
    plugin: Plugin,
    w: Tensor,
    num_messages: int,
    services: ClientServices,
    num_rows: int = 1,
) -> Round:
    """Run one round; every further row has other training results and messages."""
    clients = [ClientView(0, 1, 2, services)] * num_rows
    start = method.init(w.repeat(num_rows, 1), clients)
    second_w = method.training(start).second_w
    trained = stack([_trained(w, row, second_w) for row in range(num_rows)])
    state, sent = method.payload(start, trained, clients)
    messages = [
        [
            _message(method, w, 10 * row + sender, second_w, clients[0])
            for sender in range(1, num_messages + 1)
        ]
        for row in range(num_rows)
    ]
    inbox = make_inbox(messages, trained.w)
    tensors = [state.w, trained.w, inbox.vectors]
    untouched = [tensor.clone() for tensor in tensors]
    stats = method.message_stats(state, trained, inbox, clients) if num_messages else None
    updated, diagnostics = method.update(state, trained, inbox, clients)
    if not equal(tensors, untouched):
        raise PluginError(plugin, "modifies a tensor that is an argument; it must work on a copy")
    points = method.reference_point(updated), method.predicted_direction(updated)
    return Round(updated, diagnostics, sent, stats, *points)


def _message(method: Method, w: Tensor, number: int, second_w: Tensor | None, client: ClientView) -> Received:
    start = method.init(w.unsqueeze(0), [client])
    _, sent = method.payload(start, _trained(w, number, second_w), [client])
    payload = Payload(sent.vectors[0], None if sent.masks is None else sent.masks[0])
    return Received(number, 2, 0, 1.0, payload)


def _trained(w: Tensor, number: int, second_w: Tensor | None) -> Trained:
    """Return a plausible training result, another one for every number."""
    step = torch.randn(w.shape, generator=torch.Generator().manual_seed(number)).to(w.device)
    second = None if second_w is None else second_w[:1] - 0.01 * step
    return Trained((w - 0.01 * step).unsqueeze(0), (1,), second)
