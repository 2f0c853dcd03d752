"""What can be varied in a scenario, and through which values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import ceil, floor, log2
from pathlib import Path
from typing import Any

from rdpfl_sim.components.table import suggest
from rdpfl_sim.errors import Problem, ScenarioError
from rdpfl_sim.rounding import round_down, round_up
from rdpfl_sim.scenario.overrides import parse_override, reject_overrides
from rdpfl_sim.scenario.paths import get_value, leaves
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.sweeps.results import flat

NUM_PARTS = 32
"""A range is divided so finely unless a tolerance is given."""

MAX_VALUES = 1_000_000

RESERVED = {
    "seed": "--seeds stands in its place",
    "output.folder": "runs are written into the folder of --output",
}
"""What is decided by other arguments, and by which."""

_ATTACKERS = re.compile(r"adversary(\[\d+\])?\.fraction")


def problems(base: Scenario, path: str) -> Iterator[Problem]:
    """Why the path cannot be varied."""
    raw = base.to_dict()
    del raw["seed"]  # every value is tried with the same seeds
    if path.startswith("adversary") and not any(_attacks(group) for group in base.adversary):
        yield Problem(
            "adversary.attack", "nobody attacks; name an attack, such as --set adversary.attack=sign_flip"
        )
    elif not _is_number(get_value(raw, path)):
        section = path.partition(".")[0].partition("[")[0]
        numbers = [key for key, value in flat(raw).items() if _is_number(value)]
        near = [key for key in numbers if key.startswith(f"{section}.")] or numbers
        hint = suggest(path, near)
        yield Problem("--vary", f"the scenario has no such number (--set can give it one){hint}", path)


def _attacks(group: Any) -> bool:
    return any(part.name != "none" for part in (group.attack, group.timing, group.equivocation))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def reject_lost_overrides(
    file: Path, overrides: Sequence[str], path: str, start: float | None, end: float | None
) -> None:
    """Raise a `ScenarioError` if an override has no effect because its path is varied.

    It has one if the range follows from it, or if the scenario has no such number without it.
    """
    reject_overrides(dict(map(parse_override, overrides)), RESERVED)
    if (start is not None and end is not None) or _has_range_of_its_own(path):
        for place, override in enumerate(overrides):
            given, value = parse_override(override)
            found = leaves(value, (given,))
            others = [*overrides[:place], *overrides[place + 1 :]]
            if path in found and _has_number(file, others, path):
                problem = Problem(path, "the override is lost, because --vary replaces it", found[path])
                raise ScenarioError([problem])


def _has_number(file: Path, overrides: Sequence[str], path: str) -> bool:
    try:
        return _is_number(get_value(Scenario.load(file, overrides).to_dict(), path))
    except ScenarioError:
        return False


def _has_range_of_its_own(path: str) -> bool:
    """Return whether a path is varied from 0 on, whatever its value is."""
    return bool(_ATTACKERS.fullmatch(path)) or path.rpartition(".")[2] in ("probability", "duplication")


def usual_range(base: Scenario, path: str) -> tuple[float | None, float | None]:
    """Where to look unless told otherwise: attackers 0 to 0.5, probabilities 0 to 0.9, else up to tenfold."""
    key, value = path.rpartition(".")[2], get_value(base.to_dict(), path)
    if _has_range_of_its_own(path):
        return 0.0, 0.5 if _ATTACKERS.fullmatch(path) else 0.9
    return (value, 10 * value) if value > 0 and key != "fraction" else (None, None)


def values(
    base: Scenario,
    path: str,
    start: float | None = None,
    end: float | None = None,
    tolerance: float | None = None,
) -> Sequence[float]:
    """The values that can be told apart, from start to end.

    A fraction of attackers stands for whole clients, a whole number is whole; anything else is divided into
    2^n parts that are not longer than the tolerance.
    """
    usual_start, usual_end = usual_range(base, path)
    start, end = usual_start if start is None else start, usual_end if end is None else end
    if start is None or end is None:
        raise ScenarioError([Problem("--vary", "needs --from and --to", path)])
    found = _between(base, path, min(start, end), max(start, end), tolerance)
    if len(found) < 2:
        raise ScenarioError([Problem("--from, --to", f"no two values of {path} are between", (start, end))])
    return found if start < end else found[::-1]


def _between(base: Scenario, path: str, low: float, high: float, tolerance: float | None) -> Sequence[float]:
    num_clients = base.clients.count
    if _ATTACKERS.fullmatch(path):
        counts = range(round_up(low * num_clients), round_down(high * num_clients) + 1)
        return [num / num_clients for num in counts]
    if isinstance(get_value(base.to_dict(), path), int):
        return range(ceil(low), floor(high) + 1)
    if low == high:
        return [low]
    tolerance = tolerance or (high - low) / NUM_PARTS
    num_parts = 2 ** max(1, round_up(log2((high - low) / tolerance)))
    if num_parts > MAX_VALUES:
        raise ScenarioError([Problem("--tolerance", "is too small for this range", tolerance)])
    return [float(f"{low + (high - low) * part / num_parts:.12g}") for part in range(num_parts + 1)]
