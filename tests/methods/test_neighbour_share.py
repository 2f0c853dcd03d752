"""How far neighbours move a model, relative to its own training."""

import json
from collections.abc import Sequence
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
import torch

from rdpfl_sim.methods import METHODS
from rdpfl_sim.methods.base import Case, Home, Method, Settings, State, neighbour_share
from rdpfl_sim.methods.direct import Direct
from rdpfl_sim.methods.dispfl import Dispfl
from rdpfl_sim.methods.dispfl import State as SparseState
from rdpfl_sim.methods.ditto import Ditto
from rdpfl_sim.methods.ditto import State as DittoState
from rdpfl_sim.methods.dpsgd import Dpsgd
from rdpfl_sim.methods.exchange import Received
from rdpfl_sim.methods.krum_gossip import KrumGossip
from rdpfl_sim.methods.rdpfl import Rdpfl
from rdpfl_sim.records.telemetry import Histogram
from rdpfl_sim.simulation.simulation import simulate
from tests.support import Neighbourhood, Own, small_scenario

SETTINGS = Settings(learning_rate=0.1, rounds=20)
HOME = Home(0, 1, Neighbourhood(degrees=[1, 1]))


def messages(*vectors: Sequence[float]) -> list[Received]:
    return [Received(j + 1, 0, 1.0, torch.tensor(v), None, True) for j, v in enumerate(vectors)]


def share(method: Method, w: State, trained: Sequence[float], received: list[Received]) -> Any:
    """The share in one round, computed alone and together."""
    own = Own(torch.tensor(trained), num_steps=1)
    _, alone = method.update(w, own, received, HOME)
    [(_, together)] = method.update_together([Case(w, own, received, HOME)])
    assert alone["neighbour_share"] == together["neighbour_share"]
    return alone["neighbour_share"]


def at(*w: float) -> State:
    return State(torch.tensor(w))


def test_share_is_a_ratio() -> None:
    assert neighbour_share(0.5, 2.0) == 0.25


@pytest.mark.parametrize(
    ("moved", "trained"),
    [(1.0, 0.0), (0.0, 0.0), (1.0, inf), (1.0, nan), (nan, 1.0), (inf, 1.0), (1e300, 1e-300)],
)
def test_share_is_none_where_it_is_no_number(moved: float, trained: float) -> None:
    assert neighbour_share(moved, trained) is None


def test_share_of_directions_is_lambda_d_over_u() -> None:
    """u = (w - x) / eta = (5, 0); d = (3, 4)."""
    method = Direct(SETTINGS, lambda_=0.5)
    assert share(method, at(1, 1), [0.5, 1.0], messages([3.0, 4.0])) == pytest.approx(0.5 * 5 / 5)


def test_share_of_rdpfl_is_that_of_the_bounded_direction() -> None:
    method = Rdpfl(SETTINGS, lambda_=0.5, max_norm=2.0)
    state = method.start(torch.tensor([1.0, 1.0]), HOME)
    assert share(method, state, [0.5, 1.0], messages([30.0, 40.0])) == pytest.approx(0.5 * 2 / 5)


def test_share_of_the_anchored_estimator_is_that_of_the_direction_it_uses() -> None:
    """Messages are held within c |u| of u: d = u + 1.5 |u| e, and |d| = 2.5 |u|."""
    method = Rdpfl(SETTINGS, lambda_=0.5, estimator="anchored", max_norm=1e3)
    state = method.start(torch.tensor([1.0, 1.0]), HOME)
    assert share(method, state, [0.5, 1.0], messages([1e4, 0.0])) == pytest.approx(0.5 * 2.5, rel=1e-3)


def test_share_of_models_is_the_way_to_the_mixture_over_that_of_training() -> None:
    """Metropolis weights of 1/2: from x = (3, 0) to (3, 2), after a training from (0, 0)."""
    assert share(Dpsgd(SETTINGS), at(0, 0), [3.0, 0.0], messages([3.0, 4.0])) == pytest.approx(2 / 3)


def test_share_of_krum_gossip_is_the_way_to_the_chosen_model() -> None:
    method = KrumGossip(SETTINGS)
    moved = share(method, at(0, 0), [3.0, 0.0], messages([3.0, 4.0], [3.0, 4.1], [3.0, 4.2]))
    assert moved == pytest.approx(4.1 / 3, abs=0.04)


def test_share_of_ditto_is_that_of_the_shared_model() -> None:
    state = DittoState(torch.tensor([9.0, 9.0]), torch.tensor([0.0, 0.0]))
    own = Own(torch.tensor([3.0, 0.0]), num_steps=1, companion=torch.tensor([9.0, 8.0]))
    _, report = Ditto(SETTINGS).update(state, own, messages([3.0, 4.0]), HOME)
    assert report["neighbour_share"] == pytest.approx(2 / 3)


def test_share_of_dispfl_leaves_out_what_is_pruned() -> None:
    """The third weight is pruned, by 5; at the first the neighbour pulls from 3 to 4."""
    mask, next_mask = torch.tensor([True, True, True]), torch.tensor([True, True, False])
    state = SparseState(torch.tensor([1.0, 2.0, 5.0]), mask, next_mask)
    received = [Received(1, 0, 1.0, torch.tensor([5.0, 0.0, 0.0]), torch.tensor([True, False, False]))]
    own = Own(torch.tensor([3.0, 2.0, 5.0]), num_steps=1)
    _, report = Dispfl(SETTINGS).update(state, own, received, HOME)
    assert (report["moved"], report["neighbour_share"]) == (1.0, 0.5)
    _, report = Dispfl(SETTINGS).update(state, own, [], HOME)
    assert (report["moved"], report["neighbour_share"]) == (0.0, 0.0)


@pytest.mark.parametrize("method", [Direct(SETTINGS), Dpsgd(SETTINGS), KrumGossip(SETTINGS)])
def test_share_of_a_round_without_messages_is_zero(method: Method) -> None:
    assert share(method, at(1, 1), [0.5, 1.0], []) == 0.0


@pytest.mark.parametrize("method", [Direct(SETTINGS), Dpsgd(SETTINGS), KrumGossip(SETTINGS)])
@pytest.mark.parametrize("trained", [[1.0, 1.0], [nan, 1.0], [inf, 1.0]])
def test_client_that_has_not_moved_or_has_diverged_has_no_share(method: Method, trained: list[float]) -> None:
    assert share(method, at(1, 1), trained, messages([3.0, 4.0])) is None


@pytest.mark.parametrize("executor", ["inline", "threads", "stacked"])
def test_every_method_but_local_records_a_share_that_the_summary_adds_up(
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
        rounds = [r for r in map(json.loads, lines) if r["event"] == "round_finished"]
        telemetry, byzantine = result.summary["telemetry"], result.summary["byzantine"]
        if name == "local":
            assert not any("neighbour_share" in record for record in rounds)
            assert telemetry["neighbour_share"] is telemetry["rounds"]["all"]["neighbour_share"] is None
            continue
        shares = [record["neighbour_share"] for record in rounds if record["client"] not in byzantine]
        expected = Histogram()
        for value in shares:
            expected.add(value)
        assert max(shares) > 0
        assert telemetry["neighbour_share"] == expected.summary()
        assert telemetry["rounds"]["all"]["neighbour_share"] == sum(shares) / len(shares)
