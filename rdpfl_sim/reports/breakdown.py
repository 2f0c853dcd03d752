"""The result of a breakdown search as text, tables and a figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import floor, log10
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import rich.box
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rdpfl_sim.reports.figure_style import (
    BYZANTINE,
    DASHES,
    HONEST,
    INK,
    add_legend,
    new_figure,
    save,
    style_axes,
)
from rdpfl_sim.reports.text import escape_control, quantity, seed_list

if TYPE_CHECKING:
    from rdpfl_sim.intervals import MeanInterval
    from rdpfl_sim.sweeps.strategies.bisection import Breakdown, BreakdownSpec

SEEDS_PER_TABLE = 6  # a table with six seeds fits into 80 columns


def search_header(spec: BreakdownSpec) -> RenderableType:
    """Return the scenario, the range of values and the seeds of a search."""
    first, last = spec.values[0], spec.values[-1]
    return Text(
        f"{escape_control(spec.base.name)}: {escape_control(spec.path)} from {first:g} to {last:g} "
        f"({len(spec.values)} values), {seed_list(spec.seeds)}"
    )


def points_table(breakdown: Breakdown) -> RenderableType:
    """Return the difference from local training at every tested value, with one column per seed."""
    seeds = [crossing.seed for crossing in breakdown.crossings]
    chunks = [seeds[start : start + SEEDS_PER_TABLE] for start in range(0, len(seeds), SEEDS_PER_TABLE)]
    return Group(*(_table(breakdown, chunk, with_mean=chunk is chunks[-1]) for chunk in chunks))


def _table(breakdown: Breakdown, seeds: Sequence[int], with_mean: bool) -> Table:
    """Return a table with one column per seed; `with_mean` adds the mean over all seeds."""
    spec = breakdown.spec
    title = f"{spec.metric_label} minus local training, by {escape_control(spec.path)}"
    table = Table(box=rich.box.SIMPLE_HEAD, title=title, title_justify="left")
    table.add_column("value")
    for heading in (*(f"seed {seed}" for seed in seeds), *(["mean"] if with_mean else [])):
        table.add_column(heading, justify="right")
    differences = {(point.index, point.seed): point.difference for point in breakdown.points}
    for place in sorted({place for place, seed in differences if seed in seeds}):
        cells = [_difference(spec, differences.get((place, seed))) for seed in seeds]
        if with_mean:
            known = [differences.get((place, crossing.seed)) for crossing in breakdown.crossings]
            mean = None if None in known else fmean(value for value in known if value is not None)
            cells.append(_difference(spec, mean))
        table.add_row(short_number(spec.values[place]), *cells)
    table.add_section()
    crossings = [crossing for crossing in breakdown.crossings if crossing.seed in seeds]
    table.add_row("not below at", *(_value(spec, crossing.holds) for crossing in crossings))
    table.add_row("below at", *(_value(spec, crossing.below) for crossing in crossings))
    return table


def _difference(spec: BreakdownSpec, difference: float | None) -> Text:
    if difference is None:
        return Text("")
    return Text(f"{difference:+.4f}", style="red" if spec.is_below(difference) else "")


def _value(spec: BreakdownSpec, place: int | None) -> str:
    return "never" if place is None else short_number(spec.values[place])


def conclusion(breakdown: Breakdown) -> RenderableType:
    """Return the breakdown point as a sentence in bold, then its caveats."""
    headline, *caveats = conclusion_lines(breakdown)
    return Group(Text(headline, style="bold"), *map(Text, caveats))


def conclusion_lines(breakdown: Breakdown) -> list[str]:
    """Return the breakdown point as a sentence, then its caveats."""
    spec = breakdown.spec
    if not breakdown.crossings:
        return ["No result: every seed has a failed run."]
    margin = f" by more than {spec.margin:g}" if spec.margin else ""
    metric, point = spec.metric_label, breakdown_point(breakdown)
    return [f"{metric} falls below local training{margin}: {point}.", *_caveats(breakdown)]


def breakdown_point(breakdown: Breakdown) -> str:
    """Return the breakdown point and its number of seeds."""
    spec, seeds = breakdown.spec, quantity(len(breakdown.crossings), "seed")
    if len(breakdown.never) == len(breakdown.crossings):
        return f"never, up to {spec.path} = {short_number(spec.values[-1])} ({seeds})"
    if len(breakdown.always) == len(breakdown.crossings):
        return f"already at {spec.path} = {short_number(spec.values[0])} ({seeds})"
    if breakdown.estimate is None:
        return f"{_median(breakdown)} (median of {seeds})"
    return f"at {spec.path} = {_interval(breakdown.estimate)}"


def _caveats(breakdown: Breakdown) -> Iterator[str]:
    spec, num_seeds = breakdown.spec, len(breakdown.crossings)
    num_outside = len(breakdown.always) + len(breakdown.never)
    if 0 < num_outside < num_seeds or (breakdown.always and breakdown.never):
        if breakdown.always:
            yield f"Already below at {short_number(spec.values[0])}: {seed_list(breakdown.always)}."
        if breakdown.never:
            yield f"Not yet below at {short_number(spec.values[-1])}: {seed_list(breakdown.never)}."
        yield f"No mean and no interval: {num_outside} of {num_seeds} breakdown points are outside the range."
    if breakdown.width:
        yield (
            "The breakdown point of a seed is the first tested value with accuracy below local training. "
            f"The last value not below local training differs by at most {breakdown.width:.2g}."
        )
    if breakdown.without_effect:
        yield f"warning: accuracy is the same at both ends of the range; {spec.path} may have no effect"
    yield "Assumption: the difference changes sign at most once within the range."


def _median(breakdown: Breakdown) -> str:
    spec, place = breakdown.spec, breakdown.median
    if place is None:
        return f"beyond {spec.path} = {short_number(spec.values[-1])}"
    return f"{'at' if place else 'at or before'} {spec.path} = {short_number(spec.values[place])}"


def _interval(estimate: MeanInterval) -> str:
    if estimate.half_width is None:
        return f"{short_number(estimate.mean)} (one seed: no interval)"
    digits = max(0, 1 - floor(log10(estimate.half_width))) if estimate.half_width else 4
    interval = f"{estimate.mean:.{digits}f} ± {estimate.half_width:.{digits}f}"
    return f"{interval} (95 % interval over {estimate.num} seeds)"


def short_number(value: float) -> str:
    """Return a number with at most four significant digits.

    >>> short_number(0.30000000000000004), short_number(12.0), short_number(1234567)
    ('0.3', '12', '1.235e+06')
    """
    return f"{value:.4g}"


def draw_breakdown(breakdown: Breakdown, path: Path) -> Path:
    """Write the figure and return its path."""
    return save(breakdown_figure(breakdown), path)


def breakdown_figure(breakdown: Breakdown) -> Figure:
    """Draw one line per seed, local training at zero, and the interval of the breakdown point."""
    spec = breakdown.spec
    figure = new_figure(spec.base.name, f"below local training: {breakdown_point(breakdown)}", 9, 5.2)
    axes = figure.subplots()
    style_axes(axes)
    axes.set_xlabel(spec.path, fontsize=12, color=INK)
    axes.set_ylabel(f"{spec.metric_label},\nminus local training", fontsize=12, color=INK)
    axes.axhline(-spec.margin, color=INK, lw=1.2)
    threshold = "local training minus the margin" if spec.margin else "local training"
    keys: list[Line2D | Patch] = [*_draw_seeds(axes, breakdown), *_draw_breakdown_point(axes, breakdown)]
    keys.append(Line2D([], [], color=INK, lw=1.2, label=threshold))
    add_legend(figure, keys, ncols=4, fontsize=10)
    return figure


def _draw_seeds(axes: Axes, breakdown: Breakdown) -> list[Line2D]:
    for crossing in breakdown.crossings:
        own = [point for point in breakdown.points if point.seed == crossing.seed]
        x, y = [point.value for point in own], [point.difference for point in own]
        axes.plot(x, y, color=HONEST, lw=1, alpha=0.5, marker="o", ms=4, mec="white", mew=0.5)
    return [Line2D([], [], color=HONEST, lw=1, alpha=0.7, marker="o", ms=4, label="one seed")]


def _draw_breakdown_point(axes: Axes, breakdown: Breakdown) -> list[Line2D | Patch]:
    """Draw the mean and its interval, or one line per seed if some points are outside the range."""
    estimate = breakdown.estimate
    if estimate is None:
        places = [c.below for c in breakdown.crossings if c.below is not None and c.holds is not None]
        for place in places:
            axes.axvline(breakdown.spec.values[place], color=BYZANTINE, lw=1, ls=DASHES, alpha=0.7)
        label = "breakdown point of one seed (others outside the range)"
        return [Line2D([], [], color=BYZANTINE, lw=1, ls=DASHES, label=label)] if places else []
    axes.axvline(estimate.mean, color=BYZANTINE, lw=2)
    keys: list[Line2D | Patch] = [Line2D([], [], color=BYZANTINE, lw=2, label="mean breakdown point")]
    if estimate.half_width:
        axes.axvspan(estimate.low, estimate.high, color=BYZANTINE, alpha=0.15, lw=0)
        keys.append(Patch(color=BYZANTINE, alpha=0.15, lw=0, label="95 % interval over seeds"))
    return keys
