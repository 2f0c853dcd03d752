"""Updates of many clients at once are those of each alone, and nobody's bits depend on the company."""

from functools import partial
from typing import Any

import pytest
import torch

from rdpfl_sim.execution.determinism import deterministic_torch
from rdpfl_sim.maths.aggregators import krum, mean, median, trimmed_mean
from rdpfl_sim.methods import METHODS as REGISTRY
from rdpfl_sim.methods import batching as grouping
from rdpfl_sim.methods.base import Case, Home, Method, Settings
from rdpfl_sim.methods.dfedavgm import Dfedavgm
from rdpfl_sim.methods.direct import Direct
from rdpfl_sim.methods.dpsgd import Dpsgd
from rdpfl_sim.methods.exchange import Payload, Received
from rdpfl_sim.methods.rdpfl import Rdpfl
from tests.support import Neighbourhood, Own

SETTINGS = Settings(learning_rate=0.1, rounds=20)
SIZE = 37
METHODS: dict[str, Method] = {
    "rdpfl": Rdpfl(SETTINGS, lambda_=0.5, warmup=2),
    "rdpfl with a narrow threshold": Rdpfl(SETTINGS, lambda_=0.5, warmup=2, tau_0=0.1, max_norm=2.0),
    "rdpfl, current": Rdpfl(SETTINGS, lambda_=0.5, warmup=2, threshold="current", aggregator=mean),
    "rdpfl, last": Rdpfl(SETTINGS, lambda_=0.5, predictor="last", aggregator=partial(trimmed_mean, trim=0.2)),
    "rdpfl, none": Rdpfl(SETTINGS, lambda_=0.5, predictor="none"),
    "rdpfl, no clip": Rdpfl(SETTINGS, lambda_=0.5, clip=False, warmup=0),
    "rdpfl, literal gamma": Rdpfl(SETTINGS, lambda_=0.5, step=0.7),
    "rdpfl, anchored": Rdpfl(SETTINGS, lambda_=0.5, estimator="anchored"),
    "rdpfl, krum": Rdpfl(SETTINGS, lambda_=0.5, aggregator=krum),
    "mean": Direct(SETTINGS, lambda_=0.5),
    "median": Direct(SETTINGS, lambda_=0.5, aggregator=median),
    "trimmed mean": Direct(SETTINGS, lambda_=0.5, aggregator=partial(trimmed_mean, trim=0.25)),
    "krum": Direct(SETTINGS, lambda_=0.5, aggregator=krum),
    "dpsgd": Dpsgd(SETTINGS),
    "dfedavgm": Dfedavgm(SETTINGS),
}
BATCHING = [name for name, method in REGISTRY.items() if method.update_together is not Method.update_together]
"""The methods that compute many clients at once."""
NUM_MESSAGES = [4, 4, 3, 0, 4, 1, 40, 7, 4]
"""Of each client in a round."""


def received(num: int, round_: int, scale: float = 1.0, size: int = SIZE) -> list[Received]:
    """Messages; the second is stale."""
    found = []
    for sender in range(num):
        payload = Payload(torch.randn(size) * scale)
        weight = 0.5 if sender == 1 else 1.0
        found.append(Received(sender, 0, weight, payload.vector, None, payload.is_moderate))
    return found


def cases(method: Method, rounds: int) -> list[Case]:
    """Clients after some rounds of different lengths, with all that can happen in the next."""
    torch.manual_seed(rounds)
    around = Neighbourhood(degrees=[4] * 50)
    found = []
    for client, num in enumerate(NUM_MESSAGES):
        state = method.start(torch.randn(SIZE), Home(client, 0, around))
        for round_ in range(rounds - client % 3):
            own = Own(state.w - 0.1 * torch.randn(SIZE), num_steps=1 + client % 4)
            state, _ = method.update(state, own, received(num or 2, round_), Home(client, round_, around))
        own = Own(state.w - 0.1 * torch.randn(SIZE), num_steps=1 + client % 4)
        found.append(Case(state, own, received(num, rounds), Home(client, rounds, around)))
    huge = replace_messages(found[0], received(4, rounds, scale=1e38))
    diverged = Case(found[1].state, Own(found[1].own.w_tilde * torch.nan), found[1].received, found[1].home)
    return [*found, huge, diverged]


def replace_messages(case: Case, messages: list[Received]) -> Case:
    return Case(case.state, case.own, messages, case.home)


def fields(state: Any) -> dict[str, Any]:
    return dict(vars(state))


@pytest.mark.parametrize("rounds", [0, 1, 4])
@pytest.mark.parametrize("name", METHODS)
def test_together_is_one_after_the_other(name: str, rounds: int) -> None:
    method = METHODS[name]
    some = cases(method, rounds + 2 if rounds else 0)
    together = method.update_together(some)
    for case, (state, told) in zip(some, together, strict=True):
        alone, told_alone = method.update(case.state, case.own, case.received, case.home)
        assert told.keys() == told_alone.keys()
        for key, value in told_alone.items():
            assert type(told[key]) is type(value)
            if value is not None:
                assert told[key] == pytest.approx(value, rel=1e-5, abs=1e-6, nan_ok=True)
        assert fields(state).keys() == fields(alone).keys()
        for key, value in fields(alone).items():
            if isinstance(value, torch.Tensor):
                torch.testing.assert_close(fields(state)[key], value, rtol=1e-5, atol=1e-5, equal_nan=True)
            elif value is not None:
                assert fields(state)[key] == pytest.approx(value, rel=1e-5, nan_ok=True)


@pytest.mark.parametrize("name", METHODS)
def test_bits_do_not_depend_on_the_company(name: str) -> None:
    method = METHODS[name]
    some = cases(method, 6)
    together = method.update_together(some)
    for place, case in enumerate(some):
        for company in ([case], some[place:], [*some, *some, case]):
            outcomes = method.update_together(company)
            state, told = outcomes[0] if len(company) <= len(some) else outcomes[-1]
            expected, expected_told = together[place]
            assert repr(told) == repr(expected_told)
            for key, value in fields(expected).items():
                other = fields(state)[key]
                if isinstance(value, torch.Tensor):
                    assert value.numpy().tobytes() == other.numpy().tobytes(), key
                else:
                    assert repr(value) == repr(other), key


def long_cases(method: Method, num_clients: int, size: int) -> list[Case]:
    """Clients with long models, three messages each, and a history from which a method may extrapolate."""
    torch.manual_seed(size)
    around = Neighbourhood(degrees=[4] * 50)
    found = []
    for client in range(num_clients):
        state = method.start(torch.randn(size), Home(client, 0, around))
        for round_ in range(2):
            own = Own(state.w - 0.1 * torch.randn(size))
            state, _ = method.update(state, own, received(3, round_, size=size), Home(client, round_, around))
        own = Own(state.w - 0.1 * torch.randn(size))
        found.append(Case(state, own, received(3, 2, size=size), Home(client, 2, around)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("num_clients", "size"), [(40, 3001), (12, 33_333), (5, 200_000)])
@pytest.mark.parametrize("name", METHODS)
def test_bits_of_long_models_depend_neither_on_the_company_nor_on_its_size(
    name: str, num_clients: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = METHODS[name]
    some = long_cases(method, num_clients, size)
    for num_threads in (1, 2, 3, 4):
        with deterministic_torch(num_threads):
            alone = [method.update_together([case])[0] for case in some]
            monkeypatch.setattr(grouping, "MAX_FLOATS", 1 << 40)  # all in one group
            together = method.update_together(some)
            monkeypatch.undo()
        for (state, told), (expected, expected_told) in zip(together, alone, strict=True):
            assert repr(told) == repr(expected_told)
            assert fields(state).keys() == fields(expected).keys()
            for key, value in fields(expected).items():
                other = fields(state)[key]
                assert torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other, key


def test_every_method_that_batches_is_tested_here() -> None:
    assert {REGISTRY[name] for name in BATCHING} == {
        type(method)
        for method in METHODS.values()
        if type(method).update_together is not Method.update_together
    }


def test_no_state_holds_the_memory_of_others() -> None:
    for method in METHODS.values():
        for state, _ in method.update_together(cases(method, 4)):
            tensors = [value for value in vars(state).values() if isinstance(value, torch.Tensor)]
            assert all(tensor.untyped_storage().nbytes() == tensor.nbytes for tensor in tensors)


def test_many_clients_are_computed_in_portions() -> None:
    sizes = []

    class Counting(Direct):
        def _update_alike(self, some):
            sizes.append(len(some))
            return super()._update_alike(some)

    method = Counting(SETTINGS)
    room = grouping.MAX_FLOATS // (14 * SIZE)
    method.update_together([cases(method, 1)[0]] * (room + 3))
    assert sizes == [room, 3]
