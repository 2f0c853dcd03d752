"""The contract of methods: arguments and results of each step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, partial, wraps
from typing import NamedTuple

import torch
from torch import Tensor

from rdpfl_sim.components.registry import Plugin, Target
from rdpfl_sim.contracts.call_checks import (
    MODIFIES,
    NOT_STORED,
    Contract,
    FlawError,
    Guard,
    call_plugin,
    check_tensor,
    describe,
)
from rdpfl_sim.contracts.equality import equal
from rdpfl_sim.contracts.hidden_state import HiddenAttributes
from rdpfl_sim.errors import PluginError
from rdpfl_sim.inputs import Inputs
from rdpfl_sim.methods.base import (
    ClientServices,
    ClientView,
    Diagnostics,
    Inbox,
    MessageStats,
    Method,
    Outgoing,
    Payload,
    RunInfo,
    State,
    Trained,
    TrainingTask,
    squares_finite,
)
from rdpfl_sim.methods.batching import Received, make_inbox, stack

NUM_MESSAGES = 3


def _check_state(step: str, state: object, w: Tensor, *, finite: bool = False) -> None:
    if not isinstance(state, State):
        raise FlawError(f"returns {describe(state)} from '{step}', not a State")
    try:
        check_tensor(state.w, tuple(w.shape), w, finite=finite)
    except FlawError as error:
        raise FlawError(f"{error}, as the models in the state that '{step}' returns") from error


def _check_init(result: object, w: Tensor, clients: Sequence[ClientView]) -> None:
    _check_state("init", result, w)


def _check_training(result: object, state: State) -> None:
    if not isinstance(result, TrainingTask):
        raise FlawError(f"returns {describe(result)} from 'training', not a TrainingTask")


def _check_payload(result: object, state: State, trained: Trained, clients: Sequence[ClientView]) -> None:
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], Outgoing):
        raise FlawError(f"returns {describe(result)} from 'payload', not a State and an Outgoing")
    _check_state("payload", result[0], state.w)
    vectors = result[1].vectors
    if vectors.requires_grad or vectors.dim() != 2 or len(vectors) != len(clients):
        raise FlawError("does not send one flat, detached vector per client")


def _check_update(
    result: object, state: State, trained: Trained, inbox: Inbox, clients: Sequence[ClientView]
) -> None:
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], Mapping):
        raise FlawError(f"returns {describe(result)} from 'update', not a State and a mapping")
    finite = all(squares_finite(tensor.flatten()) for tensor in (state.w, trained.w, inbox.vectors))
    _check_state("update", result[0], state.w, finite=finite)
    for name, values in result[1].items():
        if not isinstance(name, str) or not isinstance(values, Tensor) or len(values) != len(clients):
            raise FlawError(
                f"reports {name!r} as {describe(values)} from 'update', not one number per client"
            )


def _check_message_stats(
    result: object, state: State, trained: Trained, inbox: Inbox, clients: Sequence[ClientView]
) -> None:
    if not isinstance(result, MessageStats):
        raise FlawError(f"returns {describe(result)} from 'message_stats', not a MessageStats")
    for part in (result.distance_to_own, result.distance_to_predicted, result.weight):
        if part is not None and part.shape != inbox.weights.shape:
            raise FlawError("does not return one number per message from 'message_stats'")


def _check_shares(result: object, x: Tensor, inbox: Inbox, clients: Sequence[ClientView]) -> None:
    if not isinstance(result, Tensor):
        raise FlawError(f"returns {describe(result)} from 'shares', not a tensor")
    shape, expected = list(result.shape), list(inbox.weights.shape)
    if shape != expected:
        raise FlawError(
            f"returns a tensor of shape {shape} from 'shares', not {expected}, one number per message"
        )


def _check_rows(step: str, result: object, state: State) -> None:
    if result is not None and (not isinstance(result, Tensor) or result.dim() != 2):
        raise FlawError(f"returns {describe(result)} from '{step}', not a matrix or None")


STEPS: Mapping[str, Callable[..., None]] = {
    "init": _check_init,
    "training": _check_training,
    "payload": _check_payload,
    "update": _check_update,
    "message_stats": _check_message_stats,
    "reference_point": partial(_check_rows, "reference_point"),
    "predicted_direction": partial(_check_rows, "predicted_direction"),
    "shares": _check_shares,  # of methods that exchange models
}
"""Checks of the results of a method's steps."""


def _check_method(result: object, info: RunInfo) -> None:
    if not isinstance(result, Method):
        raise FlawError(f"returns {describe(result)}, not a Method")


def check_steps(plugin: Plugin, method: Method) -> Method:
    """Make a method check the results of its steps, and return it."""
    object.__setattr__(method, "__class__", _checked(type(method), plugin))
    return method


METHOD_CONTRACT = Contract(check=_check_method, guarded=check_steps)


@cache
def _checked(cls: type[Method], plugin: Plugin) -> type[Method]:
    """Return a subclass of `cls` that checks the results of its steps; errors name the plug-in."""
    steps = {
        step: _checked_step(getattr(cls, step), check, plugin)
        for step, check in STEPS.items()
        if hasattr(cls, step)
    }
    place = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}  # used by checkpoints
    return type(cls.__name__, (cls,), {**place, **steps})


def _checked_step(step: Target, check: Callable[..., None], plugin: Plugin) -> Target:
    @wraps(step)
    def call(self: Method, *arguments: object, **named: object) -> object:
        inboxes = [each for each in arguments if isinstance(each, Inbox)]
        inputs = Inputs(*arguments, *(inbox.weights for inbox in inboxes), bitwise=True)
        result: object = call_plugin(plugin, step, self, *arguments, **named)
        if inputs.are_modified():
            raise PluginError(plugin, MODIFIES)
        call_plugin(plugin, check, result, *arguments, **named)
        return result

    return call


class Round(NamedTuple):
    """The results of all steps of a method in one round. Every tensor has one row per client."""

    init: State
    training: TrainingTask
    payload: tuple[State, Outgoing]
    message_stats: MessageStats | None
    update: tuple[State, Diagnostics]
    reference_point: Tensor | None
    predicted_direction: Tensor | None


def rehearse(method: Method, plugin: Plugin, w: Tensor, services: ClientServices) -> None:
    """Run rounds of client 0 with zero, one and several messages, twice; raise a `PluginError` on a mismatch.

    All results of all steps must be bit-identical for a client on its own and in a batch.
    """
    nums_messages = (0, 1, NUM_MESSAGES) if method.exchanges else (0,)
    run_round = partial(_round, method, w, services)
    contract = Contract(
        check=lambda result, num_messages: None,  # every step checks its result
        samples=lambda target: [(num,) for num in nums_messages],
        mismatch="returns two different results for the same state and messages",
        randomness="draw from a generator seeded with client.seed(purpose)",
    )
    attributes = HiddenAttributes(method, shared=[services])
    Guard(run_round, plugin, contract).try_out({})
    attribute = attributes.changed()
    if attribute is not None:
        raise PluginError(plugin, f"changes its attribute {attribute!r}, {NOT_STORED}")
    for num in nums_messages if method.batched else ():
        alone, together = (call_plugin(plugin, run_round, num, num_rows) for num_rows in (1, 2))
        for step, result, in_batch in zip(Round._fields, alone, together, strict=True):
            if not equal(_first_row(result), _first_row(in_batch)):
                raise PluginError(
                    plugin,
                    f"returns a different result from '{step}' for a client in a batch; "
                    "rows must be independent, or batched = False",
                )


def _round(
    method: Method, w: Tensor, services: ClientServices, num_messages: int, num_rows: int = 1
) -> Round:
    """Run one round; every further row has different training results and messages."""
    clients = [ClientView(0, 1, 2, services)] * num_rows
    start = method.init(w.repeat(num_rows, 1), clients)
    task = method.training(start)
    second_w = task.second_w
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
    received = state, trained, inbox
    stats = method.message_stats(*received, clients) if num_messages else None
    updated, diagnostics = method.update(*received, clients)
    points = method.reference_point(updated), method.predicted_direction(updated)
    return Round(start, task, (state, sent), stats, (updated, diagnostics), *points)


def _first_row(value: object) -> object:
    """Return the first client's row of every tensor in a result, and everything that is not a tensor."""
    if isinstance(value, Tensor):
        return value[:1]
    if isinstance(value, tuple):
        return tuple(map(_first_row, value))
    if isinstance(value, Mapping):
        return {name: _first_row(entry) for name, entry in value.items()}
    if is_dataclass(value):
        return {field.name: _first_row(getattr(value, field.name)) for field in fields(value)}
    return value


def _message(method: Method, w: Tensor, number: int, second_w: Tensor | None, client: ClientView) -> Received:
    start = method.init(w.unsqueeze(0), [client])
    _, sent = method.payload(start, _trained(w, number, second_w), [client])
    payload = Payload(sent.vectors[0], None if sent.masks is None else sent.masks[0])
    return Received(payload, 1.0, 2)


def _trained(w: Tensor, number: int, second_w: Tensor | None) -> Trained:
    """Return a plausible training result, which differs for every number."""
    step = torch.randn(w.shape, generator=torch.Generator().manual_seed(number)).to(w.device)
    second = None if second_w is None else second_w[:1] - 0.01 * step
    return Trained((w - 0.01 * step).unsqueeze(0), (1,), (0.0,), second)
