"""Where a scenario breaks down, in words and numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import floor, log10
from statistics import fmean
from typing import Any

import rich.box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from rdpfl_sim.reports.sweeps import SweepProgress
from rdpfl_sim.reports.text import escape_control

SEEDS_A_TABLE = 6  # fit into 80 columns
WORDS = {"mean": "mean", "worst": "worst client's", "p10": "10th percentile of"}


class BreakdownProgress(SweepProgress):
    """The bar of a search: how much there is to do becomes known on the way."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, 0, 0)

    def expect(self, num_known: int, num_now: int, num_later: int) -> None:
        """So many runs are there already, so many begin now, and so many may follow."""
        self.num_done += num_known
        self.num_known += num_known
        self.num_runs = self.num_done + num_now + num_later
        self._show()


def opening(spec: Any) -> RenderableType:
    """What is going to be tried."""
    first, last = spec.values[0], spec.values[-1]
    return Text(
        f"{escape_control(spec.base.name)}: {escape_control(spec.path)} from {first:g} to {last:g} "
        f"({len(spec.values)} values), {_seeds(spec.seeds)}"
    )


def points_table(breakdown: Any) -> RenderableType:
    """The difference to local training at every value that was tried, a column a seed."""
    seeds = [crossing.seed for crossing in breakdown.crossings]
    chunks = [seeds[place : place + SEEDS_A_TABLE] for place in range(0, len(seeds), SEEDS_A_TABLE)]
    return Group(*(_table(breakdown, chunk, whole=chunk is chunks[-1]) for chunk in chunks))


def _table(breakdown: Any, seeds: Sequence[int], whole: bool) -> Table:
    """The columns of some seeds; `whole` adds the mean over all."""
    values, path = breakdown.spec.values, breakdown.spec.path
    table = Table(
        box=rich.box.SIMPLE_HEAD,
        title=f"{measure(breakdown.spec)} less local training, by {escape_control(path)}",
        title_justify="left",
    )
    table.add_column("value")
    for heading in (*(f"seed {seed}" for seed in seeds), *(["mean"] if whole else [])):
        table.add_column(heading, justify="right")
    differences = {(point.place, point.seed): point.difference for point in breakdown.points}
    for place in sorted({place for place, seed in differences if seed in seeds}):
        cells = [_cell(breakdown, differences.get((place, seed))) for seed in seeds]
        everyone = [differences.get((place, crossing.seed)) for crossing in breakdown.crossings]
        mean = None if None in everyone else fmean(found for found in everyone if found is not None)
        table.add_row(number(values[place]), *cells, *([_cell(breakdown, mean)] if whole else []))
    table.add_section()
    crossings = [crossing for crossing in breakdown.crossings if crossing.seed in seeds]
    table.add_row("holds up to", *(_place(values, c.holds, "nowhere") for c in crossings))
    table.add_row("below from", *(_place(values, c.below, "nowhere") for c in crossings))
    return table


def _cell(breakdown: Any, difference: float | None) -> Text:
    if difference is None:
        return Text("")
    return Text(f"{difference:+.4f}", style="red" if breakdown.spec.is_below(difference) else "")


def _place(values: Sequence[float], place: int | None, nowhere: str) -> str:
    return nowhere if place is None else number(values[place])


def verdict(breakdown: Any) -> RenderableType:
    """The answer in words, with everything that limits it."""
    lines = [Text(line) for line in sentences(breakdown)]
    lines[0].stylize("bold")
    return Group(*lines)


def sentences(breakdown: Any) -> list[str]:
    """The answer first, then what to know about it."""
    spec, num = breakdown.spec, len(breakdown.crossings)
    if not num:
        return ["No seed could be searched: all have failed runs."]
    margin = f" by more than {spec.margin:g}" if spec.margin else ""
    what = f"{measure(spec)} falls below local training{margin}"
    return [f"{what}: {answer(breakdown)}.", *_limits(breakdown)]


def answer(breakdown: Any) -> str:
    """Where it breaks down, in few words."""
    spec, num = breakdown.spec, len(breakdown.crossings)
    first, last = (number(spec.values[place]) for place in (0, -1))
    if len(breakdown.never) == num:
        return f"not up to {spec.path} = {last}, in none of {_count(num)}"
    if len(breakdown.always) == num:
        return f"already at {spec.path} = {first}, in all of {_count(num)}"
    if breakdown.estimate is None:
        return f"{_median(breakdown)}, median of {_count(num)}"
    return f"{spec.path} = {_interval(breakdown.estimate)}"


def _count(num: int) -> str:
    return f"{num} seed{'s' if num > 1 else ''}"


def _limits(breakdown: Any) -> Iterator[str]:
    spec, num = breakdown.spec, len(breakdown.crossings)
    first, last = (number(spec.values[place]) for place in (0, -1))
    censored = [*breakdown.always, *breakdown.never]
    if 0 < len(censored) < num or (breakdown.always and breakdown.never):
        if breakdown.always:
            yield f"Below already at {first}: {_seeds(breakdown.always)}."
        if breakdown.never:
            yield f"Still holding at {last}: {_seeds(breakdown.never)}."
        yield f"So there is no mean and no interval: {len(censored)} of {num} points lie outside the range."
    if breakdown.width:
        yield f"A seed's point is its first value below; the last that holds is {breakdown.width:.2g} away."
    if breakdown.without_effect:
        yield f"warning: both ends of the range give the same accuracy; does {spec.path} have any effect?"
    yield "Assumed: from one end of the range to the other, the difference changes its sign at most once."


def _median(breakdown: Any) -> str:
    values, path, place = breakdown.spec.values, breakdown.spec.path, breakdown.median
    if place is None:
        return f"beyond {path} = {number(values[-1])}"
    return f"{path} = {number(values[place])}{'' if place else ' or before'}"


def _interval(estimate: Any) -> str:
    if estimate.half_width is None:
        return f"{number(estimate.mean)} (one seed: no interval)"
    digits = max(0, 1 - floor(log10(estimate.half_width))) if estimate.half_width else 4
    interval = f"{estimate.mean:.{digits}f} ± {estimate.half_width:.{digits}f}"
    return f"{interval} (95 % interval over {estimate.num} seeds)"


def measure(spec: Any) -> str:
    """The metric in words.

    >>> from types import SimpleNamespace
    >>> measure(SimpleNamespace(metric="accuracy.honest.global.worst"))
    "Worst client's global accuracy of honest clients"
    """
    _, _, test, over = spec.metric.split(".")
    words = f"{WORDS[over]} {test} accuracy of honest clients"
    return words[0].upper() + words[1:]


def number(value: float) -> str:
    """A value in few digits.

    >>> number(0.30000000000000004), number(12.0), number(1234567)
    ('0.3', '12', '1.235e+06')
    """
    return f"{value:.4g}"


def _seeds(seeds: Iterable[int]) -> str:
    listed = list(seeds)
    return f"seed{'s' if len(listed) > 1 else ''} {', '.join(map(str, listed))}"
