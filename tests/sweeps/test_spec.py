from pathlib import Path

import pytest

from rdpfl_sim import simulate
from rdpfl_sim.errors import ScenarioError
from rdpfl_sim.records.summary import METRIC_NAMES, metric_key
from rdpfl_sim.results.run import finite_number, flatten
from rdpfl_sim.sweeps.spec import SweepSpec
from rdpfl_sim.toml import read_toml
from tests.support import small_scenario

ROOT = Path(__file__).parents[2]
SWEEPS = [
    path
    for folder in ("scenarios", "analysis")
    for path in sorted((ROOT / folder).rglob("*.toml"))
    if "table" in read_toml(path)
]


def table(*metrics: str) -> SweepSpec:
    """Return a sweep with one table of these metrics."""
    return SweepSpec.from_dict({"table": [{"metrics": {path: path for path in metrics}}]})


def test_the_metrics_are_the_numbers_of_a_summary() -> None:
    scenario = small_scenario(
        rounds=2,
        topology="ring",
        adversary={"ids": [0], "attack": "noise"},
        evaluation={"global_test": True, "theory": True, "consensus": True, "validation_fraction": 0.2},
    )
    summary = flatten(simulate(scenario).summary)
    numbers = [path for path, value in summary.items() if finite_number(value) is not None]
    assert "time_to_accuracy_s.0.1" in numbers
    others = ["time_to_accuracy_s.0.95", "telemetry.age.-2", "telemetry.by_hops.17.clipped"]
    table(*numbers, *others).check_metrics()
    unused = METRIC_NAMES.keys() - {metric_key(path) for path in numbers}
    assert [path for path in unused if "time_to_accuracy_s." not in path] == []
    boolean = [path for path, value in summary.items() if isinstance(value, bool)]
    assert boolean
    for path in boolean:
        with pytest.raises(ScenarioError, match=r"summary\.json has no number with this path"):
            table(path).check_metrics()


@pytest.mark.parametrize(
    "path",
    [
        "method",
        "byzantine",
        "accuracy",
        "accuracy.honest.personal",
        "time_to_accuracy_s.0.87",
        "telemetry.age.x",
    ],
)
def test_path_that_is_not_a_number_of_a_summary_is_rejected(path: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        table("messages.lost", path).check_metrics()
    [problem] = caught.value.problems
    assert (problem.path, problem.value) == (f"table[0].metrics.{path}", path)


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_the_sweeps_of_the_repository_have_known_metrics(path: Path) -> None:
    SweepSpec.load(path)
