"""Charts of a sweep: one metric over an axis, a setting or another metric, with one series per group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import product
from math import isfinite
from shlex import quote
from typing import Literal

from rdpfl_sim.components.schema import suggest
from rdpfl_sim.errors import RunError
from rdpfl_sim.intervals import MeanInterval, mean_interval
from rdpfl_sim.results.run import finite_number
from rdpfl_sim.results.sweep import Sweep, SweepRun, compared_axis, differing_settings
from rdpfl_sim.results.tables import Table, TableLayout, make_table
from rdpfl_sim.toml import ValueSyntaxError, get_value, parse_value, to_toml

MAX_SERIES = 16
"""Maximum number of series that can be distinguished in one figure."""


class SelectionError(RunError):
    """A choice of axes, settings and metrics that cannot be drawn."""


class Kind(Enum):
    """The kinds of variables."""

    AXIS = "axis"
    SETTING = "setting"
    METRIC = "metric"


@dataclass(frozen=True)
class Variable:
    """A quantity that varies over the runs of a sweep: an axis, a setting, or a number in the summaries."""

    name: str
    kind: Kind

    def value(self, run: SweepRun) -> object:
        """Return the value in a run: a label, a value of the scenario, or a number; None if missing."""
        if self.kind is Kind.AXIS:
            return run.labels[self.name]
        return _setting(run, self.name) if self.kind is Kind.SETTING else run.value(self.name)

    def text(self, run: SweepRun) -> str:
        """Return the value in a run as text, such as `0.1`, `noise` or `true`."""
        return _text(self.value(run))

    def number(self, run: SweepRun) -> float | None:
        """Return the value in a run as a number, or None if it is not a finite number."""
        value = self.value(run)
        return number_of(value) if self.kind is Kind.AXIS else finite_number(value)


def number_of(label: object) -> float | None:
    """Return the number that a label states, or None.

    >>> number_of("0.1"), number_of("10 %"), number_of("inf")
    (0.1, None, None)
    """
    try:
        number = float(str(label))
    except ValueError:
        return None
    return number if isfinite(number) else None


@dataclass(frozen=True)
class Point:
    """The estimate at one position; `x_interval` is set if x is a metric, whose mean is the position."""

    x: float | str
    y: MeanInterval
    x_interval: MeanInterval | None = None


@dataclass(frozen=True)
class Series:
    """The points of one group, in the order of x; `index` is the place of the group among all groups."""

    label: str
    index: int
    points: list[Point]


@dataclass(frozen=True)
class Chart:
    """One metric over a variable, per group."""

    x: Variable
    y: str
    by: Variable | None
    categories: list[str]
    """the values of x in order, if x is not numeric"""
    series: list[Series]
    num_omitted: int
    """runs without a value of y or of x"""

    @property
    def is_joined(self) -> bool:
        """Whether lines join the points: x is a number that was set, not a category or a result."""
        return not self.categories and self.x.kind is not Kind.METRIC

    @property
    def nums_of_seeds(self) -> list[int]:
        """The smallest and the largest number of runs at a point."""
        nums = [point.y.num for series in self.series for point in series.points]
        return [min(nums), max(nums)]


def find_variable(sweep: Sweep, argument: str, name: str) -> Variable:
    """Return the axis, the setting or the metric with this name; `argument` is named in errors."""
    if name in sweep.axes:
        return Variable(name, Kind.AXIS)
    if any(_setting(run, name) is not None for run in sweep.runs):
        return Variable(name, Kind.SETTING)
    if name in sweep.metrics:
        return Variable(name, Kind.METRIC)
    varying = varying_names(sweep)
    hint = suggest(name, [*varying, *sweep.metrics]).partition("; allowed")[0]
    raise SelectionError(
        f"`{argument}` {name}: no axis, setting or number in summary.json has this name{hint}; "
        f"axes and settings that vary: {', '.join(varying) or 'none'}"
    )


def find_metric(sweep: Sweep, argument: str, name: str) -> str:
    """Return the path of a number in the summaries; raise a `SelectionError` if no run has it."""
    if name in sweep.metrics:
        return name
    section = name.partition(".")[0]
    same_section = [path for path in sweep.metrics if path.partition(".")[0] == section]
    sections = dict.fromkeys(path.partition(".")[0] for path in sweep.metrics)
    allowed = f"{section}: {', '.join(same_section)}" if same_section else ", ".join(sections)
    hint = suggest(name, sweep.metrics).partition("; allowed")[0]
    where = "numbers in the section" if same_section else "sections of summary.json:"
    raise SelectionError(
        f"`{argument}` {name}: no run has this number in its summary.json{hint}; {where} {allowed}"
    )


def varying_names(sweep: Sweep) -> list[str]:
    """Return the axes, and the settings in which the runs differ."""
    settings = differing_settings([run.run for run in sweep.runs])
    return list(dict.fromkeys([*sweep.axes, *settings]))


def select_runs(sweep: Sweep, where: Iterable[str]) -> list[SweepRun]:
    """Return the runs that match every condition `name=value`."""
    runs = sweep.runs
    for condition in where:
        name, equals, text = (part.strip() for part in condition.partition("="))
        if not equals:
            raise SelectionError(f"`where` {condition}: must have the form axis=label or path=value")
        variable = find_variable(sweep, "where", name)
        present = dict.fromkeys(variable.text(run) for run in sweep.runs)
        if text not in present:
            try:
                text = _text(parse_value(text))  # 0.10 for 0.1
            except ValueSyntaxError as error:
                raise SelectionError(f"`where` {condition}: {error}") from error
        if text not in present:
            raise SelectionError(f"`where` {condition}: no run has this value{suggest(text, present)}")
        runs = [run for run in runs if variable.text(run) == text]
    if not runs:
        raise SelectionError(f"no run matches `where` {' `where` '.join(where)}")
    return runs


def make_chart(
    sweep: Sweep, runs: Sequence[SweepRun], x: Variable, y: str, by: Variable | None = None
) -> Chart:
    """Return the estimates of `y` over `x`, one series per value of `by`.

    Runs with different labels are never averaged: a `SelectionError` names the axes to fix.
    """
    numbers = [x.number(run) for run in runs]
    is_numeric = x.kind is Kind.METRIC or all(number is not None for number in numbers)
    groups = [] if by is None else list(dict.fromkeys(by.text(run) for run in sweep.runs))
    cells: dict[tuple[str, float | str | tuple[str, ...]], dict[str, SweepRun]] = {}
    num_omitted = 0
    for run in runs:
        number = x.number(run)
        if run.value(y) is None or (x.kind is Kind.METRIC and number is None):
            num_omitted += 1
            continue
        if x.kind is Kind.METRIC:
            position: float | str | tuple[str, ...] = tuple(run.labels.values())
        else:
            position = number if is_numeric and number is not None else x.text(run)
        group = "" if by is None else by.text(run)
        cells.setdefault((group, position), {}).setdefault(run.run.folder.name, run)
    if not cells:
        raise SelectionError(f"none of the chosen runs has the number {y}")
    if x.kind is not Kind.METRIC:
        _check_cases(sweep, x, by, cells.values())
    categories = [] if is_numeric else list(dict.fromkeys(x.text(run) for run in runs))
    series = []
    for index, group in enumerate(groups or [""]):
        own = [(position, list(found.values())) for (key, position), found in cells.items() if key == group]
        if own:
            points = [_point(x, y, position, found) for position, found in own]
            order = {category: place for place, category in enumerate(categories)}
            points.sort(key=lambda point: order[point.x] if isinstance(point.x, str) else point.x)
            series.append(Series(group, index, points))
    if len(series) > MAX_SERIES:
        assert by is not None, "without groups there is one series"
        raise SelectionError(
            f"`by` {by.name}: {len(series)} groups are too many for one figure; at most {MAX_SERIES}"
        )
    return Chart(x, y, by, categories, series, num_omitted)


def _point(x: Variable, y: str, position: float | str | tuple[str, ...], runs: Sequence[SweepRun]) -> Point:
    estimate = mean_interval([value for run in runs if (value := run.value(y)) is not None])
    if not isinstance(position, tuple):
        return Point(position, estimate)
    x_interval = mean_interval([value for run in runs if (value := x.number(run)) is not None])
    return Point(x_interval.mean, estimate, x_interval)


def check_varies(argument: str, variable: Variable, runs: Sequence[SweepRun]) -> None:
    """Reject a setting that only some runs have, and a variable with the same value in all runs."""
    if variable.kind is Kind.METRIC:
        return
    num_missing = sum(variable.value(run) is None for run in runs)
    if num_missing:
        raise SelectionError(
            f"`{argument}` {variable.name}: {num_missing} of {len(runs)} runs have no such setting; "
            "choose the others with `where`"
        )
    values = {variable.text(run) for run in runs}
    if len(values) == 1:
        raise SelectionError(
            f"`{argument}` {variable.name}: has the same value in all chosen runs: {values.pop()}"
        )


def _check_cases(
    sweep: Sweep, x: Variable, by: Variable | None, cells: Iterable[Mapping[str, SweepRun]]
) -> None:
    """Raise a `SelectionError` if a point would average over runs with different labels."""
    mixed: dict[str, dict[str, None]] = {}
    for cell in cells:
        for axis in sweep.axes:
            labels = dict.fromkeys(run.labels[axis] for run in cell.values())
            if len(labels) > 1:
                mixed.setdefault(axis, {}).update(labels)
    if mixed:
        axis, labels = next(iter(mixed.items()))
        others = "; ".join(f"{name} ({', '.join(found)})" for name, found in mixed.items())
        by_axis = "" if by is not None else f", or draw one line per case with `by` {axis}"
        raise SelectionError(
            f"`x` {x.name}: each point would average over other axes: {others}; "
            f"choose a case, such as `where` {quote(f'{axis}={next(iter(labels))}')}{by_axis}"
        )


def table_charts(sweep: Sweep, layout: TableLayout, name: str) -> dict[str, Chart] | Table:
    """Return what shows the metric `name` of a table.

    These are charts over its numeric axis by the cases of another, one per combination of the remaining axes,
    which is their title. If only one axis varies, it may be of categories. Several axes of categories are a
    table for a heat map. There is no chart if nothing varies or there are too many groups.
    """
    metric = layout.metrics[name]
    runs = [run for run in sweep.runs if all(run.labels[axis] == v for axis, v in layout.where.items())]
    runs = [run for run in runs if run.value(metric) is not None]
    axes = [axis for axis in sweep.axes if axis not in layout.where]
    labels = {axis: list(dict.fromkeys(run.labels[axis] for run in runs)) for axis in axes}
    varying = [axis for axis in axes if len(labels[axis]) > 1]
    numeric = [axis for axis in varying if all(number_of(label) is not None for label in labels[axis])]
    if not varying:
        return {}
    if len(varying) > 1 and not numeric:
        return _heat_map_table(sweep, layout, name, axes)
    x = max(numeric or varying, key=lambda axis: len(labels[axis]))
    others = [axis for axis in varying if axis != x]
    by = compared_axis(others) if others else None
    if by is not None and len(labels[by]) > MAX_SERIES:
        return {}
    outer = [axis for axis in others if axis != by]
    charts = {}
    for combination in product(*(labels[axis] for axis in outer)):
        own = [run for run in runs if tuple(run.labels[axis] for axis in outer) == combination]
        if own:  # the sweep may be unfinished
            group = None if by is None else Variable(by, Kind.AXIS)
            title = ", ".join(f"{axis}: {label}" for axis, label in zip(outer, combination, strict=True))
            charts[title] = make_chart(sweep, own, Variable(x, Kind.AXIS), metric, group)
    return charts


def _heat_map_table(sweep: Sweep, layout: TableLayout, name: str, axes: Sequence[str]) -> Table:
    """Return the table of one metric with at least one axis across."""
    changes: dict[str, object] = {"metrics": {name: layout.metrics[name]}, "paper": {}}
    if not layout.columns:
        column = compared_axis([axis for axis in axes if len(sweep.axes[axis]) > 1])
        changes |= {"rows": [axis for axis in axes if axis != column], "columns": [column]}
    return make_table(sweep, layout.model_copy(update=changes))


DECADES = 100.0
"""Ratio of the largest to the smallest value from which a scale is logarithmic."""


def scale_of(values: Iterable[float | None]) -> Literal["log", "linear"]:
    """Return the scale of an axis: logarithmic if all values are positive and span two decades or more.

    >>> scale_of([0.01, 0.1, 1.0]), scale_of([0.0, 0.01, 1.0]), scale_of([0.1, 5.0])
    ('log', 'linear', 'linear')
    """
    known = [value for value in values if value is not None]
    return "log" if known and min(known) > 0 and max(known) / min(known) >= DECADES else "linear"


def scales_of(charts: Iterable[Chart]) -> tuple[Literal["log", "linear"], Literal["log", "linear"]]:
    """Return the common scales of the x axes, unless they are categories, and of the y axes."""
    points = [point for chart in charts for series in chart.series for point in series.points]
    x = scale_of(point.x for point in points if not isinstance(point.x, str))
    return x, scale_of(point.y.mean for point in points)


def _text(value: object) -> str:
    return value if isinstance(value, str) else to_toml(value)


def _setting(run: SweepRun, path: str) -> object:
    """Return the value at a path of the scenario; for a component, its name."""
    value = get_value(run.run.scenario, path)
    return value.get("name") if isinstance(value, dict) else value
