"""Torch's random functions with a given generator."""

import subprocess
import sys
from collections.abc import Callable
from threading import Event, Thread

import pytest
import torch
from torch import Tensor, nn

from rdpfl_sim.learning.models import seeded

DRAWS: dict[str, Callable[[], Tensor]] = {
    "rand": lambda: torch.rand(3, 2),
    "randn": lambda: torch.randn(40),
    "randint": lambda: torch.randint(9, (7,)),
    "randint from": lambda: torch.randint(3, 9, (7,)),
    "randperm": lambda: torch.randperm(9),
    "normal": lambda: torch.normal(0.0, 2.0, (5,)),
    "normal around": lambda: torch.normal(torch.arange(5.0), torch.ones(5)),
    "bernoulli": lambda: torch.bernoulli(torch.full((20,), 0.5)),
    "multinomial": lambda: torch.multinomial(torch.ones(9), 4),
    "poisson": lambda: torch.poisson(torch.full((9,), 5.0)),
    "dropout": lambda: nn.functional.dropout(torch.ones(50), 0.5),
    "uniform_": lambda: torch.empty(9).uniform_(-1, 3),
    "exponential_": lambda: torch.empty(9).exponential_(),
    "random_": lambda: torch.empty(9).random_(),
    "kaiming_uniform_": lambda: nn.init.kaiming_uniform_(torch.empty(3, 4), a=5**0.5),
    "xavier_normal_": lambda: nn.init.xavier_normal_(torch.empty(3, 4)),
    "trunc_normal_": lambda: nn.init.trunc_normal_(torch.empty(30)),
    "orthogonal_": lambda: nn.init.orthogonal_(torch.empty(4, 4)),
    "sparse_": lambda: nn.init.sparse_(torch.empty(6, 6), 0.3),
    "gamma": lambda: torch.distributions.Gamma(2.0, 1.0).sample((5,)),
    "lstm": lambda: torch.cat([p.detach().flatten() for p in nn.LSTM(3, 3).parameters()]),
    "attention": lambda: nn.MultiheadAttention(4, 2).in_proj_weight.detach(),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_equal_those_of_the_global_generator_which_does_not_change(name: str) -> None:
    before = torch.get_rng_state()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        expected = DRAWS[name]()
    with seeded(7):
        first, second = DRAWS[name](), DRAWS[name]()
    assert torch.equal(first, expected)
    assert not torch.equal(second, expected)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_generator_that_is_given_is_used() -> None:
    rates = torch.full((9,), 5.0)
    expected = [torch.rand(3, generator=generator(1)), torch.poisson(rates, generator(1))]
    with seeded(7):
        assert torch.equal(torch.rand(3, generator=generator(1)), expected[0])
        assert torch.equal(torch.poisson(rates, generator(1)), expected[1])


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_a_random_function_that_takes_no_generator_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"aten\.native_dropout draws .* accepts no other"), seeded(7):
        torch.native_dropout(torch.ones(3), 0.5, train=True)


def test_other_threads_still_use_the_global_generator() -> None:
    entered, drawn, found = Event(), Event(), []

    def other() -> None:
        entered.wait()
        found.append(torch.rand(3))
        drawn.set()

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        expected = torch.rand(3)
        torch.manual_seed(1)
        thread = Thread(target=other)
        thread.start()
        with seeded(7):
            entered.set()
            drawn.wait()
        thread.join()
    assert torch.equal(found[0], expected)


@pytest.mark.slow
def test_drawing_does_not_import_the_compiler_of_torch() -> None:
    code = """
import sys, torch
from rdpfl_sim.learning.models import FlatModel, softmax
FlatModel(lambda: softmax([4], 3)).initial(1)
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
