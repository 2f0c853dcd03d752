"""Charts of a sweep: the values of x, the groups, and what must not be averaged."""

import json
from pathlib import Path
from typing import Any

import pytest

from rdpfl_sim.results import Sweep
from rdpfl_sim.results.charts import (
    Chart,
    Kind,
    SelectionError,
    Variable,
    check_varies,
    find_metric,
    find_variable,
    make_chart,
    select_runs,
    table_charts,
)
from rdpfl_sim.results.tables import Table, TableLayout
from tests.results.run_folders import SCENARIO, write_run

LOSSES = (0.5, 0.0, 0.25)


def write_loss_sweep(folder: Path) -> Path:
    """Write a sweep over method, attack and loss; the score is 1 - loss + seed / 10, minus 1 with noise."""
    runs = []
    for method in ("local", "rdpfl"):
        for attack in ("none", "noise"):
            for loss in LOSSES:
                for seed in (1, 2, 3):
                    name = f"{method}-{attack}-{loss}-{seed}"
                    labels = {"Method": method, "attack": attack, "network.loss.probability": str(loss)}
                    runs.append({"folder": name, "labels": labels})
                    scenario = {
                        **SCENARIO,
                        "seed": seed,
                        "method": {"name": method},
                        "adversary": {"attack": {"name": attack}, "collude": attack == "none"},
                        "network": {"loss": {"name": "bernoulli", "probability": loss}},
                    }
                    score = 1 - loss + seed / 10 - (attack == "noise")
                    summary: dict[str, Any] = {"status": "finished", "score": score, "simulated_s": 10 * loss}
                    summary["accuracy"] = {"honest": {"personal": {"mean": score}}}
                    if seed == 3 and loss == 0.5:
                        summary["score"] = None
                    write_run(folder / name, (), summary, scenario)
    axes = [
        {"name": "Method", "labels": ["local", "rdpfl"]},
        {"name": "attack", "labels": ["none", "noise"]},
        {"name": "network.loss.probability", "labels": [str(loss) for loss in LOSSES]},
    ]
    (folder / "sweep.json").write_text(json.dumps({"name": "loss", "axes": axes, "runs": runs}))
    return folder


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return Sweep(write_loss_sweep(tmp_path_factory.mktemp("sweep")))


def chart(
    sweep: Sweep, x: str, by: str | None = None, where: tuple[str, ...] = (), y: str = "score"
) -> Chart:
    group = None if by is None else find_variable(sweep, "by", by)
    return make_chart(sweep, select_runs(sweep, where), find_variable(sweep, "x", x), y, group)


def test_numeric_axis_is_sorted_and_has_one_series_per_group(sweep: Sweep) -> None:
    found = chart(sweep, "network.loss.probability", "Method", ("attack=none",))
    assert found.is_joined
    assert [series.label for series in found.series] == ["local", "rdpfl"]
    points = found.series[1].points
    assert [point.x for point in points] == [0.0, 0.25, 0.5]
    assert [point.y.mean for point in points] == pytest.approx([1.2, 0.95, 0.65])
    assert [point.y.num for point in points] == [3, 3, 2]
    assert points[0].y.half_width == pytest.approx(4.302653 * 0.1 / 3**0.5, rel=1e-6)
    assert (found.num_omitted, found.nums_of_seeds) == (2, [2, 3])


@pytest.mark.parametrize(
    ("x", "by", "where"),
    [
        ("network.loss.probability", "method", ("attack=none",)),
        ("network.loss.probability", "method.name", ("adversary.attack=none",)),
        ("network.loss.probability", "method.name", ("adversary.collude=true",)),
    ],
)
def test_settings_give_the_same_chart_as_axes(sweep: Sweep, x: str, by: str, where: tuple[str, ...]) -> None:
    by_axes = chart(sweep, "network.loss.probability", "Method", ("attack=none",))
    assert chart(sweep, x, by, where).series == by_axes.series


def test_categories_keep_the_order_of_the_axis_and_are_not_joined(sweep: Sweep) -> None:
    found = chart(sweep, "attack", "Method", ("network.loss.probability=0.250",))
    assert not found.is_joined
    assert found.categories == ["none", "noise"]
    assert [point.y.mean for point in found.series[0].points] == pytest.approx([0.95, -0.05])


def test_other_axes_are_named_and_not_averaged(sweep: Sweep) -> None:
    with pytest.raises(SelectionError) as error:
        chart(sweep, "network.loss.probability", "Method")
    assert str(error.value) == (
        "`x` network.loss.probability: each point would average over other axes: attack (none, noise); "
        "choose a case, such as `where` attack=none"
    )
    with pytest.raises(
        SelectionError, match=r"`where` Method=local, or draw one line per case with `by` Method"
    ):
        chart(sweep, "network.loss.probability")


def test_a_metric_as_x_gives_one_point_per_case(sweep: Sweep) -> None:
    found = chart(sweep, "simulated_s", "Method")
    assert not found.is_joined
    assert [point.x for point in found.series[0].points] == [0.0, 0.0, 2.5, 2.5, 5.0, 5.0]
    assert found.series[0].points[0].x_interval is not None


def test_cases_that_share_a_run_are_one_case(tmp_path: Path) -> None:
    write_run(tmp_path / "one", (), {"score": 1.0}, {**SCENARIO, "rounds": 2})
    write_run(tmp_path / "two", (), {"score": 2.0}, {**SCENARIO, "rounds": 3})
    labels = [("2", "a", "one"), ("2", "b", "one"), ("3", "a", "two"), ("3", "b", "two")]
    plan = {
        "axes": [{"name": "rounds", "labels": ["2", "3"]}, {"name": "case", "labels": ["a", "b"]}],
        "runs": [{"folder": run, "labels": {"rounds": n, "case": case}} for n, case, run in labels],
    }
    (tmp_path / "sweep.json").write_text(json.dumps(plan))
    [series] = chart(Sweep(tmp_path), "rounds").series
    assert [(point.x, point.y.mean, point.y.num) for point in series.points] == [(2, 1, 1), (3, 2, 1)]


def test_names_that_do_not_exist_are_reported_with_suggestions(sweep: Sweep) -> None:
    with pytest.raises(SelectionError) as error:
        find_variable(sweep, "x", "network.loss.probabilty")
    assert str(error.value).startswith(
        "`x` network.loss.probabilty: no axis, setting or number in summary.json has this name; "
        "did you mean 'network.loss.probability'?; axes and settings that vary: Method, attack, network.loss"
    )
    with pytest.raises(
        SelectionError, match=r"`y` scor: no run .* did you mean 'score'\?; sections .*: score, "
    ):
        find_metric(sweep, "y", "scor")
    with pytest.raises(
        SelectionError, match=r"`where` attack=nose: .* did you mean 'noise'.*; allowed: none, noise"
    ):
        select_runs(sweep, ["attack=nose"])
    with pytest.raises(SelectionError, match=r"`where` adversary\.attack=\[1: is not valid TOML: "):
        select_runs(sweep, ["adversary.attack=[1"])
    with pytest.raises(SelectionError, match="must have the form axis=label or path=value"):
        select_runs(sweep, ["attack"])
    with pytest.raises(
        SelectionError, match=r"no run matches `where` attack=none `where` adversary\.attack=noise"
    ):
        select_runs(sweep, ["attack=none", "adversary.attack=noise"])


def test_a_variable_must_vary_and_be_set_in_all_runs(sweep: Sweep, tmp_path: Path) -> None:
    with pytest.raises(SelectionError, match="`x` rounds: has the same value in all chosen runs: 2"):
        check_varies("x", Variable("rounds", Kind.SETTING), sweep.runs)
    write_run(tmp_path / "a", (), {"score": 1.0}, {**SCENARIO, "extra": {"k": 1}})
    write_run(tmp_path / "b", (), {"score": 2.0}, {**SCENARIO, "seed": 6})
    mixed = Sweep(tmp_path)
    with pytest.raises(SelectionError, match=r"`x` extra\.k: 1 of 2 runs have no such setting"):
        check_varies("x", Variable("extra.k", Kind.SETTING), mixed.runs)


def charts_of(sweep: Sweep, **where: str) -> dict[str, Chart] | Table:
    return table_charts(sweep, TableLayout(metrics={"Score": "score"}, where=where), "Score")


def test_a_table_with_a_numeric_axis_has_one_panel_per_other_case(sweep: Sweep) -> None:
    panels = charts_of(sweep)
    assert not isinstance(panels, Table)
    assert list(panels) == ["attack: none", "attack: noise"]
    for found in panels.values():
        assert found.x.name == "network.loss.probability"
        assert [series.label for series in found.series] == ["local", "rdpfl"]


def test_a_table_of_categories_has_no_chart_unless_one_axis_varies(sweep: Sweep) -> None:
    where = {"network.loss.probability": "0.25"}
    table = charts_of(sweep, **where)
    assert isinstance(table, Table)
    assert (table.corner, table.across) == (("attack",), ("Method",))
    panels = charts_of(sweep, **where, attack="none")
    assert not isinstance(panels, Table)
    assert [found.categories for found in panels.values()] == [["local", "rdpfl"]]
