from io import StringIO

import pytest
from rich.console import Console

from rdpfl_sim.reports.breakdown import breakdown_figure, points_table
from rdpfl_sim.sweeps.strategies.bisection import Bisection, Breakdown, BreakdownSpec, Point
from tests.support import small_scenario


def breakdown(first_below: dict[int, float]) -> Breakdown:
    """Seeds that fall below local training at these values of 0, 0.1, ..., 0.8."""
    base = small_scenario(network={"duplication": 0.1})
    asked = BreakdownSpec(
        base, "network.duplication", [place / 10 for place in range(9)], [*first_below], margin=0.01
    )
    bisection = Bisection(asked)
    while todo := bisection.next_points():
        for seed, place in todo:
            accuracy = 0.6 if asked.values[place] < first_below[seed] else 0.4
            bisection.points[seed, place] = Point(place, asked.values[place], seed, accuracy, 0.5)
    return bisection.result()


def test_interval_of_the_breakdown_point_is_shaded() -> None:
    [axes] = breakdown_figure(breakdown({1: 0.2, 2: 0.4, 3: 0.6})).axes
    [band] = axes.patches
    half_width = 4.302653 * 0.2 / 3**0.5
    assert band.get_x() == pytest.approx(0.4 - half_width, abs=1e-6)
    assert band.get_width() == pytest.approx(2 * half_width, abs=1e-6)


def test_no_interval_is_shaded_if_points_are_outside_the_range() -> None:
    figure = breakdown_figure(breakdown({1: 0.2, 2: 0.4, 3: 2.0}))
    [axes] = figure.axes
    assert not axes.patches
    marks = [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == "--"]
    assert marks == [0.2, 0.4]
    assert "median of 3 seeds" in figure.get_suptitle()


def test_table_of_many_seeds_fits_into_80_columns() -> None:
    console = Console(file=StringIO(), width=1000)
    console.print(points_table(breakdown({seed: seed / 20 for seed in range(1, 15)})))
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[-2:] for line in lines if "value" in line][-1] == ["14", "mean"]
    assert sum(line.split()[:1] == ["0"] for line in lines) == 3
