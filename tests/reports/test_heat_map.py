"""Heat maps of a sweep: one metric, labelled axes and a labelled scale."""

import pytest

from rdpfl_sim.intervals import mean_interval
from rdpfl_sim.reports.chart_figure import heat_map_figure
from rdpfl_sim.results.tables import Table


def table(num_rows: int = 2, num_columns: int = 2) -> Table:
    """Rows r0, r1, ... and columns of two axes; the last cell is missing."""
    rows = [(f"r{i}",) for i in range(num_rows)]
    columns = [(f"c{j // 2}", f"k{j % 2}") for j in range(num_columns)]
    places = [(row, column) for row in rows for column in columns][:-1]
    cells = {place: mean_interval([number + 0.5]) for number, place in enumerate(places)}
    return Table("A title", ("axis",), ("c", "k"), rows, columns, cells, {}, 2)


def test_every_known_cell_has_its_number() -> None:
    axes = heat_map_figure(table(), "Score", "Rows", "Columns").axes[0]
    assert [text.get_text() for text in axes.texts] == ["0.50", "1.50", "2.50"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["c0\nk0", "c0\nk1"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["r0", "r1"]


@pytest.mark.parametrize(
    ("values", "texts"),
    [([1.0, 20.0], ["1", "20"]), ([0.5, 20.0], ["0.50", "20.00"]), ([0.5, 93600.0], ["0", "93,600"])],
)
def test_large_and_whole_numbers_have_fewer_decimals(values: list[float], texts: list[str]) -> None:
    cells = {(("r",), (str(place),)): mean_interval([value]) for place, value in enumerate(values)}
    numbers = Table("T", ("x",), ("y",), [("r",)], [("0",), ("1",)], cells, {}, 4)
    axes = heat_map_figure(numbers, "", "", "").axes[0]
    assert [text.get_text() for text in axes.texts] == texts


def test_axes_and_scale_are_labelled() -> None:
    axes, scale = heat_map_figure(table(), "Mean score (s)", "Attack", "Method").axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("Method", "Attack")
    assert scale.get_ylabel() == "Mean score (s)"


def test_a_gap_separates_groups_of_columns() -> None:
    gaps = [line.get_xdata()[0] for line in heat_map_figure(table(2, 4), "", "", "").axes[0].lines]
    assert gaps == [1.5]


def test_table_of_equal_numbers_has_a_colour_range() -> None:
    rows, columns = [("a",), ("b",)], [("c",), ("d",)]
    cells = {(row, column): mean_interval([0.5]) for row in rows for column in columns}
    equal = Table("T", ("x",), ("y",), rows, columns, cells, {}, 2)
    [image] = heat_map_figure(equal, "", "", "").axes[0].images
    low, high = image.get_clim()
    assert low < 0.5 < high
