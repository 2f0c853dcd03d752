"""Attack schedules: when Byzantine clients attack. At other times they behave like honest ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from rdpfl_sim.components.options import Count, Doc, NonNegative, Positive
from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.errors import OptionError


@dataclass(frozen=True, kw_only=True)
class ScheduleFacts(Facts):
    """Metadata of an attack schedule, set by its decorator."""

    first_round: str | None = None
    """The option that is the first round of the attack."""
    needs_partitions: bool = False
    """Whether the attack is active only during partitions."""


SCHEDULES = Registry("attack_schedule", ScheduleFacts)
attack_schedule = SCHEDULES.register


@dataclass(frozen=True)
class ScheduleView:
    """The situation of a Byzantine client: the input of a schedule. `Adversary.is_active` observes it."""

    round: int
    time_s: float
    partitioned: bool
    """Whether a partition is active."""
    num_trusted: Callable[[], int]
    """Returns the number of the client's messages that honest neighbours have used so far."""


AttackSchedule: TypeAlias = Callable[[ScheduleView], bool]


@attack_schedule
def always(view: ScheduleView) -> bool:
    """Attack in every round."""
    return True


def _check_window(options: Any, num_clients: int) -> None:
    if options.until_round is not None and options.until_round < options.from_round:
        raise OptionError("until_round", f"must be after from_round = {options.from_round}")
    if options.until_s is not None and options.until_s <= options.from_s:
        raise OptionError("until_s", f"must be after from_s = {options.from_s}")


@attack_schedule(first_round="from_round", check=_check_window)
def window(
    view: ScheduleView,
    *,
    from_round: Annotated[Count, Doc("first round of the attack")] = 1,
    until_round: Annotated[Count | None, Doc("last round of the attack; by default unlimited")] = None,
    from_s: Annotated[NonNegative, Doc("simulated time at which the attack begins")] = 0.0,
    until_s: Annotated[Positive | None, Doc("time at which it ends; by default unlimited")] = None,
) -> bool:
    """Attack in a range of rounds and of simulated time; both conditions must hold."""
    by_round = from_round <= view.round and (until_round is None or view.round <= until_round)
    by_time = from_s <= view.time_s and (until_s is None or view.time_s < until_s)
    return by_round and by_time


@attack_schedule
def intermittent(
    view: ScheduleView,
    *,
    rounds_on: Annotated[Count, Doc("rounds with the attack, the first ones included")] = 5,
    rounds_off: Annotated[Count, Doc("rounds without it that follow")] = 5,
) -> bool:
    """Alternate between rounds with and without the attack."""
    return (view.round - 1) % (rounds_on + rounds_off) < rounds_on


@attack_schedule(needs_partitions=True)
def during_partitions(view: ScheduleView) -> bool:
    """Attack only during partitions, when clients receive the fewest honest messages."""
    return view.partitioned


@attack_schedule
def sleeper(
    view: ScheduleView,
    *,
    messages: Annotated[Count, Doc("messages that honest neighbours must use before the attack")] = 50,
) -> bool:
    """Behave honestly until honest neighbours have used a given number of the client's messages."""
    return view.num_trusted() >= messages
