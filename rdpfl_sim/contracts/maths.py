"""The contracts of attacks, equivocations, aggregators and pre-aggregators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import cast

import torch
from torch import Tensor

from rdpfl_sim.aggregators import AGGREGATORS, PRE_AGGREGATORS, aggregate
from rdpfl_sim.aggregators.aggregation import (
    aggregator_weights,
    pre_aggregate,
    pre_aggregator_weights,
)
from rdpfl_sim.aggregators.aggregator import FixedSeed, generator_of
from rdpfl_sim.attacks import ATTACKS, View
from rdpfl_sim.components.registry import Target
from rdpfl_sim.contracts.call_checks import Arguments, Contract, FlawError, check_tensor, check_type, describe
from rdpfl_sim.methods.base import squares_finite

SIZE = 6
"""Size of the vectors for testing plug-ins."""
NUM_MESSAGES = (1, 2, 3, 8, 13)
"""Numbers of messages for testing aggregators."""
CLIENT = FixedSeed(5)


def _attack_samples(attack: Target) -> Iterator[Arguments]:
    """Yield views with one and several honest updates, for methods that send directions or models."""
    needs = ATTACKS.facts_of(attack).needs
    nums_honest = (0,) if needs == "own" else (1, 4)
    for num_honest, origin, knows_victim in product(nums_honest, (None, vector(9)), (False, True)):
        if knows_victim and needs != "victim":
            continue
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
        yield (view,)


def _check_attack(result: object, view: View) -> None:
    """Check that a mailbox would accept the vector."""
    known = [] if view.seen is None else [*view.seen]
    known += [v for v in (view.own, view.victim, view.expected, view.origin) if v is not None]
    check_tensor(result, tuple(view.own.shape), view.own, finite=are_moderate(*known))


def _check_malformed(result: object, view: View) -> None:
    check_type(result, Tensor, "a tensor")


def _check_equivocation(result: object, update: Tensor, message: Tensor, draw: float) -> None:
    check_tensor(result, tuple(message.shape), message, finite=are_moderate(update, message))


def _message_samples(aggregator: Target) -> Iterator[Arguments]:
    """Yield one, two and more messages, for two clients if the aggregator expects rows."""
    facts = AGGREGATORS.facts_of(aggregator)
    for num in NUM_MESSAGES:
        u, own, draws = rows(num), vector(1), cast("object", _generator())
        if facts.rows:
            u, own, draws = u.repeat(2, 1, 1), own.repeat(2, 1), [_generator(), _generator()]
        yield (u, *[own] * facts.needs_own, *[draws] * facts.needs_generator)


def _pre_aggregator_samples(pre_aggregator: Target) -> Iterator[Arguments]:
    """Yield one, two and more messages."""
    facts = PRE_AGGREGATORS.facts_of(pre_aggregator)
    return ((rows(num), *[_generator()] * facts.needs_generator) for num in NUM_MESSAGES)


def _generator() -> torch.Generator:
    return generator_of(CLIENT, "")


def _check_aggregate(result: object, u: Tensor, *others: object) -> None:
    check_tensor(result, (*u.shape[:-2], u.shape[-1]), u, finite=are_moderate(*u.flatten(0, -2)))


def _check_rows(result: object, u: Tensor, *others: object) -> None:
    if not isinstance(result, Tensor) or result.dim() != 2 or len(result) == 0:
        shape = f"shape {list(result.shape)}" if isinstance(result, Tensor) else describe(result)
        raise FlawError(f"returns {shape}; expected shape [m, {u.shape[1]}] with at least one row")
    check_tensor(result, (len(result), u.shape[1]), u, finite=are_moderate(*u))


def _check_aggregator_weights(aggregator: Target) -> None:
    for u in _rows_of_equal_coordinates():
        weights = aggregator_weights(aggregator, u, vector(1), CLIENT)
        if weights is not None:
            _check_weights(weights, u, aggregate(aggregator, u, vector(1), CLIENT))


def _check_pre_aggregator_weights(pre_aggregator: Target) -> None:
    for u in _rows_of_equal_coordinates():
        weights = pre_aggregator_weights(pre_aggregator, u, CLIENT)
        if weights is not None:
            _check_weights(weights, u, pre_aggregate(pre_aggregator, u, CLIENT, 0))


def _rows_of_equal_coordinates() -> Iterator[Tensor]:
    """Yield messages (m, d) in which all coordinates have the same weights."""
    return (rows(num)[:, :1].repeat(1, SIZE) for num in NUM_MESSAGES)


def _check_weights(weights: Tensor, u: Tensor, result: Tensor) -> None:
    """Check the weights of messages (m, d) in an aggregate (d,) or in new rows (k, d)."""
    try:
        check_tensor(weights, (*result.shape[:-1], len(u)), u.double(), finite=True)
        if bool((weights < 0).any()):
            raise FlawError("returns negative weights")
        if not torch.allclose(weights @ u.double(), result.double(), rtol=1e-3, atol=1e-3):
            raise FlawError("returns weights for which the weighted sum of the messages is not the result")
    except FlawError as error:
        raise FlawError(f"declares a function `weights` that {error}") from error


def vector(seed: int) -> Tensor:
    """Return a vector of moderate numbers."""
    return torch.randn(SIZE, generator=torch.Generator().manual_seed(seed))


def rows(num: int) -> Tensor:
    """Return messages of moderate numbers."""
    return torch.stack([vector(10 + row) for row in range(num)])


def are_moderate(*vectors: Tensor) -> bool:
    """Return whether sums of these vectors cannot overflow."""
    return all(map(squares_finite, vectors))


ATTACK = Contract(
    check=_check_attack,
    samples=_attack_samples,
    randomness="draw with generator=view.generator",
    unchanged=lambda view: (replace(view, memory={}),),  # attacks may modify their memory
)
MALFORMED_ATTACK = replace(ATTACK, check=_check_malformed)

MATHS_CONTRACTS: Mapping[str, Contract] = {
    "attack": ATTACK,
    "equivocation": Contract(
        check=_check_equivocation,
        samples=lambda target: [(vector(1), vector(2), draw) for draw in (0.1, 0.9)],
        randomness="its third argument is a random number between 0 and 1",
    ),
    "aggregator": Contract(
        check=_check_aggregate,
        samples=_message_samples,
        randomness="declare it with @aggregator(needs_generator=True) and draw from its last argument",
        check_declarations=_check_aggregator_weights,
    ),
    "pre_aggregator": Contract(
        check=_check_rows,
        samples=_pre_aggregator_samples,
        randomness="declare it with @pre_aggregator(needs_generator=True) and draw from its last argument",
        check_declarations=_check_pre_aggregator_weights,
    ),
}
