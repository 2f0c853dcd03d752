"""The runs of a sweep, labelled by the settings that vary."""

import json
from pathlib import Path

import pytest

from rdpfl_sim.errors import RunError
from rdpfl_sim.results import Sweep
from rdpfl_sim.sweeps.plan import write_plan
from rdpfl_sim.sweeps.spec import SweepSpec
from rdpfl_sim.sweeps.strategies.grid import plan_runs
from tests.results.run_folders import SCENARIO, write_run

PLAN = SweepSpec.from_dict(
    {
        "seeds": [1, 2],
        "grid": {"rounds": [2, 3]},
        "axis": [{"name": "attack", "cases": [{"label": "none"}, {"label": "noise", "set": {"seed": 9}}]}],
        "table": [
            {"title": "Scores", "rows": ["attack"], "columns": ["rounds"], "metrics": {"Score": "score"}}
        ],
    }
)


def write_sweep(folder: Path, with_plan: bool = True) -> Path:
    """Write a sweep without its eighth run; scores are 10 x rounds + seed, minus 1 for noise and 3 rounds."""
    plan = {
        "name": "scores",
        "axes": [{"name": "attack", "labels": ["none", "noise"]}, {"name": "rounds", "labels": ["2", "3"]}],
        "runs": [],
        "tables": [PLAN.table[0].model_dump()],
    }
    for attack in ("none", "noise"):
        for rounds in (2, 3):
            for seed in (1, 2):
                name = f"{attack}-{rounds}-{seed}"
                plan["runs"].append({"folder": name, "labels": {"attack": attack, "rounds": str(rounds)}})
                if name == "noise-3-2":
                    continue
                score = 10 * rounds + seed - (attack == "noise" and rounds == 3)
                scenario = {**SCENARIO, "rounds": rounds, "seed": seed, "attack": attack}
                write_run(folder / name, (), {"status": "finished", "score": score}, scenario)
    if with_plan:
        (folder / "sweep.json").write_text(json.dumps(plan))
    return folder


def test_runs_have_their_labels_in_the_order_of_the_axes(tmp_path: Path) -> None:
    sweep = Sweep(write_sweep(tmp_path))
    assert (sweep.name, sweep.num_planned) == ("scores", 8)
    assert sweep.axes == {"attack": ["none", "noise"], "rounds": ["2", "3"]}
    assert sweep.results.select("run", "attack", "rounds", "seed", "score").rows()[4:] == [
        ("noise-2-1", "noise", "2", 1, 21),
        ("noise-2-2", "noise", "2", 2, 22),
        ("noise-3-1", "noise", "3", 1, 30),
    ]


def test_intervals_are_over_seeds(tmp_path: Path) -> None:
    intervals = Sweep(write_sweep(tmp_path)).intervals("score")
    assert (intervals["none", "3"].mean, intervals["none", "3"].num) == (31.5, 2)
    assert (intervals["noise", "3"].mean, intervals["noise", "3"].half_width) == (30.0, None)


def test_estimates_are_a_frame_with_one_row_per_case_and_metric(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path)
    for path in folder.glob("*/summary.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "simulated_s": 8.0}))
    frame = Sweep(folder).estimates()
    assert frame.columns[:4] == ["attack", "rounds", "metric", "unit"]
    assert frame.height == 2 * 4
    half_width = 12.706204736 * 0.5  # t(1 degree of freedom) x deviation / sqrt(2), deviation sqrt(1/2)
    first, last = frame.filter(metric="score").rows(named=True)[1::2]
    assert (first["attack"], first["rounds"], first["unit"]) == ("none", "3", "")
    assert (first["mean"], first["num_seeds"]) == (31.5, 2)
    assert first["deviation"] == pytest.approx(0.5**0.5)
    assert [first["low"], first["high"]] == pytest.approx([31.5 - half_width, 31.5 + half_width])
    assert (last["mean"], last["num_seeds"]) == (30, 1)
    assert [last[key] for key in ("deviation", "low", "high")] == [None] * 3
    assert set(frame.filter(metric="simulated_s")["unit"]) == {"s"}


def test_estimates_of_an_unknown_metric_suggest_a_similar_one(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no summary.json has the number 'scor'; did you mean 'score'\?"):
        Sweep(write_sweep(tmp_path)).estimates("scor")


def test_estimates_reject_an_axis_with_the_name_of_a_column(tmp_path: Path) -> None:
    plan = {"axes": [{"name": "mean", "labels": ["1"]}], "runs": []}
    (tmp_path / "sweep.json").write_text(json.dumps(plan))
    with pytest.raises(RunError, match="the axis 'mean' has the name of a column"):
        Sweep(tmp_path).estimates()


def test_differences_are_paired_by_seed(tmp_path: Path) -> None:
    differences = Sweep(write_sweep(tmp_path)).differences("attack", "none", "score")
    assert {labels: (each.mean, each.num) for labels, each in differences.items()} == {
        ("noise", "2"): (0.0, 2),
        ("noise", "3"): (-1.0, 1),
    }


def test_tables_follow_the_sweep_file_or_a_given_layout(tmp_path: Path) -> None:
    sweep = Sweep(write_sweep(tmp_path))
    [table] = sweep.tables()
    assert (table.title, table.text(("none",), ("3",))) == ("Scores", "31.5000 ± 6.3531")
    [other] = sweep.tables([{"columns": ["attack"], "metrics": {"Score": "score"}}])
    assert (other.rows, other.columns) == ([("2",), ("3",)], [("none",), ("noise",)])


def test_without_a_plan_the_axes_are_the_settings_that_differ(tmp_path: Path) -> None:
    sweep = Sweep(write_sweep(tmp_path, with_plan=False))
    assert {axis: sorted(labels) for axis, labels in sweep.axes.items()} == {
        "attack": ["noise", "none"],
        "rounds": ["2", "3"],
    }
    assert (sweep.num_planned, len(sweep.runs)) == (7, 7)
    assert len(sweep.differences("attack", "none", "score")) == 2


def test_runs_that_differ_in_many_settings_are_separate_cases(tmp_path: Path) -> None:
    for name in ("one", "other"):
        settings = {f"part_{number}": {"value": f"{name} {number}"} for number in range(5)}
        write_run(tmp_path / name, scenario={**SCENARIO, **settings})
    sweep = Sweep(tmp_path)
    assert sweep.axes == {"run": ["one", "other"]}
    assert [run.labels for run in sweep.runs] == [{"run": "one"}, {"run": "other"}]


@pytest.mark.parametrize("prefix", ["", "runs/"])
def test_runs_are_found_after_they_were_moved(tmp_path: Path, prefix: str) -> None:
    write_sweep(tmp_path)
    plan = json.loads((tmp_path / "sweep.json").read_text())
    for run in plan["runs"]:
        run["folder"] = f"{prefix}{run['folder']}"
    (tmp_path / "sweep.json").write_text(json.dumps(plan))
    scores = sorted(run.summary["score"] for run in Sweep(tmp_path).runs)
    folders = [path for path in tmp_path.iterdir() if path.is_dir()]
    (tmp_path / "runs").mkdir()
    for folder in folders:
        folder.rename(tmp_path / "runs" / folder.name)
    moved = Sweep(tmp_path)
    assert sorted(run.summary["score"] for run in moved.runs) == scores
    assert len(scores) == 7


def test_runs_of_an_earlier_plan_are_ignored(tmp_path: Path) -> None:
    write_sweep(tmp_path)
    write_run(tmp_path / "old", (), {"status": "finished", "score": 1})
    assert len(Sweep(tmp_path).runs) == 7


def test_a_written_plan_names_the_folders_of_all_runs(tmp_path: Path) -> None:
    write_plan(tmp_path / "new", PLAN, "mine", plan_runs(PLAN))
    plan = Sweep(tmp_path / "new").plan
    assert [run["folder"] for run in plan["runs"]] == [f"runs/{run.key}" for run in plan_runs(PLAN)]
    assert plan["runs"][-1]["labels"] == {"attack": "noise", "rounds": "3"}
    assert plan["tables"][0]["title"] == "Scores"


@pytest.mark.parametrize(("name", "message"), [("", "it contains no runs"), ("nowhere", "does not exist")])
def test_a_folder_without_runs_is_rejected(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(RunError, match=message):
        Sweep(tmp_path / name)


@pytest.mark.parametrize(
    "change",
    [
        {"axes": {"attack": 1}},
        {"runs": [{"folder": "none-2-1"}]},
        {"runs": [{"folder": "none-2-1", "labels": {"attack": "none"}}]},
        {"runs": [{"folder": "x", "labels": {"attack": "none", "rounds": "9"}}]},
        {"runs": [{"folder": 1, "labels": {"attack": "none", "rounds": "2"}}]},
    ],
)
def test_a_damaged_plan_is_rejected(tmp_path: Path, change: dict) -> None:
    write_sweep(tmp_path)
    path = tmp_path / "sweep.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(RunError, match=r"sweep\.json is damaged: an axis or a run is incomplete"):
        _ = Sweep(tmp_path).axes
