"""When Byzantine clients attack; at all other times they behave like honest ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from rdpfl_sim.components.options import Count, Doc, NonNegative, Positive
from rdpfl_sim.components.registry import Facts, Registry

SCHEDULES = Registry("attack_schedule", Facts)
attack_schedule = SCHEDULES.register


@dataclass(frozen=True)
class ScheduleView:
    """What a Byzantine client knows when it decides whether to attack."""

    round: int
    time_s: float
    partitioned: bool
    """Whether a partition lasts at the moment."""
    num_trusted: Callable[[], int]
    """How many of its messages its honest neighbours have used so far."""


Schedule: TypeAlias = Callable[[ScheduleView], bool]


@attack_schedule
def always(moment: ScheduleView) -> bool:
    """In every round."""
    return True


@attack_schedule
def window(
    moment: ScheduleView,
    *,
    from_round: Count = 1,
    until_round: Annotated[
        Count | None, Doc("the last round of the attack; by default it never ends")
    ] = None,
    from_s: NonNegative = 0.0,
    until_s: Positive | None = None,
) -> bool:
    """From one round or time to another; both conditions hold."""
    by_round = from_round <= moment.round and (until_round is None or moment.round <= until_round)
    by_time = from_s <= moment.time_s and (until_s is None or moment.time_s < until_s)
    return by_round and by_time


@attack_schedule
def intermittent(moment: ScheduleView, *, rounds_on: Count = 5, rounds_off: Count = 5) -> bool:
    """In turns: so many rounds of attack, then so many of good behaviour."""
    return (moment.round - 1) % (rounds_on + rounds_off) < rounds_on


@attack_schedule
def during_partitions(moment: ScheduleView) -> bool:
    """Only while a partition lasts, when clients have the fewest honest voices to compare with."""
    return moment.partitioned


@attack_schedule
def sleeper(
    moment: ScheduleView,
    *,
    messages: Annotated[Count, Doc("honest messages that its neighbours must have used")] = 50,
) -> bool:
    """Honest until its neighbours have used enough of its messages to trust it."""
    return moment.num_trusted() >= messages
