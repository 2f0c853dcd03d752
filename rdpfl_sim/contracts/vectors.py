"""The contracts of attacks, equivocations, aggregators and pre-aggregators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rdpfl_sim.contracts.contract import Arguments, Contract, describe, tensor_flaw, vector_flaw
from rdpfl_sim.maths.aggregators import AGGREGATORS, aggregate
from rdpfl_sim.maths.aggregators.aggregation import aggregator_weights, pre_aggregator_weights
from rdpfl_sim.maths.attacks import ATTACKS, View
from rdpfl_sim.methods.payload import squares_finite

SIZE = 6
"""Size of the vectors on which plug-ins are tried."""
NUM_MESSAGES = (1, 2, 3, 8)
"""Numbers of messages on which aggregators are tried."""


class AttackContract(Contract):
    """A vector like the own update, from what the attacker knows."""

    def samples(self, target: Callable[..., Any]) -> Iterator[Callable[[], Arguments]]:
        """Return views with one and several honest updates, of methods that send directions or models."""
        needs = ATTACKS.facts_of(target).needs
        for num_honest in (0,) if needs == "own" else (1, 4):
            for origin in (None, vector(9)):
                yield partial(self._view, num_honest, origin, knows_victim=False)
                if needs == "victim":
                    yield partial(self._view, num_honest, origin, knows_victim=True)

    def flaw(self, arguments: Arguments, result: Any) -> str | None:
        """Check that mailboxes would accept the vector."""
        view: View = arguments[0]
        known = [] if view.seen is None else [*view.seen]
        known += [v for v in (view.own, view.victim, view.expected, view.origin) if v is not None]
        return vector_flaw(result, view.own, finite=are_moderate(*known))

    def unchanged(self, arguments: Arguments) -> Any:
        """Return all but the memory, which is there to be modified."""
        return replace(arguments[0], memory={})

    def _view(self, num_honest: int, origin: Tensor | None, *, knows_victim: bool) -> Arguments:
        view = View(
            own=vector(1),
            seen=rows(num_honest) if num_honest else None,
            ids=range(num_honest),
            victim=vector(2) if knows_victim else None,
            expected=vector(3) if knows_victim else None,
            num_byzantine=2,
            round=3,
            seed=5,
            origin=origin,
        )
        return (view,)


class MalformedAttackContract(AttackContract):
    """Any tensor, from what the attacker knows."""

    def flaw(self, arguments: Arguments, result: Any) -> str | None:
        """Check that it is a tensor."""
        return None if isinstance(result, Tensor) else f"returns {describe(result)}, not a tensor"


class EquivocationContract(Contract):
    """A vector like the message, from the update, the message and a draw."""

    def samples(self, target: Callable[..., Any]) -> Iterator[Callable[[], Arguments]]:
        """Return a small and a large draw."""
        for draw in (0.1, 0.9):
            yield lambda draw=draw: (vector(1), vector(2), draw)  # type: ignore[misc]

    def flaw(self, arguments: Arguments, result: Any) -> str | None:
        """Check that the vector is like the message."""
        return vector_flaw(result, arguments[1], finite=are_moderate(*arguments[:2]))


class AggregatorContract(Contract):
    """One vector (d,) from the messages (m, d); with `rows`, vectors (n, d) from messages (n, m, d)."""

    def samples(self, target: Callable[..., Any]) -> Iterator[Callable[[], Arguments]]:
        """Return one, two and more messages, for two clients if the aggregator takes rows."""
        facts = AGGREGATORS.facts_of(target)
        for num in NUM_MESSAGES:
            yield partial(self._messages, num, facts.needs_own, num_clients=2 if facts.rows else None)

    def flaw(self, arguments: Arguments, result: Any) -> str | None:
        """Check shape, type and finiteness."""
        u: Tensor = arguments[0]
        shape = (*u.shape[:-2], u.shape[-1])
        return tensor_flaw(result, shape, u, finite=are_moderate(*u.flatten(0, -2)))

    def declared_flaw(self, component: Callable[..., Any]) -> str | None:
        """Check that the result is the sum of the messages with the weights that are declared."""
        for num in NUM_MESSAGES:
            u = rows(num)[:, :1].repeat(1, SIZE)  # equal coordinates have equal weights
            weights = self._weights(component, u)
            flaw = None if weights is None else weights_flaw(weights, u, self._result(component, u))
            if flaw is not None:
                return f"declares a function `weights` that {flaw}"
        return None

    def _weights(self, component: Callable[..., Any], u: Tensor) -> Tensor | None:
        return aggregator_weights(component, u, vector(1))

    def _result(self, component: Callable[..., Any], u: Tensor) -> Tensor:
        return aggregate(component, u, vector(1))

    def _messages(self, num: int, needs_own: bool, *, num_clients: int | None) -> Arguments:
        u, own = rows(num), vector(1)
        if num_clients is not None:
            u, own = (tensor.expand(num_clients, *tensor.shape).clone() for tensor in (u, own))
        return (u, own) if needs_own else (u,)


class PreAggregatorContract(AggregatorContract):
    """New rows (m, d), m >= 1, from the rows (n, d)."""

    def flaw(self, arguments: Arguments, result: Any) -> str | None:
        """Check shape, type and finiteness."""
        u: Tensor = arguments[0]
        if not isinstance(result, Tensor) or result.dim() != 2 or len(result) == 0:
            shape = f"shape {list(result.shape)}" if isinstance(result, Tensor) else describe(result)
            return f"returns {shape}; it must return rows [m, {u.shape[1]}], at least one"
        return tensor_flaw(result, (len(result), u.shape[1]), u, finite=are_moderate(*u))

    def _weights(self, component: Callable[..., Any], u: Tensor) -> Tensor | None:
        return pre_aggregator_weights(component, u)

    def _result(self, component: Callable[..., Any], u: Tensor) -> Tensor:
        rows: Tensor = component(u)
        return rows


def weights_flaw(weights: Any, u: Tensor, result: Tensor) -> str | None:
    """Return what is wrong with the weights of messages (m, d) in a vector (d,) or in new rows (k, d)."""
    flaw = tensor_flaw(weights, (*result.shape[:-1], len(u)), u.double(), finite=True)
    if flaw is None and bool((weights < 0).any()):
        return "returns negative weights"
    if flaw is None and not torch.allclose(weights @ u.double(), result.double(), rtol=1e-3, atol=1e-3):
        return "does not give the result as a weighted sum of the messages"
    return flaw


def vector(seed: int) -> Tensor:
    """Return a vector of ordinary numbers."""
    return torch.randn(SIZE, generator=torch.Generator().manual_seed(seed))


def rows(num: int) -> Tensor:
    """Return ordinary messages."""
    return torch.stack([vector(10 + row) for row in range(num)])


def are_moderate(*vectors: Tensor) -> bool:
    """Return whether sums of these vectors cannot overflow."""
    return all(map(squares_finite, vectors))
