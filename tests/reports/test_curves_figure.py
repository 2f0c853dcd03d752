from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from rdpfl_sim.reports.accuracy_curves import Curve
from rdpfl_sim.reports.curves_figure import curves_figure
from rdpfl_sim.reports.figure_style import BYZANTINE, HONEST

TITLE = ("name", "description")


def curve(time_s: list[float], accuracy: list[float]) -> Curve:
    return Curve(np.array(time_s), np.arange(len(time_s), dtype=float), np.array(accuracy))


def lines(figure: Figure, panel: int, colour: str) -> list[Any]:
    return [line for line in figure.axes[panel].lines if line.get_color() == colour]


def test_bold_line_is_the_mean_of_the_latest_values_of_honest_clients() -> None:
    honest = {0: curve([0.0, 2.0], [0.1, 0.5]), 1: curve([0.0, 3.0], [0.3, 0.7])}
    figure = curves_figure(honest, {2: curve([0.0, 1.0], [0.9, 0.9])}, *TITLE)
    by_round, by_time = (
        max(lines(figure, panel, HONEST), key=lambda line: line.get_lw()) for panel in (0, 1)
    )
    np.testing.assert_allclose(by_round.get_xydata(), [[0, 0.2], [1, 0.6]])
    np.testing.assert_allclose(by_time.get_xydata(), [[0, 0.2], [2, 0.4], [3, 0.6]])
    assert by_time.get_drawstyle() == "steps-post"


@pytest.mark.parametrize(("num_honest", "honest_lines", "byzantine_lines"), [(9, 10, 3), (10, 1, 1)])
def test_each_client_has_a_line_unless_there_are_more_than_twelve(
    num_honest: int, honest_lines: int, byzantine_lines: int
) -> None:
    clients = {client: curve([0.0, 1.0], [0.1, 0.2]) for client in range(num_honest + 3)}
    byzantine = {client: clients.pop(client) for client in (0, 1, 2)}
    figure = curves_figure(clients, byzantine, *TITLE)
    assert len(lines(figure, 0, HONEST)) == honest_lines
    assert len(lines(figure, 1, BYZANTINE)) == byzantine_lines
    assert all(line.get_linestyle() == "--" for line in lines(figure, 1, BYZANTINE))
