"""Interactive charts of a sweep: lines with 95 % bands over numbers, points with intervals otherwise."""

from __future__ import annotations

from rdpfl_sim.frames import Sweep
from rdpfl_sim.frames.charts import Chart, Point, Series
from rdpfl_sim.intervals import MeanInterval
from rdpfl_sim.records.metric_names import metric_name
from rdpfl_sim.reports.chart_figure import variable_label
from rdpfl_sim.reports.html.plot import Plot, Trace, axis, band, compact, dots, escape_markup, line
from rdpfl_sim.reports.scales import spans_decades

COLOURS = ("@honest", "@byzantine", "@green", "@purple", "@yellow", "@sky", "@lost", "@muted")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star")


def chart_plot(sweep: Sweep, chart: Chart) -> Plot:
    """Return a chart; scales are logarithmic where the values span decades."""
    traces = [trace for series in chart.series for trace in _series_traces(chart, series)]
    points = [point for series in chart.series for point in series.points]
    numbers = [point.x for point in points if not isinstance(point.x, str)]
    layout = {
        "xaxis": axis(
            escape_markup(variable_label(sweep, chart.x)),
            type="category" if chart.categories else _scale(numbers),
        ),
        "yaxis": axis(
            escape_markup(metric_name(chart.y).label), type=_scale([point.y.mean for point in points])
        ),
    }
    return Plot(traces, layout, 400)


def interval_text(estimate: MeanInterval) -> str:
    """Return a mean with its interval and deviation, in two lines."""
    if estimate.half_width is None:
        return f"{estimate.mean:.4f}, one seed"
    return (
        f"{estimate.mean:.4f} ± {estimate.half_width:.4f} (95 % interval)<br>"
        f"standard deviation {estimate.deviation:.4f} over {estimate.num} seeds"
    )


def _scale(values: list[float]) -> str:
    return "log" if spans_decades(values) else "linear"


def _series_traces(chart: Chart, series: Series) -> list[Trace]:
    colour = COLOURS[series.index % len(COLOURS)]
    dash = "solid" if series.index < len(COLOURS) else "dash"
    name = escape_markup(series.label)
    x, y = [_position(point) for point in series.points], compact(point.y.mean for point in series.points)
    options = {
        "customdata": [interval_text(point.y) for point in series.points],
        "hovertemplate": f"<b>{name} %{{x}}</b><br>%{{customdata}}<extra></extra>",
        "legendgroup": name,
        "showlegend": bool(series.label),
    }
    marker = {"color": colour, "symbol": SYMBOLS[series.index % len(SYMBOLS)], "size": 8}
    if not chart.is_joined:
        widths = compact(point.y.half_width or 0.0 for point in series.points)
        error = {"type": "data", "array": widths, "color": colour, "thickness": 1.5, "width": 4}
        return [dots(x, y, name, marker, error_y=error, **options)]
    low, high = (compact(getattr(point.y, end) for point in series.points) for end in ("low", "high"))
    joined = {**line(x, y, name, colour, dash=dash), "mode": "lines+markers", "marker": marker, **options}
    return [*band(x, low, high, name, colour, legend=False), joined]


def _position(point: Point) -> object:
    return escape_markup(point.x) if isinstance(point.x, str) else point.x
