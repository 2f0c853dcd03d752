from pathlib import Path

import pytest

from rdpfl_sim.intervals import mean_interval
from rdpfl_sim.reports.sweep_table import draw_table, table_figure
from rdpfl_sim.sweeps.tables import Table


def table(num_rows: int = 2, num_columns: int = 2) -> Table:
    """Rows r0, r1, ... and columns of two axes; the last cell is missing."""
    rows = [(f"r{i}",) for i in range(num_rows)]
    columns = [(f"c{j // 2}", f"k{j % 2}") for j in range(num_columns)]
    places = [(row, column) for row in rows for column in columns][:-1]
    cells = {place: mean_interval([float(number)]) for number, place in enumerate(places)}
    return Table("A title", ("axis",), ("c", "k"), rows, columns, cells, {}, "deviation", 2)


def test_every_known_cell_has_its_number() -> None:
    axes = table_figure(table()).axes[0]
    assert [text.get_text() for text in axes.texts] == ["0.00", "1.00", "2.00"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["c0\nk0", "c0\nk1"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["r0", "r1"]


def test_a_gap_separates_groups_of_columns() -> None:
    gaps = [line.get_xdata()[0] for line in table_figure(table(2, 4)).axes[0].lines]
    assert gaps == [1.5]


@pytest.mark.parametrize(("num_rows", "num_columns", "drawn"), [(2, 2, True), (1, 2, False), (50, 50, False)])
def test_only_a_table_of_legible_size_is_drawn(
    num_rows: int, num_columns: int, drawn: bool, tmp_path: Path
) -> None:
    path = tmp_path / "table.png"
    assert draw_table(table(num_rows, num_columns), path) == (path if drawn else None)
    assert path.exists() == drawn


def test_table_of_equal_numbers_is_drawn(tmp_path: Path) -> None:
    rows, columns = [("a",), ("b",)], [("c",), ("d",)]
    cells = {(row, column): mean_interval([0.5]) for row in rows for column in columns}
    assert draw_table(
        Table("T", ("x",), ("y",), rows, columns, cells, {}, "deviation", 2), tmp_path / "t.png"
    )
