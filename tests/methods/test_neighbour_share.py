"""The distance that neighbours move a model, relative to its own training."""

import json
from math import inf, isnan, nan
from pathlib import Path
from typing import Any

import pytest
import torch

from rdpfl_sim.methods import METHODS
from rdpfl_sim.methods.anchored import Anchored
from rdpfl_sim.methods.base import Method, RunInfo, State, neighbour_share
from rdpfl_sim.methods.batching import Received
from rdpfl_sim.methods.direct import Direct
from rdpfl_sim.methods.dispfl import Dispfl, DispflState
from rdpfl_sim.methods.ditto import Ditto, DittoState
from rdpfl_sim.methods.dpsgd import Dpsgd
from rdpfl_sim.methods.krum_gossip import KrumGossip
from rdpfl_sim.methods.rdpfl import Rdpfl
from rdpfl_sim.simulation.simulation import simulate
from rdpfl_sim.simulation.telemetry import Histogram
from tests.methods.one_client import client, message, start, update
from tests.support import small_scenario, trained

SETTINGS = RunInfo(rounds=20)
CLIENT = client(degree=1)


def received(*vectors: list[float]) -> list[Received]:
    """Return messages of senders with one neighbour."""
    return [message(vector, degree=1) for place, vector in enumerate(vectors, start=1)]


def share(method: Method, state: State, x: list[float], messages: list[Received]) -> Any:
    """Return the share in one round."""
    return update(method, state, trained(torch.tensor(x), 1, learning_rate=0.1), messages, CLIENT)[1][
        "neighbour_share"
    ]


def at(*w: float) -> State:
    return State(torch.tensor([w], dtype=torch.float32))


def share_of(moved: float, by_training: float) -> float:
    ratio = neighbour_share(*(torch.tensor([x], dtype=torch.float64) for x in (moved, by_training)))
    return ratio.item()


def test_share_is_a_ratio() -> None:
    assert share_of(0.5, 2.0) == 0.25


@pytest.mark.parametrize(
    ("moved", "by_training"),
    [(1.0, 0.0), (0.0, 0.0), (1.0, inf), (1.0, nan), (nan, 1.0), (inf, 1.0), (1e300, 1e-300)],
)
def test_share_is_nan_if_it_is_undefined(moved: float, by_training: float) -> None:
    assert isnan(share_of(moved, by_training))


def test_share_of_directions_is_lambda_d_over_u() -> None:
    """u = (w - x) / eta = (5, 0); d = (3, 4)."""
    method = Direct(SETTINGS, lambda_=0.5)
    assert share(method, at(1, 1), [0.5, 1.0], received([3.0, 4.0])) == pytest.approx(0.5 * 5 / 5)


def test_share_of_rdpfl_is_that_of_the_bounded_direction() -> None:
    method = Rdpfl(SETTINGS, lambda_=0.5, max_norm=2.0)
    state = start(method, torch.tensor([1.0, 1.0]), CLIENT)
    assert share(method, state, [0.5, 1.0], received([30.0, 40.0])) == pytest.approx(0.5 * 2 / 5)


def test_share_of_the_anchored_estimator_is_that_of_the_direction_it_uses() -> None:
    """Messages are clipped to c |u| around u: d = u + 1.5 |u| e, and |d| = 2.5 |u|."""
    method = Anchored(SETTINGS, lambda_=0.5, max_norm=1e3)
    state = start(method, torch.tensor([1.0, 1.0]), CLIENT)
    assert share(method, state, [0.5, 1.0], received([1e4, 0.0])) == pytest.approx(0.5 * 2.5, rel=1e-3)


def test_share_of_models_is_the_distance_to_the_mixture_over_that_of_training() -> None:
    """Metropolis weights of 1/2: from x = (3, 0) to (3, 2), after a training from (0, 0)."""
    assert share(Dpsgd(SETTINGS), at(0, 0), [3.0, 0.0], received([3.0, 4.0])) == pytest.approx(2 / 3)


def test_share_of_krum_gossip_is_the_distance_to_the_chosen_model() -> None:
    method = KrumGossip(SETTINGS)
    moved = share(method, at(0, 0), [3.0, 0.0], received([3.0, 4.0], [3.0, 4.1], [3.0, 4.2]))
    assert moved == pytest.approx(4.1 / 3, abs=0.04)


def test_share_of_ditto_is_that_of_the_shared_model() -> None:
    state = DittoState(torch.tensor([[9.0, 9.0]]), torch.tensor([[0.0, 0.0]]))
    own = trained(torch.tensor([3.0, 0.0]), 1, second_w=torch.tensor([9.0, 8.0]))
    _, report = update(Ditto(SETTINGS), state, own, received([3.0, 4.0]), CLIENT)
    assert report["neighbour_share"] == pytest.approx(2 / 3)


def test_share_of_dispfl_excludes_pruned_entries() -> None:
    """The third weight is pruned, by 5; at the first the neighbour pulls from 3 to 4."""
    mask, next_mask = torch.tensor([[True, True, True]]), torch.tensor([[True, True, False]])
    state = DispflState(torch.tensor([[1.0, 2.0, 5.0]]), mask, next_mask)
    told = [message([5.0, 0.0, 0.0], mask=torch.tensor([True, False, False]))]
    own = trained(torch.tensor([3.0, 2.0, 5.0]), num_steps=1)
    _, report = update(Dispfl(SETTINGS), state, own, told, CLIENT)
    assert (report["moved"], report["neighbour_share"]) == (1.0, 0.5)
    _, report = update(Dispfl(SETTINGS), state, own, [], CLIENT)
    assert (report["moved"], report["neighbour_share"]) == (0.0, 0.0)


@pytest.mark.parametrize("method", [Direct(SETTINGS), Dpsgd(SETTINGS), KrumGossip(SETTINGS)])
def test_share_of_a_round_without_messages_is_zero(method: Method) -> None:
    assert share(method, at(1, 1), [0.5, 1.0], []) == 0.0


@pytest.mark.parametrize("method", [Direct(SETTINGS), Dpsgd(SETTINGS), KrumGossip(SETTINGS)])
@pytest.mark.parametrize("x", [[1.0, 1.0], [nan, 1.0], [inf, 1.0]])
def test_client_that_has_not_moved_or_has_diverged_has_no_share(method: Method, x: list[float]) -> None:
    assert share(method, at(1, 1), x, received([3.0, 4.0])) is None


@pytest.mark.parametrize("executor", ["inline", "threads", "stacked"])
def test_every_method_but_local_records_shares_that_the_summary_aggregates(
    tmp_path: Path, executor: str
) -> None:
    for name in METHODS:
        scenario = small_scenario(
            method={"name": name},
            model={"name": "mlp", "hidden": [4]},
            execution={"executor": executor},
        )
        result = simulate(scenario, tmp_path)
        assert result.folder is not None
        lines = (result.folder / "events.jsonl").read_text().splitlines()
        estimates = [r for r in map(json.loads, lines) if r["event"] == "estimate"]
        telemetry, byzantine = result.summary["telemetry"], result.summary["byzantine"]
        if name == "local":
            assert estimates == []
            assert telemetry["neighbour_share"] is telemetry["rounds"]["all"]["neighbour_share"] is None
            continue
        shares = [record["neighbour_share"] for record in estimates if record["client"] not in byzantine]
        expected = Histogram()
        for value in shares:
            expected.add(value)
        assert max(shares) > 0
        assert telemetry["neighbour_share"] == expected.summary()
        assert telemetry["rounds"]["all"]["neighbour_share"] == sum(shares) / len(shares)
