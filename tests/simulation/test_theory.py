import pytest
import torch

from rdpfl_sim import simulate
from rdpfl_sim.learning.evaluation import LossStats
from rdpfl_sim.methods.base import BoundTerms
from rdpfl_sim.simulation.theory import Trajectory
from tests.runs import lived
from tests.support import cheap, small_scenario


def observation(loss: float, gradient: float, mean_square: float, variance: float) -> LossStats:
    return LossStats(loss, torch.tensor([gradient, 0.0]), mean_square, variance)


def three_observations() -> Trajectory:
    """Return a trajectory at 0, 2 and 3 with gradients 5, 1 and 0.5."""
    trajectory = Trajectory.start(torch.zeros(2), observation(10.0, 5.0, 36.0, 4.0))
    trajectory = trajectory.extend(torch.tensor([2.0, 0.0]), observation(4.0, 1.0, 3.0, 2.0))
    return trajectory.extend(torch.tensor([3.0, 0.0]), observation(2.0, 0.5, 1.0, 8.0))


def test_both_sides_of_the_bound_by_hand() -> None:
    verdict = three_observations().verdict(rounds=4, terms=BoundTerms(0.5, 0.1, 2, lambda_=0.5, max_norm=2.0))
    assert verdict["L"] == pytest.approx(2.0)  # |5 - 1| / 2, and |1 - 0.5| / 1
    assert verdict["G_g"] == pytest.approx(6.0)
    assert verdict["sigma_u"] == pytest.approx(2.0)  # sqrt(8 / K)
    assert verdict["mean_square_gradient"] == pytest.approx((1.0 + 0.25) / 2)
    # 4 (10 - 2) / (0.5 * 4) + 5 (2 * 6 / 2)^2 0.1^2 2^2 + 4 / 2 + 9/2 0.5^2 2^2
    assert verdict["bound"] == pytest.approx(16.0 + 7.2 + 2.0 + 4.5)
    assert verdict["bound_holds"]
    assert verdict["gamma_limit"] == pytest.approx(1 / 16)
    assert not verdict["gamma_is_small_enough"]


def test_broken_bound_is_reported() -> None:
    terms = BoundTerms(0.5, 0.1, 2, lambda_=0.0, max_norm=2.0)
    trajectory = Trajectory.start(torch.zeros(2), observation(1.0, 3.0, 0.0, 0.0))
    verdict = trajectory.extend(torch.ones(2), observation(1.0, 3.0, 0.0, 0.0)).verdict(1, terms)
    assert (verdict["bound"], verdict["bound_holds"]) == (0.0, False)


def test_diverged_model_breaks_the_bound() -> None:
    terms = BoundTerms(0.5, 0.1, 2, lambda_=0.0, max_norm=2.0)
    trajectory = Trajectory.start(torch.zeros(2), observation(1.0, 3.0, 1.0, 1.0))
    nan = float("nan")
    assert not trajectory.extend(torch.tensor([nan, nan]), observation(nan, nan, nan, nan)).verdict(1, terms)[
        "bound_holds"
    ]


def test_run_checks_the_bound_for_honest_clients() -> None:
    scenario = small_scenario(
        evaluation={"every": 1, "theory": True}, adversary={"fraction": 0.34, "attack": "sign_flip"}
    )
    result = simulate(scenario)
    theory = result.summary["theory"]
    honest = set(range(6)) - set(result.summary["byzantine"])
    assert set(map(int, theory["clients"])) == honest
    assert theory["num_judged"] == len(honest)
    assert all(verdict["L"] > 0 for verdict in theory["clients"].values())


def test_method_without_the_theorem_has_gradients_and_no_bound() -> None:
    summary = simulate(small_scenario(method="dpsgd", evaluation={"every": 2, "theory": True})).summary
    assert summary["theory"]["num_judged"] == 0
    assert all("bound" not in verdict for verdict in summary["theory"]["clients"].values())


def test_observing_does_not_change_the_models() -> None:
    blind, seeing = (simulate(small_scenario(evaluation={"every": 2, "theory": t})) for t in (False, True))
    assert all(map(torch.equal, blind.models.vectors, seeing.models.vectors))
    assert "theory" not in blind.summary


def test_monitor_continues_after_a_checkpoint() -> None:
    scenario = small_scenario(evaluation={"every": 1, "theory": True})
    once, again = lived(cheap(scenario)), lived(cheap(scenario), lambda event: event % 7 == 0)
    assert again.traces == once.traces
