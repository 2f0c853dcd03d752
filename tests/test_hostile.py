"""Whatever Byzantine clients send, an honest client neither crashes nor grows, and its model stays finite."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rdpfl_sim import simulate
from rdpfl_sim.blueprint import Blueprint
from rdpfl_sim.maths.aggregators import AGGREGATORS
from rdpfl_sim.maths.attacks import ATTACKS, View
from rdpfl_sim.maths.types import Payload
from rdpfl_sim.simulation import Simulation
from tests.support import small_scenario

POISON = {
    "nan": lambda u: u * float("nan"),
    "inf": lambda u: u.sign() / 0,
    "huge": lambda u: torch.full_like(u, 3e38),
    "huge and alternating": lambda u: torch.where(torch.arange(len(u)) % 2 == 0, 3e38, -3e38),
    "empty": lambda u: u[:0],
    "too long": lambda u: torch.cat([u, u]),
    "a matrix": lambda u: u.unsqueeze(0),
    "zero": torch.zeros_like,
    "honest": lambda u: u,
}


@pytest.fixture
def menu():
    """An attack that sends one dish after the other; registered as a user would."""
    courses: list[str] = []

    def hostile(view: View) -> Tensor:
        """One kind of nonsense per message."""
        courses.append(courses.pop(0))
        return POISON[courses[-1]](view.own)

    ATTACKS["hostile"] = hostile
    yield courses
    del ATTACKS["hostile"]


@pytest.mark.parametrize("aggregator", AGGREGATORS)
@pytest.mark.parametrize("wait", ["all", "none"])
def test_every_kind_of_nonsense_is_survived_under_every_aggregator(menu, aggregator: str, wait: str) -> None:
    menu[:] = list(POISON)
    scenario = small_scenario(
        rounds=8,
        topology="complete",
        method={"name": "rdpfl", "lambda": 0.5, "aggregator": aggregator, "warmup": 2},
        adversary={"attack": "hostile", "ids": [0, 3, 5]},
        timing={"wait": wait, "staleness": "keep"},
    )
    result = simulate(scenario)
    honest = [w for client, w in enumerate(result.models) if client not in (0, 3, 5)]
    assert all(torch.isfinite(w).all() for w in honest)
    assert result.summary["messages"]["rejected"] > 0
    if aggregator == "mean":
        bounded = result.summary["telemetry"]["rounds"]["all"]["bounded"]
        assert bounded > 0, "the huge messages never reached the estimator"


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(sorted(POISON)), min_size=1, max_size=12), st.integers(0, 2**32))
def test_any_order_of_nonsense_is_survived(courses: list[str], seed: int) -> None:
    def hostile(view: View) -> Tensor:
        """The course of the day."""
        return POISON[courses[view.seed % len(courses)]](view.own)

    ATTACKS["hostile"] = hostile
    try:
        scenario = small_scenario(
            seed=seed,
            rounds=5,
            clients={"count": 4},
            topology="ring",
            method={"name": "rdpfl", "lambda": 1.0, "warmup": 1},
            adversary={"attack": "hostile", "ids": [1, 2]},
            network={"loss": "bernoulli"},
            timing={"wait": {"name": "deadline", "seconds": 0.5}},
        )
        result = simulate(scenario)
    finally:
        del ATTACKS["hostile"]
    assert torch.isfinite(result.models[0]).all()
    assert torch.isfinite(result.models[3]).all()


def test_a_flood_neither_grows_a_mailbox_nor_is_lost_in_the_accounts() -> None:
    run = Simulation(Blueprint(small_scenario(rounds=3)), None, None)
    victim = run.clients[0]
    flooder = victim.neighbours[0]
    payload = Payload(torch.zeros_like(victim.life.learning.w))
    for stamp in [-5, 0, 1, 2, 3, 4, 10**9] * 300:
        run.network.send(flooder, 1, stamp, payload, [0])
    summary = run.run().summary
    assert summary["messages"]["sent"] == 6 * 2 * 3 + 2100
    assert summary["messages"]["rejected"] == 1200
    assert summary["messages"]["duplicate"] >= 890
    assert sum(1 for _ in victim.life.mailbox.leftovers()) <= 2 * 8
