"""No message can crash an honest client, grow its memory or make its model infinite."""

from collections.abc import Iterator
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rdpfl_sim import simulate
from rdpfl_sim.aggregators import AGGREGATORS
from rdpfl_sim.attacks import ATTACKS, View, attack
from rdpfl_sim.methods import METHODS
from rdpfl_sim.methods.base import Payload
from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.simulation.simulation import Simulation
from rdpfl_sim.world.adversary.threat_model import Level
from tests.registries import temporary_components
from tests.support import cheap, odd_payloads, small_scenario

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
def hostile() -> Iterator[None]:
    """Register an attack that sends one kind of malformed message after the other."""
    with temporary_components():

        @attack(sends_malformed=True)
        def hostile(view: View) -> Tensor:
            """Send one kind of malformed message at a time."""
            place = view.memory["place"] = view.memory.get("place", -1) + 1
            return [*POISON.values()][place % len(POISON)](view.own)

        yield


@pytest.mark.parametrize("aggregator", AGGREGATORS)
@pytest.mark.parametrize("wait", ["all", "none"])
@pytest.mark.usefixtures("hostile")
def test_every_aggregator_handles_every_kind_of_malformed_message(aggregator: str, wait: str) -> None:
    scenario = small_scenario(
        rounds=len(POISON),
        topology="complete",
        method={"name": "rdpfl", "lambda": 0.5, "aggregator": aggregator, "warmup": 2},
        adversary={"attack": "hostile", "ids": [0, 3, 5]},
        timing={"wait": wait, "staleness": "keep"},
    )
    result = simulate(scenario)
    honest = [w for client, w in enumerate(result.models.vectors) if client not in (0, 3, 5)]
    assert all(torch.isfinite(w).all() for w in honest)
    assert result.summary["messages"]["rejected"] > 0
    if aggregator == "mean":
        bounded = result.summary["telemetry"]["rounds"]["all"]["bounded"]
        assert bounded > 0, "the huge messages never reached the estimator"


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(sorted(POISON)), min_size=1, max_size=12), st.integers(0, 2**32))
def test_any_order_of_malformed_messages_is_handled(courses: list[str], seed: int) -> None:
    with temporary_components():

        @attack(sends_malformed=True)
        def hostile(view: View) -> Tensor:
            """Send malformed messages in the given order."""
            return POISON[courses[view.seed % len(courses)]](view.own)

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
    assert torch.isfinite(result.models.vectors[0]).all()
    assert torch.isfinite(result.models.vectors[3]).all()


def test_a_flood_does_not_grow_a_mailbox_and_is_counted() -> None:
    run = Simulation(Experiment(small_scenario(rounds=3)), None, None)
    victim = run.clients[0]
    flooder = victim.neighbours[0]
    payload = Payload(torch.zeros_like(victim.state.learning.w[0]))
    for stamp in [-5, 0, 1, 2, 3, 4, 10**9] * 300:
        run.network.send(flooder, 1, payload, [0], stamp=stamp)
    summary = run.run().summary
    assert summary["messages"]["sent"] == 6 * 2 * 3 + 2100
    assert summary["messages"]["rejected"] == 1200
    assert summary["messages"]["duplicate"] >= 890
    assert sum(1 for _ in victim.mailbox.unread()) <= 2 * 8


OF_MODELS = sorted(set(METHODS) - {"rdpfl", "direct", "local"})
WAITS = {
    "all": {"timing": {"wait": "all"}},
    "deadline": {
        "timing": {"wait": {"name": "deadline", "seconds": 0.6}, "staleness": "keep", "compute": "lognormal"},
        "network": {"loss": "bernoulli", "latency": "exponential"},
    },
    "quorum": {
        "timing": {
            "wait": {"name": "quorum", "fraction": 0.5, "timeout_s": 1.0},
            "staleness": "decay",
            "compute": "lognormal",
        },
        "network": {"loss": "bernoulli", "latency": "exponential", "duplication": 0.2},
    },
    "none": {
        "timing": {"wait": "none", "staleness": "decay", "compute": "lognormal", "prefer": "newest"},
        "network": {"loss": "gilbert_elliott", "latency": "pareto"},
    },
    "faults": {
        "timing": {"wait": {"name": "deadline", "seconds": 0.6}, "staleness": "keep", "max_time_s": 40.0},
        "faults": [
            {"name": "crash", "clients": [0], "at_s": 1.5, "recover_after_s": 1.0},
            {"name": "crash", "clients": [2], "at_s": 2.2, "recover_after_s": 1.0, "state": "fresh"},
            {"name": "random_crashes", "mean_time_to_fail_s": 6.0, "mean_time_to_recover_s": 1.0},
            {"name": "late_join", "clients": [4], "at_s": 2.0},
            {"name": "leave", "clients": [1], "at_s": 4.0},
        ],
    },
}


def options_of(method: str) -> dict:
    """Return a model that fits the method."""
    return {"method": method, "model": {"name": "mlp", "hidden": [4]}}


def check_account(account: dict) -> None:
    assert account["sent"] == account["delivered"] + account["lost"] + account["in_flight"]
    outcomes = ("used", "stale", "duplicate", "rejected", "left_over")
    assert account["delivered"] == sum(account[outcome] for outcome in outcomes)


@pytest.mark.slow
@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("method", OF_MODELS)
def test_every_method_is_deterministic_under_every_wait_policy(method: str, wait: str) -> None:
    scenario = small_scenario(
        rounds=5,
        topology="small_world",
        adversary={"attack": "sign_flip", "ids": [3]},
        **options_of(method),
        **WAITS[wait],
    )
    result = simulate(scenario)
    check_account(result.summary["messages"])
    assert result.summary["messages"]["used"] > 0
    honest = [w for client, w in enumerate(result.models.vectors) if client != 3]
    assert all(torch.isfinite(w).all() for w in honest)
    assert not any("diverged" in warning for warning in result.summary["warnings"])
    weight = result.summary["telemetry"]["messages_from"]["honest"]["relative_weight"]
    assert weight is not None
    assert 0 <= weight <= 6
    if wait == "faults":
        assert result.summary["num_faults"] >= 6
    else:
        assert result.summary["rounds_done"] == [5, 5]
    assert simulate(scenario).summary["digest"] == result.summary["digest"]


@pytest.mark.parametrize("method", OF_MODELS)
def test_every_method_handles_malformed_messages(method: str) -> None:
    run = Simulation(cheap(small_scenario(rounds=4, topology="ring", **options_of(method))), None, None)
    kinds = odd_payloads(run.clients[0].mailbox.form)
    for kind, payload in kinds.items():
        for stamp in range(1, 5):
            run.network.send(1, 1, payload, [0], stamp=stamp)
            run.network.send(5, 1, kinds["huge"], [0], stamp=stamp)
        assert payload.size_bytes >= 0, kind
    summary = run.run().summary
    check_account(summary["messages"])
    assert summary["messages"]["rejected"] > 0
    assert summary["rounds_done"] == [4, 4]
    assert not any("diverged" in warning for warning in summary["warnings"])
    assert all(torch.isfinite(client.state.learning.w).all() for client in run.clients)


@pytest.mark.parametrize(
    "kind", [*odd_payloads(Payload(torch.zeros(2), torch.ones(2, dtype=torch.bool)).form)]
)
def test_dispfl_handles_each_kind_of_malformed_message(kind: str) -> None:
    run = Simulation(cheap(small_scenario(rounds=3, topology="ring", **options_of("dispfl"))), None, None)
    payload = odd_payloads(run.clients[0].mailbox.form)[kind]
    for stamp in (1, 2, 3):
        run.network.send(1, 1, payload, [0], stamp=stamp)
    messages = run.run().summary["messages"]
    assert torch.isfinite(run.clients[0].state.learning.w).all()
    usable = payload.form == run.clients[0].mailbox.form and payload.is_finite
    assert messages["rejected"] == (0 if usable else 3)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["rdpfl", "dispfl"])
@pytest.mark.parametrize("knowledge", get_args(Level))
@pytest.mark.parametrize("attack", ATTACKS)
def test_every_attacker_handles_malformed_messages(attack: str, knowledge: str, method: str) -> None:
    adversary = {"attack": attack, "ids": [1, 4], "knowledge": knowledge}
    experiment = cheap(small_scenario(rounds=3, topology="ring", adversary=adversary, **options_of(method)))
    form = Simulation(experiment, None, None).clients[0].mailbox.form
    for kind, payload in odd_payloads(form).items():
        run = Simulation(experiment, None, None)
        for stamp in range(5):
            for sender, attacker in ((0, 1), (2, 1), (3, 4)):
                run.network.send(sender, 1, payload, [attacker], stamp=stamp)
        summary = run.run().summary
        check_account(summary["messages"])
        assert summary["messages"]["rejected"] >= 6, kind  # there are no rounds 0 and 4
        assert summary["rounds_done"] == [3, 3], kind


@pytest.mark.parametrize("method", OF_MODELS)
def test_diverged_training_causes_a_warning_and_no_error(method: str) -> None:
    training = {"learning_rate": 1e30, "momentum": 0.9}
    scenario = small_scenario(
        training=training, topology="complete", evaluation={"moments": "updated"}, **options_of(method)
    )
    result = simulate(scenario)
    summary, num_diverged = result.summary, sum(not torch.isfinite(w).all() for w in result.models.vectors)
    assert summary["rounds_done"] == [4, 4]
    warned = f"honest clients whose models have diverged: {num_diverged}" in summary["warnings"]
    assert warned == (num_diverged > 0)
    assert warned or method == "bristle", "nothing was tested"  # a lone output layer saturates
    check_account(summary["messages"])


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("method", OF_MODELS)
def test_every_attack_sends_messages_in_the_form_of_the_method(method: str, attack: str) -> None:
    scenario = small_scenario(
        rounds=2,
        topology="complete",
        adversary={"attack": attack, "ids": [0, 3], "equivocation": "mirrored"},
        **options_of(method),
    )
    messages = simulate(cheap(scenario)).summary["messages"]
    assert (messages["rejected"] > 0) == (attack in ("nan", "inf"))
