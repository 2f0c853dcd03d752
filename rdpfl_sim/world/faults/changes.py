"""What can change in the world while a run lasts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Clients: TypeAlias = tuple[int, ...]
Links: TypeAlias = tuple[tuple[int, int], ...]
Sides: TypeAlias = tuple[frozenset[int], ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """From now on messages between different sides are lost; clients on no side are not concerned."""

    sides: Sides


@dataclass(frozen=True, slots=True)
class Heal:
    """A cut between these sides ends."""

    sides: Sides


@dataclass(frozen=True, slots=True)
class LinksDown:
    """From now on messages on these links, pairs (sender, recipient), are lost."""

    links: Links


@dataclass(frozen=True, slots=True)
class LinksUp:
    """An outage of these links ends."""

    links: Links


@dataclass(frozen=True, slots=True)
class Crash:
    """These clients stop, perhaps for good."""

    clients: Clients
    for_good: bool


@dataclass(frozen=True, slots=True)
class Recover:
    """Crashed clients go on, with a fresh model or their own.

    With `catch_up` they go on at the round of their furthest neighbour, else at their own.
    """

    clients: Clients
    fresh: bool
    catch_up: bool


@dataclass(frozen=True, slots=True)
class Absent:
    """These clients are not there yet."""

    clients: Clients


@dataclass(frozen=True, slots=True)
class Join:
    """Absent clients begin."""

    clients: Clients


@dataclass(frozen=True, slots=True)
class Leave:
    """These clients are gone for good."""

    clients: Clients


@dataclass(frozen=True, slots=True)
class Slow:
    """From now on these clients' training takes `factor` times as long."""

    clients: Clients
    factor: float


@dataclass(frozen=True, slots=True)
class Unslow:
    """A slow-down of these clients by `factor` ends."""

    clients: Clients
    factor: float


@dataclass(frozen=True, slots=True)
class Rewire:
    """From now on these are the neighbours of every client."""

    neighbours: tuple[tuple[int, ...], ...]


Change: TypeAlias = (
    Cut | Heal | LinksDown | LinksUp | Crash | Recover | Absent | Join | Leave | Slow | Unslow | Rewire
)
