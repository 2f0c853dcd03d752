"""Computing the updates of many clients in groups of those that are alike."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeAlias

from rdpfl_sim.methods.base import Case, Diagnostics, Method, State, update_one

MAX_FLOATS = 1 << 20
"""So many numbers of models and messages are in use at a time: more would not stay near the processor."""

Outcome: TypeAlias = tuple[State, Diagnostics]


def in_groups(
    method: Method,
    cases: Sequence[Case],
    kind: Callable[[Case], Hashable],
    update_alike: Callable[[Sequence[Case]], list[Outcome]],
) -> list[Outcome]:
    """The outcome of every case: those of one kind are updated together, those whose kind is None alone.

    `update_alike` gets cases of one kind and with the same number of messages, at least one, all moderate.
    """
    places_of: dict[Hashable, list[int]] = {}
    for place, case in enumerate(cases):
        num = len(case.received)
        key = kind(case) if num and all(message.is_moderate for message in case.received) else None
        places_of.setdefault(key if key is None else (num, key), []).append(place)
    outcomes: dict[int, Outcome] = {}
    for place in places_of.pop(None, []):
        outcomes[place] = update_one(method, cases[place])
    for places in places_of.values():
        room = _room(cases[places[0]])
        for start in range(0, len(places), room):
            group = places[start : start + room]
            outcomes.update(zip(group, update_alike([cases[place] for place in group]), strict=True))
    return [outcomes[place] for place in range(len(cases))]


def _room(case: Case) -> int:
    """How many clients are computed at a time: each has its messages, and about ten vectors besides."""
    return max(1, MAX_FLOATS // ((len(case.received) + 10) * case.state.w.numel()))
