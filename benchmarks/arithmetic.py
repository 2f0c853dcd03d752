"""The cost of portable arithmetic, compared with native arithmetic on this processor.

A process has one arithmetic, so each measurement has a process of its own, and the two take turns. The tasks
are a run of 12 clients that train on digits, and training steps of an MLP (784-256-10) and of a CNN on images
of 3x32x32, with batches of 64 and one thread.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter

import numpy as np
import torch
from table import Row, show

from rdpfl_sim import Scenario, simulate
from rdpfl_sim.execution import arithmetic
from rdpfl_sim.learning.datasets.dataset import Shard, synthetic
from rdpfl_sim.learning.models import FlatModel, cnn, mlp
from rdpfl_sim.learning.training import train
from rdpfl_sim.simulation.experiment import Experiment

NUM_PROCESSES, NUM_REPEATS = 5, 7
AT_MOST = {"digits": 1.05, "mlp": None, "cnn": 1.1}
"""The targets on processors without AVX-512; with it, native instructions are twice as wide."""
TITLES = {
    "digits": "a run of 12 digits clients",
    "mlp": "a training step, MLP 784-256",
    "cnn": "a training step, CNN",
}


def digits(kind: str) -> Callable[[], object]:
    """Return a short run, without the time to build it."""
    raw = {
        "rounds": 10,
        "clients": {"count": 12},
        "evaluation": {"every": 10**6, "global_test": False},
        "execution": {"arithmetic": kind},
    }
    experiment = Experiment(Scenario.from_dict(raw))
    return lambda: simulate(experiment)


def steps(shape: list[int], hidden: list[int] | None, num_steps: int) -> Callable[[], object]:
    """Return training steps of an MLP, or of a CNN if there are no hidden layers."""
    data = synthetic(np.random.default_rng(0), shape=shape, num_train=512, num_test=1)
    shard = Shard(data.x_train, data.y_train, torch.arange(512))
    model = FlatModel(partial(cnn, shape, 10) if hidden is None else partial(mlp, shape, 10, hidden=hidden))
    w = model.initial(0)
    return lambda: train(model, w, shard, num_steps=num_steps, batch_size=64, learning_rate=0.01, seed=0)


def seconds(task: str, kind: str) -> float:
    """Return the median time of a task in this process."""
    arithmetic.use("portable" if kind == "portable" else "native")
    torch.set_num_threads(1)
    run = {
        "digits": lambda: digits(kind),
        "mlp": lambda: steps([784], [256], 20),
        "cnn": lambda: steps([3, 32, 32], None, 2),
    }[task]()
    run()
    times_s = []
    for _ in range(NUM_REPEATS):
        began = perf_counter()
        run()
        times_s.append(perf_counter() - began)
    return median(times_s)


def measure(task: str) -> Row:
    """Compare the two in processes that take turns."""
    found: dict[str, list[float]] = {"portable": [], "native": []}
    for _ in range(NUM_PROCESSES):
        for kind, times_s in found.items():
            command = [sys.executable, __file__, "--task", task, "--kind", kind]
            times_s.append(float(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    portable, native = found["portable"], found["native"]
    ratio = median(a / b for a, b in zip(portable, native, strict=True))
    is_wide = "avx512" in arithmetic.instructions()
    target = "" if is_wide or AT_MOST[task] is None else f"<= {AT_MOST[task]}"
    texts = [f"{1e3 * median(times_s):.1f} ms" for times_s in (portable, native)]
    where = "AVX-512" if is_wide else "AVX2"
    return Row(f"portable arithmetic, {TITLES[task]}, {where}", texts[0], f"native {texts[1]}", ratio, target)


def rows() -> list[Row]:
    """Measure all tasks."""
    return [measure(task) for task in TITLES]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", choices=TITLES)
    parser.add_argument("--kind", choices=("portable", "native"), default="portable")
    options = parser.parse_args()
    if options.task:
        print(seconds(options.task, options.kind))
    else:
        show(rows())
