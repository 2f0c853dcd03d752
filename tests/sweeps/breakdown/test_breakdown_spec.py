import pytest

from rdpfl_sim.errors import ScenarioError
from rdpfl_sim.sweeps.breakdown.spec import make_spec
from tests.support import small_scenario


def test_local_training_is_one_run_unless_the_value_affects_it() -> None:
    lossy = small_scenario(
        adversary={"fraction": 0.4, "attack": "sign_flip"},
        network={"loss": {"name": "bernoulli", "probability": 0.1}},
        timing={"wait": {"name": "deadline", "seconds": 1.0}},
    )
    num_local_runs = {}
    for path in ("adversary.fraction", "network.loss.probability", "timing.wait.seconds", "method.lambda"):
        varied = make_spec(lossy, path, None, None, [1])
        num_local_runs[path] = len({varied.local_run(index, 1).key for index in (0, 1)})
    assert set(num_local_runs.values()) == {1}
    varied = make_spec(lossy, "training.learning_rate", None, None, [1])
    assert varied.local_run(0, 1).key != varied.local_run(1, 1).key


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"metric": "messages.sent"}, "--metric: is not an accuracy of honest clients"),
        ({"metric": "accuracy.honest.global.mean"}, "--metric: needs evaluation.global_test = true"),
        ({"end": 1.0}, "adversary.fraction: leaves no honest client"),
    ],
)
def test_invalid_search_is_rejected(changes: dict, problem: str) -> None:
    base = small_scenario(
        adversary={"fraction": 0.4, "attack": "sign_flip"}, evaluation={"global_test": False}
    )
    with pytest.raises(ScenarioError, match=problem):
        make_spec(base, **{"path": "adversary.fraction", "start": None, "end": None, "seeds": [1]} | changes)


def test_local_training_is_not_compared_with_itself() -> None:
    with pytest.raises(ScenarioError, match=r"method\.name: is the method that others are compared with"):
        make_spec(small_scenario(method="local"), "rounds", 2, 4, [1])
