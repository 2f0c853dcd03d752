"""No code draws from a process-wide generator, so other code may use it."""

from __future__ import annotations

import ast
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest
import torch

from rdpfl_sim import Scenario, simulate
from tests.support import small_scenario

PACKAGE = Path(__file__).parents[2] / "rdpfl_sim"
DRAWS = {
    *("rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm", "normal"),
    *("bernoulli", "multinomial", "poisson", "dropout", "shuffle"),
    *("uniform_", "normal_", "random_", "exponential_", "bernoulli_", "cauchy_", "geometric_", "log_normal_"),
}
"""Functions and methods of torch that draw."""
SEEDS = {
    "manual_seed",
    "seed",
    "get_rng_state",
    "set_rng_state",
    "fork_rng",
    "default_generator",
    "initial_seed",
}
"""Attributes of torch that are about its global generator."""
OWN = {"Generator", "PCG64"}
"""Names in numpy.random that create separate generators."""


def scenario(**changes: object) -> Scenario:
    """Return a scenario that draws everything: initial models, masks, noise, graphs, delays."""
    return small_scenario(
        **{
            "topology": {"name": "small_world", "k": 4},
            "model": {"name": "mlp", "hidden": [16]},
            "training": {"start": "different"},
            "method": {"name": "dispfl", "regrow": "random"},
            "adversary": {"fraction": 0.3, "attack": "noise"},
            "network": {"latency": "exponential", "loss": {"name": "bernoulli", "probability": 0.2}},
            "timing": {"wait": {"name": "deadline", "seconds": 0.2}},
            **changes,
        }
    )


def states() -> bytes:
    """Return the states of all global generators."""
    return pickle.dumps([torch.get_rng_state().tolist(), np.random.get_state(), random.getstate()])  # noqa: NPY002


@pytest.mark.parametrize("executor", ["inline", "threads", "stacked"])
def test_a_run_does_not_change_the_global_generators(executor: str) -> None:
    before = states()
    simulate(scenario(execution={"executor": executor}))
    assert states() == before


def test_concurrent_runs_have_the_digest_of_a_single_run_even_if_other_threads_draw() -> None:
    alone = simulate(scenario()).summary["digest"]
    digests: list[str] = []
    done = Event()

    def draw() -> None:
        while not done.is_set():
            torch.rand(3)
            torch.manual_seed(3)
            np.random.rand(3)  # noqa: NPY002
            random.random()

    runs = [Thread(target=lambda: digests.append(simulate(scenario()).summary["digest"])) for _ in range(6)]
    other = Thread(target=draw)
    with torch.random.fork_rng(devices=[]):
        other.start()
        for run in runs:
            run.start()
        for run in runs:
            run.join()
        done.set()
        other.join()
    assert digests == [alone] * 6


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_no_file_uses_a_global_generator(path: Path) -> None:
    assert list(global_draws(path.read_text())) == []


@pytest.mark.parametrize(
    "code",
    [
        "torch.rand(3)",
        "torch.manual_seed(1)",
        "torch.random.fork_rng()",
        "torch.default_generator.manual_seed(1)",
        "x.uniform_(0, 1)",
        "torch.randperm(3, device='cpu')",
        "np.random.rand(3)",
        "np.random.default_rng()",
        "numpy.random.shuffle(x)",
        "import random",
        "from random import choice",
        "from numpy.random import rand",
        "nx.gnp_random_graph(3, 0.5)",
        "nn.functional.dropout(x)",
    ],
)
def test_use_of_a_global_generator_is_detected(code: str) -> None:
    assert list(global_draws(code))


@pytest.mark.parametrize(
    "code",
    [
        "torch.rand(3, generator=g)",
        "torch.Generator().manual_seed(1)",
        "rng.shuffle(x)",
        "np.random.Generator(np.random.PCG64(1))",
        "np.random.default_rng(0).normal()",
        "nx.gnp_random_graph(3, 0.5, seed=1)",
        "generator.manual_seed(1)",
    ],
)
def test_use_of_a_local_generator_is_not_reported(code: str) -> None:
    assert not list(global_draws(code))


def global_draws(code: str) -> Iterator[str]:
    """Return the uses of a global generator of torch, numpy or Python in a program, by line."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if _is_import_of_random(node) or _is_global(node):
            yield f"line {node.lineno}: {ast.unparse(node)}"  # type: ignore[attr-defined]


def _is_import_of_random(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module in ("random", "numpy.random", "torch.random")
    return isinstance(node, ast.Import) and any(alias.name == "random" for alias in node.names)


def _is_global(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        owner = ast.unparse(node.value)
        if owner in ("torch", "torch.random", "torch.cuda") and node.attr in SEEDS:
            return True
        return owner in ("np.random", "numpy.random") and node.attr not in {*OWN, "default_rng"}
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    owner, name = ast.unparse(node.func.value), node.func.attr
    given = {keyword.arg for keyword in node.keywords}
    if name == "default_rng":
        return not node.args
    if owner == "nx":
        return ("random" in name or name in NETWORKX) and "seed" not in given
    draws = name in DRAWS and (owner.startswith(("torch", "nn", "functional")) or name.endswith("_"))
    return draws and "generator" not in given


NETWORKX = {"watts_strogatz_graph", "barabasi_albert_graph", "spring_layout"}
"""Functions of networkx that draw, although their names do not indicate it."""
