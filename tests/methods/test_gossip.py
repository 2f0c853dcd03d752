"""D-PSGD, DFedAvgM, BALANCE, ClippedGossip, UBAR, Krum gossip, Ditto and FedPer: one step by hand each."""

from dataclasses import dataclass
from math import exp, nan, sqrt
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rdpfl_sim import Scenario, ScenarioError
from rdpfl_sim.aggregators import AGGREGATORS, mean, median
from rdpfl_sim.methods.balance import Balance
from rdpfl_sim.methods.base import ClientView, Layer, Method, RunInfo, layer_starts
from rdpfl_sim.methods.batching import Received
from rdpfl_sim.methods.clipped_gossip import ClippedGossip
from rdpfl_sim.methods.dfedavgm import Dfedavgm
from rdpfl_sim.methods.ditto import Ditto
from rdpfl_sim.methods.dpsgd import Dpsgd
from rdpfl_sim.methods.fedper import Fedper
from rdpfl_sim.methods.gossip import distances, mix
from rdpfl_sim.methods.krum_gossip import KrumGossip
from rdpfl_sim.methods.ubar import Ubar
from rdpfl_sim.simulation.experiment import Experiment
from tests.methods.one_client import client, inbox, messages, send, start, stats, update
from tests.support import small_scenario, trained

SETTINGS = RunInfo(
    rounds=10,
    layers=[Layer("0.weight", 0, (1, 1)), Layer("0.bias", 1, (1,)), Layer("2.weight", 2, (1, 1))],
)
HUGE = 3e38


class ClientContext(NamedTuple):
    """A client, and the numbers of neighbours of its neighbours."""

    view: ClientView
    degrees: list[int]


@dataclass(frozen=True)
class Bowl:
    """A batch on which the loss of a model is its squared distance to the origin; NaN for huge ones."""

    def loss(self, w: Tensor) -> float:
        return nan if w.abs().max() > 1e30 else w.square().sum().item()


def home(*degrees: int, round_: int = 1) -> ClientContext:
    """Return client 0 with its number of neighbours, and those of its neighbours."""
    own, *others = degrees or (2,) * 20
    return ClientContext(client(own, round_, Bowl()), others)


def step(method: Method, x: list[float], received: list[Received], where: ClientContext | None = None) -> Any:
    """Return the state after a round in which training led to x, its diagnostics, and the message weights."""
    view, degrees = where or home()
    received = [m._replace(degree=degree) for m, degree in zip(received, degrees, strict=False)]
    result = trained(torch.tensor(x), second_w=torch.zeros(len(x)))
    state, _ = send(method, start(method, torch.zeros(len(x)), view), result, view)
    weights = stats(method, state, result, received, view).weight if received else []
    state, report = update(method, state, result, received, view)
    return state, report, weights


def test_dpsgd_mixes_by_metropolis_weights() -> None:
    # W_01 = 1 / (1 + max(2, 1)) = 1/3 and W_02 = 1 / (1 + max(2, 4)) = 1/5; 7/15 stay with the own model.
    received = messages([3.0, 0.0], [0.0, 5.0])
    state, report, weights = step(Dpsgd(SETTINGS), [15.0, 30.0], received, home(2, 1, 4))
    assert weights == pytest.approx([1 / 3, 1 / 5])
    assert state.w[0].tolist() == pytest.approx([7.0 + 1.0, 14.0 + 1.0])
    assert report["num_accepted"] == 2
    assert report["moved"] == pytest.approx(sqrt(7**2 + 15**2))


def test_stale_message_counts_less_and_its_lost_weight_goes_to_the_own_model() -> None:
    state, _, weights = step(Dpsgd(SETTINGS), [0.0], messages([9.0], [9.0], weights=[0.5, 1.0]))
    assert weights == pytest.approx([1 / 6, 1 / 3])
    assert state.w[0].tolist() == pytest.approx([4.5])


def test_dfedavgm_replaces_the_momentum_of_the_scenario_and_mixes_as_dpsgd() -> None:
    method = Dfedavgm(SETTINGS, theta=0.0)
    work = method.training(start(method, torch.ones(2)))
    assert work.momentum == 0.0
    assert Dfedavgm(SETTINGS).training(start(method, torch.ones(2))).momentum == 0.9
    received = messages([3.0, 0.0], [0.0, 3.0])
    assert torch.equal(
        step(method, [3.0, 6.0], received)[0].w, step(Dpsgd(SETTINGS), [3.0, 6.0], received)[0].w
    )


def test_momentum_of_the_scenario_causes_a_warning_with_dfedavgm() -> None:
    def warnings(method: str) -> list[str]:
        return Experiment(small_scenario(method=method, training={"momentum": 0.5})).warnings

    assert any("training.momentum has no effect" in warning for warning in warnings("dfedavgm"))
    assert not any("momentum" in warning for warning in warnings("dpsgd"))


def test_balance_averages_the_models_within_its_radius() -> None:
    # |x| = 5, the radius is 0.5 exp(-1 * 5 / 10) 5 = 1.516: distances 1 and 1.5 are in, 1.6 and 4 are not.
    method = Balance(SETTINGS, gamma=0.5, kappa=1.0, alpha=0.25)
    received = messages([4.0, 4.0], [3.0, 5.5], [3.0, 5.6], [7.0, 4.0])
    state, report, weights = step(method, [3.0, 4.0], received, home(round_=5))
    assert weights == [0.375, 0.375, 0.0, 0.0]
    assert state.w[0].tolist() == pytest.approx([0.25 * 3 + 0.375 * 7, 0.25 * 4 + 0.375 * 9.5])
    assert report["num_accepted"] == 2


def test_balance_keeps_its_own_model_if_none_is_close_enough() -> None:
    state, report, weights = step(Balance(SETTINGS), [3.0, 4.0], messages([30.0, 40.0], [-3.0, -4.0]))
    assert (state.w[0].tolist(), report["moved"], weights) == ([3.0, 4.0], 0.0, [0.0, 0.0])


def test_balance_radius_is_inclusive_and_shrinks_with_the_clients_own_round() -> None:
    method = Balance(SETTINGS, gamma=0.5, kappa=0.0)
    assert step(method, [2.0], messages([3.0]))[2] == [0.5]
    narrow = Balance(SETTINGS, gamma=0.5 * exp(0.1) * 1.000001, kappa=1.0)
    assert step(narrow, [2.0], messages([3.0]), home(round_=1))[2] == [0.5]
    assert step(narrow, [2.0], messages([3.0]), home(round_=2))[2] == [0.0]


def test_clipped_gossip_clips_every_pull_to_a_fixed_radius() -> None:
    # W = 1/3. (3, 4) is 5 away, clipped to 1: (0.6, 0.8); (0, 0.5) is whole.
    state, _, weights = step(
        ClippedGossip(SETTINGS, radius=1.0), [0.0, 0.0], messages([3.0, 4.0], [0.0, 0.5])
    )
    assert weights == pytest.approx([1 / 15, 1 / 3])
    assert state.w[0].tolist() == pytest.approx([0.2, 0.8 / 3 + 0.5 / 3])


def test_adaptive_radius_clips_only_the_farthest_model() -> None:
    # W = 1/5 each, distances 1, 2, 3, 100. With delta = 0.25 three quarters of the weight, the three nearest,
    # count: tau^2 = (1 + 4 + 9) / 5 / 0.25 = 11.2, so that only the farthest is clipped.
    method = ClippedGossip(SETTINGS, delta=0.25)
    received = messages([1.0], [-2.0], [3.0], [100.0])
    state, _, weights = step(method, [0.0], received, home(4, 4, 4, 4, 4))
    tau = sqrt(11.2)
    assert weights == pytest.approx([0.2, 0.2, 0.2, 0.2 * tau / 100])
    assert state.w[0].tolist() == pytest.approx([(1 - 2 + 3 + tau) / 5])


def test_adaptive_radius_with_ten_equal_neighbours_counts_seven() -> None:
    # 0.7 * 10/11 and seven times 1/11 differ by rounding only.
    method = ClippedGossip(SETTINGS, delta=0.3)
    received = messages(*([float(k)] for k in range(1, 11)))
    _, _, weights = step(method, [0.0], received, home(*[10] * 11))
    tau = sqrt(sum(k * k for k in range(1, 8)) / 11 / 0.3)  # 6.5
    assert weights == pytest.approx([min(1.0, tau / k) / 11 for k in range(1, 11)])


def test_adaptive_radius_of_a_single_neighbour_is_larger_than_its_distance_or_clips_it() -> None:
    # tau^2 = W l^2 / delta: 1/2 / 0.3 > 1 leaves it whole, 1/3 / 0.6 < 1 does not.
    assert step(ClippedGossip(SETTINGS, delta=0.3), [0.0], messages([5.0]), home(1, 1))[2] == [0.5]
    clipped = step(ClippedGossip(SETTINGS, delta=0.6), [0.0], messages([5.0]), home(2, 2))[2]
    assert clipped == pytest.approx([sqrt(1 / 3 / 0.6) / 3])


def test_ubar_averages_near_models_that_are_as_good_as_the_own() -> None:
    # x = 2 has loss 4. floor(0.7 * 4) = 2 candidates, at distances 0.5 and 1: losses 6.25 and 1.
    method = Ubar(SETTINGS, rho=0.7, alpha=0.25)
    state, report, weights = step(method, [2.0], messages([2.5], [1.0], [0.5], [0.0]))
    assert weights == [0.0, 0.75, 0.0, 0.0]
    assert state.w[0].tolist() == pytest.approx([0.25 * 2 + 0.75 * 1])
    assert report["num_accepted"] == 1


def test_ubar_uses_the_best_near_model_if_none_is_as_good_as_the_own() -> None:
    state, _, weights = step(Ubar(SETTINGS, rho=1.0), [1.0], messages([3.0], [2.0], [-5.0]))
    assert weights == [0.0, 0.5, 0.0]
    assert state.w[0].tolist() == [1.5]


def test_ubar_considers_seven_of_ten_and_at_least_one() -> None:
    far_to_near = messages(*([float(10 - k)] for k in range(10)))
    weights = step(Ubar(SETTINGS, rho=0.7), [10.5], far_to_near)[2]
    assert [weight > 0 for weight in weights] == [True] * 7 + [False] * 3
    assert step(Ubar(SETTINGS, rho=0.1), [10.5], messages([10.0]))[2] == [0.5]


def test_ubar_rejects_a_model_whose_loss_is_nan() -> None:
    state, report, weights = step(Ubar(SETTINGS), [1.0], messages([HUGE]))
    assert (weights, report["num_accepted"], state.w[0].tolist()) == ([0.0], 0, [1.0])


def test_krum_gossip_selects_the_model_with_the_closest_neighbours_including_the_own() -> None:
    # Five rows, f = ceil(0.3 * 5) = 2, so that one neighbour counts: 2 and 2.5 are closest and tie.
    state, report, weights = step(KrumGossip(SETTINGS), [0.0], messages([2.0], [2.5], [9.0], [-7.0]))
    assert state.w[0].tolist() == [2.25]
    assert weights == [0.5, 0.5, 0.0, 0.0]
    assert report["moved"] == 2.25


def test_krum_gossip_with_another_aggregator_and_a_stale_message() -> None:
    # The stale 8 counts as 0 + 0.25 (8 - 0) = 2: the mean of 0, 2 and 4 is 2, of which 8 has a share of 1/12.
    received = messages([8.0], [4.0], weights=[0.25, 1.0])
    state, _, weights = step(KrumGossip(SETTINGS, aggregator=mean), [0.0], received)
    assert state.w[0].tolist() == [2.0]
    assert weights == pytest.approx([1 / 12, 1 / 3])
    assert step(KrumGossip(SETTINGS, aggregator=median), [0.0], received)[0].w[0].tolist() == [2.0]


def test_ditto_mixes_the_shared_models_and_does_not_send_the_personal_one() -> None:
    method = Ditto(SETTINGS, mu=0.7)
    state = start(method, torch.tensor([1.0]))
    assert (state.w[0].tolist(), state.shared[0].tolist()) == ([1.0], [1.0])
    own = trained(torch.tensor([2.0]), second_w=torch.tensor([-4.0]))
    state, payload = send(method, state, own)
    assert payload.vector.tolist() == [2.0]
    state, _ = update(method, state, own, messages([5.0], [8.0]))
    assert state.w[0].tolist() == [-4.0]
    assert state.shared[0].tolist() == pytest.approx([5.0])  # (2 + 5 + 8) / 3
    work = method.training(state)
    assert (work.w is state.shared, work.second_w is state.w, work.proximal_mu) == (True, True, 0.7)
    assert method.reference_point(state) is state.shared


def test_fedper_sends_and_mixes_the_body_and_keeps_its_head() -> None:
    method = Fedper(SETTINGS)
    own = trained(torch.tensor([3.0, 6.0, 100.0]))
    state, payload = send(method, start(method, torch.zeros(3)), own)
    assert payload.vector.tolist() == [3.0, 6.0]
    assert payload.size_bytes == 8
    assert method.reference_point(state)[0].tolist() == [0.0, 0.0]
    received = messages([0.0, 0.0], [6.0, 0.0])
    inspection = stats(method, state, own, received)
    assert inspection.distance_to_own == pytest.approx([sqrt(45), sqrt(45)])
    assert inspection.weight == pytest.approx([1 / 3, 1 / 3])
    assert update(method, state, own, received)[0].w[0].tolist() == pytest.approx([3.0, 2.0, 100.0])


def test_layers_start_at_their_first_parameter() -> None:
    assert layer_starts(SETTINGS.layers) == [0, 2]


@pytest.mark.parametrize(("model", "head_layers", "num_layers"), [("softmax", 1, 1), ("mlp", 2, 2)])
def test_fedper_without_a_body_is_an_error(model: str, head_layers: int, num_layers: int) -> None:
    with pytest.raises(ScenarioError) as caught:
        Experiment(small_scenario(model=model, method={"name": "fedper", "head_layers": head_layers}))
    [problem] = caught.value.problems
    assert problem.path == "method.head_layers"
    assert problem.message == f"must leave at least one layer to share; the model has {num_layers} layers"


def test_fedper_with_more_personal_layers_sends_less() -> None:
    def num_sent(head_layers: int) -> int:
        method = {"name": "fedper", "head_layers": head_layers}
        scenario = small_scenario(model={"name": "mlp", "hidden": [5, 4]}, method=method)
        return Experiment(scenario).method.num_shared

    # 8 - 5 - 4 - 3: the layers have 45, 24 and 15 parameters.
    assert [num_sent(1), num_sent(2)] == [69, 45]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ({"name": "balance", "gamma": 0.0}, "method.gamma"),
        ({"name": "balance", "alpha": 1.5}, "method.alpha"),
        ({"name": "clipped_gossip", "radius": "far"}, "method.radius"),
        ({"name": "clipped_gossip", "delta": 0.0}, "method.delta"),
        ({"name": "dfedavgm", "theta": 1.0}, "method.theta"),
        ({"name": "ubar", "rho": 0.0}, "method.rho"),
        ({"name": "krum_gossip", "aggregator": "crumb"}, "method.aggregator"),
        ({"name": "ditto", "mu": -1.0}, "method.mu"),
        ({"name": "fedper", "head_layers": 0}, "method.head_layers"),
        ({"name": "kd_pdfl", "scale": 0.0}, "method.scale"),
        ({"name": "kd_pdfl", "distance": "far"}, "method.distance"),
        ({"name": "bristle", "body": "borrowed"}, "method.body"),
        ({"name": "dispfl", "density": 0.0}, "method.density"),
        ({"name": "dispfl", "regrow": "never"}, "method.regrow"),
    ],
    ids=lambda value: value if isinstance(value, str) else value["name"],
)
def test_option_out_of_bounds_is_named(method: dict, path: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        Scenario.from_dict({"method": method})
    assert [problem.path for problem in caught.value.problems] == [path]


MIXING = {
    "dpsgd": Dpsgd(SETTINGS),
    "dfedavgm": Dfedavgm(SETTINGS),
    "balance": Balance(SETTINGS, gamma=1e9, alpha=0.0),
    "clipped_gossip": ClippedGossip(SETTINGS),
    "clipped_gossip to a radius": ClippedGossip(SETTINGS, radius=2.0),
    "ubar": Ubar(SETTINGS, alpha=0.0),
    **{name: KrumGossip(SETTINGS, aggregator=rule) for name, rule in AGGREGATORS.items()},
}


@pytest.mark.parametrize("name", MIXING)
def test_round_without_messages_keeps_the_trained_model(name: str) -> None:
    state, report, _ = step(MIXING[name], [1.0, -2.0], [])
    assert state.w[0].tolist() == [1.0, -2.0]
    assert report["moved"] == 0.0


@pytest.mark.parametrize("name", MIXING)
def test_messages_equal_to_the_own_model_change_nothing(name: str) -> None:
    state, report, _ = step(MIXING[name], [1.0, -2.0], messages([1.0, -2.0], [1.0, -2.0], weights=[1.0, 0.5]))
    assert state.w[0].tolist() == pytest.approx([1.0, -2.0])
    assert report["moved"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("name", MIXING)
@pytest.mark.parametrize("broken", [[nan, 1.0], [float("inf"), 1.0]])
def test_diverged_own_model_is_not_changed(name: str, broken: list[float]) -> None:
    state, report, weights = step(MIXING[name], broken, messages([1.0, 1.0], [2.0, 2.0], weights=[1.0, 0.5]))
    assert torch.equal(state.w[0].nan_to_num(7.0), torch.tensor(broken).nan_to_num(7.0))
    assert weights == [0.0, 0.0]
    assert report["moved"] in (None, 0.0)


def test_distance_that_overflows_or_is_nan_is_infinite() -> None:
    received = messages([HUGE], [1.0])
    [lengths] = distances(torch.tensor([[-HUGE]]), inbox(received, 1)).tolist()
    assert lengths == [float("inf"), pytest.approx(HUGE)]
    assert distances(torch.tensor([[nan]]), inbox(received, 1)).tolist() == [[float("inf")] * 2]


def test_mixture_of_the_largest_numbers_does_not_overflow() -> None:
    largest = torch.finfo(torch.float32).max
    received = messages(*([largest, -largest] for _ in range(7)))
    [mixed] = mix(torch.zeros(1, 2), inbox(received), torch.full((1, 7), 1 / 7, dtype=torch.float64))
    assert mixed.tolist() == pytest.approx([largest, -largest])
    assert torch.isfinite(mixed).all()


entries = st.floats(allow_nan=False, allow_infinity=False, width=32)
models = st.lists(entries, min_size=2, max_size=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", MIXING)
@given(models, st.lists(st.tuples(models, st.sampled_from([1.0, 0.5, 1e-30])), min_size=1, max_size=5))
def test_model_stays_finite_and_within_the_hull_for_any_messages(name: str, x: list, rows: list) -> None:
    received = messages(*(row for row, _ in rows), weights=[weight for _, weight in rows])
    state, _, weights = step(MIXING[name], x, received, home(*[len(rows)] * (1 + len(rows))))
    assert torch.isfinite(state.w).all()
    assert all(weight >= 0 for weight in weights)
    assert sum(weights) <= 1 + 1e-9
    every = torch.tensor([x, *(row for row, _ in rows)])
    slack = every.abs().max() * 1e-5 + 1e-37  # among denormal numbers rounding is coarse
    assert (state.w >= every.min(dim=0).values - slack).all()
    assert (state.w <= every.max(dim=0).values + slack).all()


BY_COORDINATE = {"median", "trimmed_mean", "meamed", "centred_clipping"}
"""The weights of these methods are means over coordinates, or exclude the clipped part."""


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MIXING.keys() - BY_COORDINATE))
@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), min_size=2, max_size=6), st.data())
def test_reported_weights_give_the_new_model(name: str, points: list, data: st.DataObject) -> None:
    (x, *others) = [list(point) for point in points]
    ages = data.draw(st.lists(st.sampled_from([1.0, 0.5]), min_size=len(others), max_size=len(others)))
    received = messages(*others, weights=ages)
    state, _, weights = step(MIXING[name], x, received, home(*[len(others)] * len(points)))
    mixed = (1 - sum(weights)) * torch.tensor(x)
    for message, weight in zip(received, weights, strict=True):
        mixed += weight * message.payload.vector
    torch.testing.assert_close(state.w[0], mixed, rtol=1e-4, atol=1e-4)
