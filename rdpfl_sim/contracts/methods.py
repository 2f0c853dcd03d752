"""The contract of methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

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
    vector_flaw,
)
from rdpfl_sim.errors import PluginError
from rdpfl_sim.learning.training import Trained
from rdpfl_sim.methods.base import Batch, Case, Diagnostics, Home, Inspection, Method, State
from rdpfl_sim.methods.exchange import Local, Payload, Received, Work, is_moderate

NUM_MESSAGES = 3
TOLERANCE = 1e-3


class MethodContract(Contract):
    """A `Method`, from the settings of the run."""

    def flaw(self, arguments: Arguments, result: Any) -> str | None:
        """Another object."""
        return None if isinstance(result, Method) else f"returns {describe(result)}, not a Method"

    def guarded(self, result: Any, plugin: Plugin) -> Any:
        """Return the method itself, whose steps are checked from now on."""
        object.__setattr__(result, "__class__", _checked(cast("type[Method]", type(result)), plugin))
        return result


@cache
def _checked(cls: type[Method], plugin: Plugin) -> type[Method]:
    """Return a subclass that checks the results of the steps of `cls`; errors name the plug-in."""

    class Checked(cls):  # type: ignore[misc, valid-type]
        def start(self, w: Tensor, home: Home) -> State:
            state = call_plugin(plugin, super().start, w, home)
            return _state(plugin, "start", state, w)

        def work(self, state: State) -> Work:
            work = call_plugin(plugin, super().work, state)
            if not isinstance(work, Work):
                raise PluginError(plugin, f"returns {describe(work)} from 'work', not a Work")
            return work

        def outgoing(self, state: State, own: Local, home: Home) -> tuple[State, Payload]:
            sent = call_plugin(plugin, super().outgoing, state, own, home)
            if not isinstance(sent, tuple) or len(sent) != 2 or not isinstance(sent[1], Payload):
                raise PluginError(
                    plugin, f"returns {describe(sent)} from 'outgoing', not a State and a Payload"
                )
            _state(plugin, "outgoing", sent[0], state.w)
            if sent[1].vector.requires_grad or sent[1].vector.dim() != 1:
                raise PluginError(plugin, "sends what is not a plain vector: it must be flat and detached")
            return sent

        def update(
            self, state: State, own: Local, received: Sequence[Received], home: Home
        ) -> tuple[State, Diagnostics]:
            outcome = call_plugin(plugin, super().update, state, own, received, home)
            return _outcome(plugin, "update", outcome, Case(state, own, received, home))

        def update_together(self, cases: Sequence[Case]) -> list[tuple[State, Diagnostics]]:
            outcomes = call_plugin(plugin, super().update_together, cases)
            if not isinstance(outcomes, list) or len(outcomes) != len(cases):
                raise PluginError(plugin, "does not return one outcome per case from 'update_together'")
            for outcome, case in zip(outcomes, cases, strict=True):
                _outcome(plugin, "update_together", outcome, case)
            return outcomes

        def inspect(self, state: State, own: Local, received: Sequence[Received], home: Home) -> Inspection:
            inspection = call_plugin(plugin, super().inspect, state, own, received, home)
            if not isinstance(inspection, Inspection):
                raise PluginError(plugin, f"returns {describe(inspection)} from 'inspect', not an Inspection")
            of_each = (inspection.distance_to_own, inspection.distance_to_predicted, inspection.weight)
            if any(part is not None and len(part) != len(received) for part in of_each):
                raise PluginError(plugin, "does not return one number per message from 'inspect'")
            return inspection

        def origin(self, state: State) -> Tensor | None:
            return _point(plugin, "origin", call_plugin(plugin, super().origin, state))

        def expects(self, state: State) -> Tensor | None:
            return _point(plugin, "expects", call_plugin(plugin, super().expects, state))

    Checked.__name__, Checked.__qualname__ = cls.__name__, cls.__qualname__
    Checked.__module__ = cls.__module__  # where checkpoints look for the classes of states
    return Checked


def _state(plugin: Plugin, step: str, state: Any, w: Tensor, *, finite: bool = False) -> State:
    if not isinstance(state, State):
        raise PluginError(plugin, f"returns {describe(state)} from '{step}', not a State")
    flaw = vector_flaw(state.w, w, finite=finite)
    if flaw is not None:
        raise PluginError(plugin, f"{flaw}, as the model in the state that '{step}' returns")
    return state


def _outcome(plugin: Plugin, step: str, outcome: Any, case: Case) -> tuple[State, Diagnostics]:
    if not isinstance(outcome, tuple) or len(outcome) != 2 or not isinstance(outcome[1], Mapping):
        raise PluginError(plugin, f"returns {describe(outcome)} from '{step}', not a State and a mapping")
    vectors = [case.state.w, case.own.w_tilde, *(message.vector for message in case.received)]
    _state(plugin, step, outcome[0], case.state.w, finite=all(map(is_moderate, vectors)))
    for name, value in outcome[1].items():
        if type(value) not in (int, float, bool, type(None)) or not isinstance(name, str):
            raise PluginError(
                plugin, f"reports {name!r} as {describe(value)} from '{step}', not a float or a bool"
            )
    return outcome


def _point(plugin: Plugin, step: str, point: Any) -> Tensor | None:
    if point is not None and not isinstance(point, Tensor):
        raise PluginError(plugin, f"returns {describe(point)} from '{step}', not a tensor or None")
    return point


@dataclass(frozen=True)
class Rehearsal:
    """What a method may ask for before there are clients: the data of client 0, and two neighbours."""

    seed: Callable[[str, int, int], int]
    batch: Callable[[int, int], Batch]

    def degree(self, client: int) -> int:
        """Two, as on a ring."""
        return 2


def rehearse(method: Method, plugin: Plugin, w: Tensor, facilities: Rehearsal) -> None:
    """Run rounds of client 0 with no, one and some messages, twice; raise a `PluginError` if they differ."""
    for num_messages in (0, 1, NUM_MESSAGES) if method.exchanges else (0,):
        draws = GlobalDraws()
        with draws:
            first = _round(method, plugin, w, num_messages, facilities)
            second = _round(method, plugin, w, num_messages, facilities)
        if draws.found is not None:
            raise PluginError(plugin, draws.flaw)
        if not equal(first, second):
            flaw = "returns two different results for the same state and messages"
            raise PluginError(plugin, flaw)
        alone, together, *_ = first
        if not torch.allclose(together[0][0].w, alone[0].w, TOLERANCE, TOLERANCE):
            raise PluginError(plugin, "returns another model from 'update_together' than from 'update'")


def _round(method: Method, plugin: Plugin, w: Tensor, num_messages: int, facilities: Rehearsal) -> Any:
    """Return all results of a method in a round of client 0."""
    home = Home(0, 1, facilities)
    start = method.start(w.clone(), home)
    companion = method.work(start).companion
    own = _trained(w, 0, companion)
    state, payload = method.outgoing(start, own, home)
    received = []
    for sender in range(1, num_messages + 1):
        _, theirs = method.outgoing(method.start(w.clone(), home), _trained(w, sender, companion), home)
        received.append(Received(sender, 0, 1.0, theirs.vector, theirs.mask, theirs.is_moderate))
    given = (state, own, received)
    tensors = [state.w, own.w_tilde, *(message.vector for message in received)]
    untouched = [tensor.clone() for tensor in tensors]
    inspection = method.inspect(state, own, received, home) if received else None
    outcome = method.update(state, own, received, home)
    together = method.update_together([Case(*given, home), Case(*given, home)])
    if not equal(tensors, untouched):
        raise PluginError(plugin, "modifies a tensor that is an argument; it must work on a copy")
    return outcome, together, payload, inspection, method.origin(outcome[0]), method.expects(outcome[0])


def _trained(w: Tensor, client: int, companion: Tensor | None) -> Trained:
    """Return a possible outcome of local training."""
    step = torch.randn(w.shape, generator=torch.Generator().manual_seed(client)).to(w.device)
    return Trained(w - 0.01 * step, 1, 1.0, companion if companion is None else companion - 0.01 * step)
