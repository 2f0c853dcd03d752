"""Start and end times of faults, given or drawn at random."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from rdpfl_sim.errors import OptionError
from rdpfl_sim.randomness import uniform
from rdpfl_sim.world.faults.fault import End, Fault, Schedule, Start
from rdpfl_sim.world.quantiles import exponential


def once(fault: Fault, from_s: float, until_s: float | None) -> Schedule:
    """Start a fault, and end it unless until_s is None."""
    if until_s is None:
        return iter([(from_s, Start(fault))])
    if until_s <= from_s:
        raise OptionError("until_s", f"must be after from_s = {from_s:g}")
    return iter([(from_s, Start(fault)), (until_s, End(fault))])


def random_intervals(key: int, mean_between_s: float, mean_length_s: float) -> Iterator[tuple[float, float]]:
    """Yield the start and end of successive intervals, with exponential lengths and pauses."""
    end_s = 0.0
    for number in count():
        start_s = end_s + exponential(uniform(key, 2 * number), mean_between_s)
        end_s = start_s + exponential(uniform(key, 2 * number + 1), mean_length_s)
        yield start_s, end_s
