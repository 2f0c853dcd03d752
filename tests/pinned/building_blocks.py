"""Hashes of the operations of torch and numpy that runs consist of, in portable arithmetic.

If a digest differs on some processor, a different hash here names the operation. `python -m
tests.pinned.building_blocks` writes the hashes for the installed version of torch, and with --print prints
them.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pdist

from rdpfl_sim.execution import arithmetic
from rdpfl_sim.execution.devices import deterministic_torch
from rdpfl_sim.vectors import product, square_root
from tests.pinned.cases import VERSION

HASHES = Path(__file__).with_name("building_blocks.json")


def hashes() -> dict[str, str]:
    """Compute every building block; return a hash of the bits of each result."""
    arithmetic.use("portable")
    with deterministic_torch(num_threads=1):
        return {name: _hash(value) for name, value in [*_of_torch(), *_of_training(), *_of_numpy()]}


def known() -> dict[str, str] | None:
    """Return the hashes for this version of torch, or None if it has none."""
    found: dict[str, str] | None = json.loads(HASHES.read_text()).get(VERSION)
    return found


def _hash(value: Any) -> str:
    array = value.detach().contiguous().numpy() if isinstance(value, Tensor) else np.asarray(value)
    return blake2b(np.ascontiguousarray(array).tobytes(), digest_size=6).hexdigest()


def _of_torch() -> Iterator[tuple[str, Tensor]]:
    g = torch.Generator().manual_seed(1)
    x, w = torch.randn(64, 64, generator=g), torch.randn(64, 64, generator=g)
    big = torch.randn(64, 4810, generator=g)
    for dtype in (torch.float32, torch.float64):
        name = str(dtype).removeprefix("torch.")
        a, b, c = x.to(dtype), w.to(dtype), big.to(dtype)
        yield f"{name} multiply-add", a + b * 0.1
        yield f"{name} addcmul", torch.addcmul(a, b, b)
        yield f"{name} lerp", a.lerp(b, 0.3)
        yield f"{name} sum of rows", c.sum(1)
        yield f"{name} sum of columns", c.sum(0)
        yield f"{name} mean", c.mean(0)
        yield f"{name} std", c.std(0)
        yield f"{name} norm", c.norm(dim=1)
        yield f"{name} norm of one row", torch.linalg.vector_norm(c[0], dtype=torch.float64)
        yield f"{name} pdist", pdist(c[:12])
        yield f"{name} cumsum", c.cumsum(1)
        yield f"{name} dot", torch.dot(c[0], c[1])
        yield f"{name} matrix-vector product", c @ c[3]
        yield f"{name} vector-matrix product", a[0] @ c
        yield f"{name} matrix product", a @ b
        yield f"{name} Gram matrix", c @ c.T
        yield f"{name} addmm", torch.addmm(b[0], a, b)
        yield f"{name} bmm", torch.bmm(c[:, :640].view(64, 10, 64), c[:, 640:1280].view(64, 64, 10))
        yield (
            f"{name} baddbmm",
            torch.baddbmm(c[:, :10].unsqueeze(1), c.view(64, 37, 130), c.view(64, 130, 37)[..., :10]),
        )
        yield f"{name} square_root", square_root(a.abs())
        yield f"{name} square_root of three", square_root(a.abs()[0, :3])
        yield f"{name} rsqrt", a.abs().rsqrt()
        yield f"{name} division", a / b
        yield f"{name} exp", a.exp()
        yield f"{name} log", a.abs().log()
        yield f"{name} pow", a.abs().pow(0.3)
        yield f"{name} tanh", a.tanh()
        yield f"{name} sigmoid", a.sigmoid()
        yield f"{name} log_softmax", a.log_softmax(1)
        yield f"{name} softmax", a.softmax(1)
        yield f"{name} sort", c.sort(0).values
        yield f"{name} median", c.median(0).values
        yield f"{name} eigenvalues", torch.linalg.eigvalsh(a @ a.T)
        yield f"{name} eigenvectors", torch.linalg.eigh(a[:9] @ a[:9].T).eigenvectors
        yield f"{name} singular values", torch.linalg.svdvals(a)
    yield "randn of 15", torch.randn(15, generator=g)
    yield "randn of 1000", torch.randn(1000, generator=g)
    yield "rand", torch.rand(1000, generator=g)
    yield "randperm", torch.randperm(1000, generator=g)
    yield "kaiming_uniform_", nn.init.kaiming_uniform_(torch.empty(64, 64), a=math.sqrt(5), generator=g)


def _of_training() -> Iterator[tuple[str, Tensor]]:
    g = torch.Generator().manual_seed(2)
    images = torch.randn(16, 3, 32, 32, generator=g)

    def cnn() -> nn.Module:
        return nn.Sequential(
            *(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.GroupNorm(4, 32), nn.ReLU(), nn.AdaptiveAvgPool2d(4)),
            *(nn.Flatten(), nn.Linear(512, 10)),
        )

    def strided() -> nn.Module:
        return nn.Sequential(
            *(nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()),
            *(nn.Conv2d(64, 128, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(128), nn.ReLU()),
            *(nn.Conv2d(128, 128, 1), nn.AvgPool2d(4), nn.Flatten(), nn.Linear(2048, 10)),
        )

    tasks: dict[str, tuple[nn.Module, Tensor]] = {
        "softmax": (nn.Linear(64, 10), torch.randn(16, 64, generator=g)),
        "MLP of the digits": (
            nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)),
            torch.randn(16, 64, generator=g),
        ),
        "MLP 784-256": (
            nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)),
            torch.randn(64, 784, generator=g),
        ),
        "CNN": (cnn(), images),
        "CNN, channels last": (
            cnn().to(memory_format=torch.channels_last),
            images.to(memory_format=torch.channels_last),
        ),
        "CNN with strides": (strided(), images),
    }
    for name, (model, inputs) in tasks.items():
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(torch.randn(p.shape, generator=g) * 0.1)
        labels = torch.randint(0, 10, (len(inputs),), generator=g)
        for _ in range(3):
            loss = cross_entropy(model(inputs), labels)
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            with torch.no_grad():
                for p, gradient in zip(model.parameters(), gradients, strict=True):
                    p -= 0.05 * gradient
        yield f"{name}: loss", loss
        yield f"{name}: weights", torch.cat([p.flatten() for p in model.parameters()])


def _of_numpy() -> Iterator[tuple[str, object]]:
    rng = np.random.Generator(np.random.Philox(7))
    x = rng.standard_normal((64, 130))
    yield "numpy normal", x
    yield "numpy dirichlet", rng.dirichlet(np.full(10, 0.3), 100)
    yield "numpy gamma", rng.gamma(0.3, size=1000)
    yield "numpy exponential", rng.exponential(size=1000)
    yield "numpy lognormal", rng.lognormal(size=1000)
    yield "numpy pareto", rng.pareto(2.0, size=1000)
    yield "numpy choice", rng.choice(1000, 500, replace=False)
    yield "numpy sqrt", np.sqrt(np.abs(x))
    yield "numpy sum", x.sum()
    yield "numpy sum of rows", x.sum(axis=1)
    yield "numpy sum of columns", x.sum(axis=0)
    yield "numpy sum, float32", x.astype(np.float32).sum(axis=(0, 1))
    yield "numpy mean", x.mean()
    yield "numpy std", x.std(axis=1)
    yield "numpy percentile", np.percentile(x, 10)
    yield "numpy einsum", np.einsum("ncp,ncp->c", *2 * [x.astype(np.float32).reshape(8, 8, 130)])
    yield "product of matrices", product(x, x.T.copy())
    yield "product of matrix and vector", product(x, x[0])
    yield "product of vectors", product(x[0], x[1])
    yield "Python's log and exp", [math.log(abs(v)) + math.exp(v) for v in x.flat]
    yield "Python's sin, cos and hypot", [math.hypot(math.sin(v), math.cos(v) ** 2) for v in x.flat]


def main() -> None:
    """Write or print the hashes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--print", action="store_true", help="print one hash per line, write nothing")
    if parser.parse_args().print:
        for name, found in hashes().items():
            print(f"{name}\t{found}", flush=True)  # noqa: T201
    else:
        pins = json.loads(HASHES.read_text()) if HASHES.exists() else {}
        HASHES.write_text(json.dumps(pins | {VERSION: hashes()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
