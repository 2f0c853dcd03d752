"""Figures of a sweep: lines with bands, points with intervals, scales, labels and files."""

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import FillBetweenPolyCollection
from matplotlib.text import Text

from rdpfl_sim.intervals import mean_interval
from rdpfl_sim.reports.chart_figure import chart_figure, save_chart
from rdpfl_sim.reports.figure_style import FONT_SIZE, MARKERS, SERIES_COLOURS
from rdpfl_sim.results import Sweep
from rdpfl_sim.results.charts import (
    Chart,
    Kind,
    Point,
    Series,
    Variable,
    find_variable,
    make_chart,
    select_runs,
)
from rdpfl_sim.results.sweep import HEADLINE
from tests.results.test_charts import write_loss_sweep


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return Sweep(write_loss_sweep(tmp_path_factory.mktemp("sweep")))


def loss_chart(sweep: Sweep, attack: str = "none", y: str = "score") -> Chart:
    runs = select_runs(sweep, [f"attack={attack}"])
    x, by = (find_variable(sweep, "", name) for name in ("network.loss.probability", "Method"))
    return make_chart(sweep, runs, x, y, by)


def chart_of(numbers: list[float], values: list[float]) -> Chart:
    points = [Point(x, mean_interval([y, 1.1 * y])) for x, y in zip(numbers, values, strict=True)]
    return Chart(Variable("rounds", Kind.SETTING), "simulated_s", None, [], [Series("", 0, points)], 0)


def bands(axes: Axes) -> list[FillBetweenPolyCollection]:
    return [found for found in axes.collections if isinstance(found, FillBetweenPolyCollection)]


def test_lines_and_bands_are_means_and_intervals(sweep: Sweep) -> None:
    chart = loss_chart(sweep)
    [axes] = chart_figure(sweep, {"": chart}, 3.4).axes
    for line, band, series in zip(axes.lines, bands(axes), chart.series, strict=True):
        assert list(line.get_xdata()) == [0.0, 0.25, 0.5]
        assert list(line.get_ydata()) == [point.y.mean for point in series.points]
        heights = np.asarray(band.get_paths()[0].vertices)[:, 1]
        assert heights.min() == pytest.approx(min(point.y.low for point in series.points))
        assert heights.max() == pytest.approx(max(point.y.high for point in series.points))


def test_labels_are_in_words_and_the_legend_names_the_groups(sweep: Sweep) -> None:
    figure = chart_figure(sweep, {"": loss_chart(sweep)}, 3.4)
    [axes] = figure.axes
    assert axes.get_xlabel() == "Probability that a message is lost"
    assert axes.get_ylabel() == "Score"
    [legend] = figure.legends
    assert legend.get_title().get_text() == "Method"
    assert [text.get_text() for text in legend.get_texts()] == ["local", "rdpfl"]


@pytest.mark.parametrize("width", [3.4, 7.0])
def test_text_has_at_least_8_points_and_fits_the_width(sweep: Sweep, width: float) -> None:
    panels = {attack: loss_chart(sweep, attack, HEADLINE) for attack in ("none", "noise")}
    figure = chart_figure(sweep, panels, width)
    figure.draw_without_rendering()
    assert figure.get_size_inches()[0] == width
    page = figure.bbox
    shown = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    assert len(shown) > 10
    for text in shown:
        assert text.get_fontsize() >= FONT_SIZE == 8
        box = text.get_window_extent()
        assert box.x0 >= -1, text
        assert box.x1 <= page.x1 + 1, text
        if text.get_rotation() == 90:
            assert -1 <= box.y0 <= box.y1 <= page.y1 + 1, text


def test_panels_share_axes_and_styles(sweep: Sweep) -> None:
    panels = {attack: loss_chart(sweep, attack) for attack in ("none", "noise")}
    left, right = chart_figure(sweep, panels, 7.0).axes
    assert [left.get_title(), right.get_title()] == ["none", "noise"]
    assert left.get_ylim() == right.get_ylim()
    assert [line.get_color() for line in left.lines] == [line.get_color() for line in right.lines]


def test_every_group_has_a_colour_and_a_marker_of_its_own(sweep: Sweep) -> None:
    points = [Point(float(x), mean_interval([1.0, 2.0])) for x in range(3)]
    series = [Series(str(index), index, points) for index in range(16)]
    variable = Variable("rounds", Kind.SETTING)
    chart = Chart(variable, "score", Variable("seed", Kind.SETTING), [], series, 0)
    [axes] = chart_figure(sweep, {"": chart}, 7.0).axes
    assert len({line.get_marker() for line in axes.lines}) == 16
    assert len({(line.get_color(), line.get_linestyle()) for line in axes.lines}) == 16
    assert len(set(SERIES_COLOURS)) == 8
    assert len(set(MARKERS)) == 16


def test_categories_have_points_with_intervals_side_by_side(sweep: Sweep) -> None:
    x, by = (find_variable(sweep, "", name) for name in ("attack", "Method"))
    chart = make_chart(sweep, select_runs(sweep, ["network.loss.probability=0.0"]), x, "score", by)
    [axes] = chart_figure(sweep, {"": chart}, 3.4).axes
    assert bands(axes) == []
    assert [label.get_text() for label in axes.get_xticklabels()] == ["none", "noise"]
    first, second = (line for line in axes.lines if len(line.get_xdata()) == 2 and line.get_marker() in "os")
    assert first.get_linestyle() == "None"
    assert list(np.subtract(second.get_xdata(), first.get_xdata())) == pytest.approx([0.3, 0.3])


@pytest.mark.parametrize(
    ("numbers", "values", "scales"),
    [
        ([0.01, 0.1, 1.0], [1.0, 2.0, 3.0], ("log", "linear")),
        ([0.0, 0.1, 100.0], [1.0, 2.0, 3.0], ("linear", "linear")),
        ([1.0, 2.0, 3.0], [1.0, 10.0, 200.0], ("linear", "log")),
        ([1.0, 2.0, 3.0], [1.0, 10.0, 80.0], ("linear", "linear")),
    ],
)
def test_scale_is_logarithmic_where_values_span_decades(
    sweep: Sweep, numbers: list[float], values: list[float], scales: tuple[str, str]
) -> None:
    [axes] = chart_figure(sweep, {"": chart_of(numbers, values)}, 3.4).axes
    assert (axes.get_xscale(), axes.get_yscale()) == scales


def test_a_single_seed_has_a_line_without_a_band(sweep: Sweep) -> None:
    points = [Point(x, mean_interval([x])) for x in (1.0, 2.0)]
    chart = Chart(Variable("rounds", Kind.SETTING), "score", None, [], [Series("", 0, points)], 0)
    figure = chart_figure(sweep, {"": chart}, 3.4)
    [band] = bands(figure.axes[0])
    vertices = np.asarray(band.get_paths()[0].vertices)
    assert set(vertices[:, 1]) == {1.0, 2.0}
    assert figure.legends == []


def test_files_are_equal_for_equal_figures_and_pdf_fonts_are_embedded(sweep: Sweep, tmp_path: Path) -> None:
    first = save_chart(chart_figure(sweep, {"": loss_chart(sweep)}, 3.4), tmp_path / "v1.5")
    again = save_chart(chart_figure(sweep, {"": loss_chart(sweep)}, 3.4), tmp_path / "again.pdf")
    assert [path.name for path in first] == ["v1.5.png", "v1.5.pdf"]
    assert [path.name for path in again] == ["again.pdf"]
    pdf = first[1].read_bytes()
    assert pdf == again[0].read_bytes()
    assert b"/FontFile2" in pdf
    assert not re.search(rb"/Subtype /Type3|/CreationDate", pdf)
