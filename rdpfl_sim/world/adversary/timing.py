"""Timing attacks: when a Byzantine client sends, to which recipients, how often, and which round it claims.

A timing attack replaces the message that is due to a recipient with any number of messages, each with a stamp
and a delay. It does not depend on the content, so it can be combined with every attack.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from annotated_types import Ge, Le

from rdpfl_sim.components.options import ClientSet, Count, Doc, Fraction, NonNegative, client_ids
from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.methods.base import Payload
from rdpfl_sim.randomness import uniform
from rdpfl_sim.world.waiting import Wait

MEMORY_ROUNDS = 16
"""Number of rounds for which a client keeps its own messages, to send them again."""


@dataclass(frozen=True)
class TimingView:
    """A message that is due: the input of a timing attack.

    `deadline_s` is the time when the recipient stops waiting in this round, or None if it is unknown.
    `past` contains the payloads for this recipient by round, including the current round. `key` identifies a
    random stream of the sender.
    """

    round: int
    recipient: int
    now_s: float
    deadline_s: float | None
    past: dict[int, Payload]
    key: int
    num_clients: int

    @property
    def payload(self) -> Payload:
        """The payload that the content attack computed in this round."""
        return self.past[self.round]


@dataclass(frozen=True)
class ScheduledMessage:
    """A payload, the round that it claims, and its delay."""

    payload: Payload
    stamp: int
    delay_s: float = 0.0


TimingAttack: TypeAlias = Callable[[TimingView], list[ScheduledMessage]]


@dataclass(frozen=True, kw_only=True)
class TimingFacts(Facts):
    """Metadata of a timing attack, set by its decorator."""

    withholds: bool = False
    """Whether a recipient may receive no message for its round."""
    needs_past: bool = False
    """Whether the attack sends payloads of earlier rounds."""
    needs_deadline: bool = False
    """Whether clients must stop waiting at a known time."""


TIMING_ATTACKS = Registry("timing_attack", TimingFacts)
timing_attack = TIMING_ATTACKS.register


def patience_s(wait: Wait) -> float | None:
    """Return how long an attacker waits for honest updates by default; None for no limit."""
    if wait.fraction == 0:
        return 0.0  # honest clients do not wait for an attacker's message
    return None if wait.timeout_s is None else wait.timeout_s / 2


@timing_attack(name="none")
def immediate(view: TimingView) -> list[ScheduledMessage]:
    """Send immediately, like an honest client."""
    return [ScheduledMessage(view.payload, view.round)]


@timing_attack(withholds=True)
def silent(view: TimingView) -> list[ScheduledMessage]:
    """Send nothing."""
    return []


def _check_victims(options: Any, num_clients: int) -> None:
    if options.victims is not None:
        client_ids("victims", options.victims, num_clients)


@timing_attack(withholds=True, check=_check_victims, replaces={"victims": "fraction"})
def selective(
    view: TimingView,
    *,
    victims: Annotated[ClientSet | None, Doc("clients that receive nothing; replaces fraction")] = None,
    fraction: Annotated[
        Fraction, Doc("share of the recipients that receive nothing, the same in every round")
    ] = 0.5,
) -> list[ScheduledMessage]:
    """Send nothing to some recipients, and immediately to the others."""
    if victims is None:
        chosen = uniform(view.key, view.recipient) < fraction
    else:
        chosen = view.recipient in client_ids("victims", victims, view.num_clients)
    return [] if chosen else immediate(view)


@timing_attack(withholds=True, needs_deadline=True)
def just_in_time(
    view: TimingView,
    *,
    margin_s: Annotated[
        NonNegative, Doc("time from sending to the deadline, including the delay of the link")
    ] = 0.2,
) -> list[ScheduledMessage]:
    """Send as late as the recipient's deadline allows, so that the recipient cannot proceed earlier."""
    if view.deadline_s is None:
        return immediate(view)
    delay_s = max(0.0, view.deadline_s - margin_s - view.now_s)
    return [ScheduledMessage(view.payload, view.round, delay_s)]


@timing_attack
def delayed(
    view: TimingView, *, seconds: Annotated[NonNegative, Doc("time before every message is sent")] = 1.0
) -> list[ScheduledMessage]:
    """Send with a fixed delay."""
    return [ScheduledMessage(view.payload, view.round, seconds)]


@timing_attack(withholds=True, needs_past=True)
def replay(
    view: TimingView,
    *,
    age: Annotated[int, Ge(1), Le(MEMORY_ROUNDS - 1), Doc("age of the message, in rounds")] = 5,
    stamp: Annotated[Literal["fresh", "old"], Doc("claim the current round or the true one")] = "fresh",
) -> list[ScheduledMessage]:
    """Send an old message again; if there is none yet, send the current one."""
    old = view.round - age
    if old not in view.past:
        return immediate(view)
    return [ScheduledMessage(view.past[old], view.round if stamp == "fresh" else old)]


@timing_attack(withholds=True)
def wrong_stamp(
    view: TimingView,
    *,
    offset: Annotated[
        int, Ge(-1_000_000), Le(1_000_000), Doc("added to the true round; positive values claim later rounds")
    ] = 3,
) -> list[ScheduledMessage]:
    """Claim a round that differs from the true one."""
    return [ScheduledMessage(view.payload, view.round + offset)]


@timing_attack
def flood(
    view: TimingView,
    *,
    copies: Annotated[Count, Le(10_000), Doc("messages per recipient and round")] = 20,
    stamps: Annotated[
        Literal["same", "spread"], Doc("all for this round, or one for each round from this one on")
    ] = "spread",
) -> list[ScheduledMessage]:
    """Send many messages instead of one."""
    step = 1 if stamps == "spread" else 0
    return [ScheduledMessage(view.payload, view.round + step * k) for k in range(copies)]
