"""Updates in batches have the bits of single updates."""

from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

import pytest
import torch

from rdpfl_sim.aggregators import krum, mean, median, trimmed_mean
from rdpfl_sim.execution.devices import deterministic_torch
from rdpfl_sim.methods import METHODS as REGISTRY
from rdpfl_sim.methods import batching
from rdpfl_sim.methods.anchored import Anchored
from rdpfl_sim.methods.balance import Balance
from rdpfl_sim.methods.base import ClientView, Layer, Method, Payload, RunInfo
from rdpfl_sim.methods.batching import Received, Updated, UpdateInput, update_in_batches
from rdpfl_sim.methods.clipped_gossip import ClippedGossip
from rdpfl_sim.methods.dfedavgm import Dfedavgm
from rdpfl_sim.methods.direct import Direct
from rdpfl_sim.methods.ditto import Ditto
from rdpfl_sim.methods.dpsgd import Dpsgd
from rdpfl_sim.methods.fedper import Fedper
from rdpfl_sim.methods.krum_gossip import KrumGossip
from rdpfl_sim.methods.local import Local
from rdpfl_sim.methods.rdpfl import Rdpfl
from tests.methods.one_client import send, start, update
from tests.support import Services, trained

SETTINGS = RunInfo(rounds=20)
SIZE = 37
METHODS: dict[str, Method] = {
    "rdpfl": Rdpfl(SETTINGS, lambda_=0.5, warmup=2),
    "rdpfl with a narrow threshold": Rdpfl(SETTINGS, lambda_=0.5, warmup=2, tau_0=0.1, max_norm=2.0),
    "rdpfl, current": Rdpfl(SETTINGS, lambda_=0.5, warmup=2, threshold="current", aggregator=mean),
    "rdpfl, last": Rdpfl(SETTINGS, lambda_=0.5, predictor="last", aggregator=partial(trimmed_mean, trim=0.2)),
    "rdpfl, none": Rdpfl(SETTINGS, lambda_=0.5, predictor="none"),
    "rdpfl, no clip": Rdpfl(SETTINGS, lambda_=0.5, clip=False, warmup=0),
    "rdpfl, literal gamma": Rdpfl(SETTINGS, lambda_=0.5, step=0.7),
    "anchored": Anchored(SETTINGS, lambda_=0.5),
    "rdpfl, krum": Rdpfl(SETTINGS, lambda_=0.5, aggregator=krum),
    "mean": Direct(SETTINGS, lambda_=0.5),
    "median": Direct(SETTINGS, lambda_=0.5, aggregator=median),
    "trimmed mean": Direct(SETTINGS, lambda_=0.5, aggregator=partial(trimmed_mean, trim=0.25)),
    "krum": Direct(SETTINGS, lambda_=0.5, aggregator=krum),
    "dpsgd": Dpsgd(SETTINGS),
    "dfedavgm": Dfedavgm(SETTINGS),
    "balance": Balance(SETTINGS, gamma=3.0),
    "clipped gossip": ClippedGossip(SETTINGS),
    "clipped gossip, radius": ClippedGossip(SETTINGS, radius=1.0),
    "krum gossip": KrumGossip(SETTINGS),
    "median gossip": KrumGossip(SETTINGS, aggregator=median),
    "ditto": Ditto(SETTINGS),
    "fedper": Fedper(RunInfo(20, [Layer("0.weight", 0, (1, SIZE - 7)), Layer("1.weight", SIZE - 7, (1, 7))])),
    "local": Local(SETTINGS),
}
NUM_MESSAGES = [4, 4, 3, 0, 4, 1, 40, 7, 4]
"""Of each client in a round."""


def received(num: int, size: int, scale: float = 1.0) -> list[Received]:
    """Return messages; the second is stale."""
    return [
        Received(Payload(torch.randn(size) * scale), 0.5 if sender == 1 else 1.0, 4) for sender in range(num)
    ]


def after_rounds(method: Method, number: int, num_rounds: int, num_messages: int, size: int) -> UpdateInput:
    """Return the input of a client's next update after some rounds."""
    view = ClientView(number, 0, 4, Services())
    state = start(method, torch.randn(size), view)
    sent_size = send(method, state, trained(state.w[0], second_w=state.w[0]), view)[1].vector.numel()
    for round_ in range(num_rounds + 1):
        view = ClientView(number, round_, 4, Services())
        w = state.w[0] - 0.1 * torch.randn(size)
        result = trained(w, 1 + number % 4, second_w=w)
        if round_ < num_rounds:
            state, _ = update(method, state, result, received(num_messages or 2, sent_size), view)
    return UpdateInput(state, result, received(num_messages, sent_size), view)


def updates(method: Method, inputs: Sequence[UpdateInput]) -> list[Updated]:
    return update_in_batches(method, inputs, with_message_stats=method.exchanges)


def inputs(method: Method, num_rounds: int) -> list[UpdateInput]:
    """Return clients after different numbers of rounds, with every kind of input for the next round."""
    torch.manual_seed(num_rounds)
    found = [
        after_rounds(method, client, max(0, num_rounds - client % 3), num, SIZE)
        for client, num in enumerate(NUM_MESSAGES)
    ]
    sent_size = found[0].received[0].payload.vector.numel()
    huge = found[0]._replace(received=received(4, sent_size, scale=1e38))
    diverged = found[1]._replace(trained=replace(found[1].trained, w=found[1].trained.w * torch.nan))
    return [*found, huge, diverged]


def assert_same_bits(result: Any, expected: Any) -> None:
    assert repr(result.diagnostics) == repr(expected.diagnostics)
    assert repr(result.message_stats) == repr(expected.message_stats)
    for field in fields(expected.state):
        one, other = getattr(result.state, field.name), getattr(expected.state, field.name)
        assert one.numpy().tobytes() == other.numpy().tobytes(), field.name


@pytest.mark.parametrize("name", METHODS)
def test_bits_do_not_depend_on_the_batch(name: str) -> None:
    method = METHODS[name]
    some = inputs(method, 6)
    together = updates(method, some)
    for position, one in enumerate(some):
        [alone] = updates(method, [one])
        assert_same_bits(alone, together[position])
        assert_same_bits(updates(method, some[position:])[0], together[position])
        assert_same_bits(updates(method, [*some, *some, one])[-1], together[position])


@pytest.mark.slow
@pytest.mark.parametrize(("num_clients", "size"), [(40, 3001), (12, 33_333), (5, 200_000)])
@pytest.mark.parametrize("name", sorted(METHODS.keys() - {"fedper"}))
def test_bits_of_long_models_do_not_depend_on_the_batch_or_the_number_of_threads(
    name: str, num_clients: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = METHODS[name]
    torch.manual_seed(size)
    some = [after_rounds(method, client, 2, 3, size) for client in range(num_clients)]
    for num_threads in (1, 2, 3, 4):
        with deterministic_torch(num_threads):
            alone = [updates(method, [one])[0] for one in some]
            monkeypatch.setattr(batching, "MAX_FLOATS", 1 << 40)  # all in one batch
            together = updates(method, some)
            monkeypatch.undo()
        for result, expected in zip(together, alone, strict=True):
            assert_same_bits(result, expected)


def test_every_batched_method_is_tested_here() -> None:
    batched = {method for method in REGISTRY.values() if method.batched}
    assert batched == {type(method) for method in METHODS.values()}


def test_only_methods_that_use_a_clients_own_data_are_not_batched() -> None:
    assert {name for name in REGISTRY if not REGISTRY[name].batched} == {
        "bristle",
        "dispfl",
        "kd_pdfl",
        "ubar",
    }


def test_no_state_contains_the_vectors_of_other_clients() -> None:
    for method in METHODS.values():
        for state in [updated.state for updated in updates(method, inputs(method, 4))]:
            tensors = [getattr(state, field.name) for field in fields(state)]
            vectors = [tensor for tensor in tensors if tensor.dim() > 1]
            assert all(tensor.untyped_storage().nbytes() <= 2 * tensor.nbytes for tensor in vectors)


def test_vectors_that_an_update_does_not_change_are_not_copied() -> None:
    some = inputs(METHODS["rdpfl"], 4)
    for one, updated in zip(some, updates(METHODS["rdpfl"], some), strict=True):
        before, after = one.state, updated.state
        if one.received:
            assert after.d_bar_2.data_ptr() == before.d_bar_1.data_ptr()
            assert after.w_2.data_ptr() == before.w_1.data_ptr()


def test_batches_are_limited() -> None:
    sizes = []

    class Counting(Direct):
        def update(self, state, trained, inbox, clients):
            sizes.append(len(clients))
            return super().update(state, trained, inbox, clients)

    method = Counting(SETTINGS)
    size = batching.MAX_FLOATS // (14 * SIZE)
    one = inputs(method, 1)[0]
    sizes.clear()
    updates(method, [one] * (size + 3))
    assert sizes == [size, 3]


def test_method_that_is_not_batched_gets_one_row_at_a_time() -> None:
    class Alone(Direct):
        batched = False

        def update(self, state, trained, inbox, clients):
            assert len(clients) == 1
            return super().update(state, trained, inbox, clients)

    method = Alone(SETTINGS)
    some = inputs(method, 2)
    expected = updates(Direct(SETTINGS), some)
    for result, wanted in zip(updates(method, some), expected, strict=True):
        assert_same_bits(result, wanted)
