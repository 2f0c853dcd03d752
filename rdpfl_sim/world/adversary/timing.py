"""Lies about time: when a Byzantine client sends, to whom, how often, and which round it claims.

A timing attack turns the one message that a client owes to a recipient into any number of parcels, each with
a stamp and a delay. It is independent of what the message says, so every one composes with every attack.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from annotated_types import Ge, Le

from rdpfl_sim.components.options import ClientSet, Count, Doc, Fraction, NonNegative, client_ids
from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.methods.payload import Payload
from rdpfl_sim.randomness import uniform

MEMORY_ROUNDS = 16
"""How many rounds of its own messages a client remembers, to send them again."""


@dataclass(frozen=True)
class TimingView:
    """A message that is due: what a timing attack knows when it decides.

    `deadline_s` is when the recipient will stop waiting for this round, if that is known; `past` are the
    payloads that the client had for this recipient, by round, the present one included. `key` names a random
    stream that belongs to the sender.
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
        """What the content attack wants to say in this round."""
        return self.past[self.round]


@dataclass(frozen=True)
class ScheduledMessage:
    """A payload, the round that it claims to be of, and how long it is held back."""

    payload: Payload
    stamp: int
    delay_s: float = 0.0


TimingAttack: TypeAlias = Callable[[TimingView], list[ScheduledMessage]]


@dataclass(frozen=True, kw_only=True)
class TimingFacts(Facts):
    """What the simulator must know about a timing attack."""

    withholds: bool = False
    """Whether a recipient may wait in vain for a message of its round."""
    needs_past: bool = False
    """Whether it sends payloads of earlier rounds."""


TIMING_ATTACKS = Registry("timing_attack", TimingFacts)
timing_attack = TIMING_ATTACKS.register


@timing_attack(name="none")
def prompt(occasion: TimingView) -> list[ScheduledMessage]:
    """At once, like an honest client."""
    return [ScheduledMessage(occasion.payload, occasion.round)]


@timing_attack(withholds=True)
def silent(occasion: TimingView) -> list[ScheduledMessage]:
    """Never: everybody waits in vain."""
    return []


@timing_attack(withholds=True)
def selective(
    occasion: TimingView,
    *,
    victims: Annotated[ClientSet | None, Doc("who hears nothing; in place of fraction")] = None,
    fraction: Annotated[Fraction, Doc("of the recipients hear nothing, the same ones in every round")] = 0.5,
) -> list[ScheduledMessage]:
    """Silent towards some, prompt towards the others."""
    if victims is None:
        chosen = uniform(occasion.key, occasion.recipient) < fraction
    else:
        chosen = occasion.recipient in client_ids("victims", victims, occasion.num_clients)
    return [] if chosen else prompt(occasion)


@timing_attack(withholds=True)
def just_in_time(
    occasion: TimingView,
    *,
    margin_s: Annotated[
        NonNegative, Doc("how long before the deadline it is sent; the link needs a part of it")
    ] = 0.2,
) -> list[ScheduledMessage]:
    """As late as the recipient's deadline allows, so that nobody can go on earlier."""
    if occasion.deadline_s is None:
        return prompt(occasion)
    delay_s = max(0.0, occasion.deadline_s - margin_s - occasion.now_s)
    return [ScheduledMessage(occasion.payload, occasion.round, delay_s)]


@timing_attack
def delayed(occasion: TimingView, *, seconds: NonNegative = 1.0) -> list[ScheduledMessage]:
    """Always so many seconds late."""
    return [ScheduledMessage(occasion.payload, occasion.round, seconds)]


@timing_attack(withholds=True, needs_past=True)
def replay(
    occasion: TimingView,
    *,
    age: Annotated[int, Ge(1), Le(MEMORY_ROUNDS - 1), Doc("how many rounds old the message is")] = 5,
    stamp: Annotated[Literal["fresh", "old"], Doc("claims this round, or admits its age")] = "fresh",
) -> list[ScheduledMessage]:
    """An old message again; prompt until it has one that is old enough."""
    old = occasion.round - age
    if old not in occasion.past:
        return prompt(occasion)
    return [ScheduledMessage(occasion.past[old], occasion.round if stamp == "fresh" else old)]


@timing_attack(withholds=True)
def wrong_stamp(
    occasion: TimingView,
    *,
    offset: Annotated[
        int, Ge(-1_000_000), Le(1_000_000), Doc("added to the true round; positive claims the future")
    ] = 3,
) -> list[ScheduledMessage]:
    """Claims another round than its own."""
    return [ScheduledMessage(occasion.payload, occasion.round + offset)]


@timing_attack
def flood(
    occasion: TimingView,
    *,
    copies: Annotated[Count, Le(10_000), Doc("messages to each recipient in each round")] = 20,
    stamps: Annotated[
        Literal["same", "spread"], Doc("all for this round, or one for each of the rounds from this one on")
    ] = "spread",
) -> list[ScheduledMessage]:
    """Many messages instead of one."""
    step = 1 if stamps == "spread" else 0
    return [ScheduledMessage(occasion.payload, occasion.round + step * k) for k in range(copies)]
