"""Training steps in both memory layouts, per model and precision: `python benchmarks/layout.py`.

`ModelFacts.channels_last` declares the faster layout. The variants of a model take turns, so that a busy
machine slows all of them; the ratios count. Arithmetic is native, with one torch thread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from statistics import median
from time import perf_counter
from typing import get_args

import numpy as np
import torch
from table import Row, show

from rdpfl_sim.execution import arithmetic
from rdpfl_sim.learning.datasets.dataset import Shard, synthetic
from rdpfl_sim.learning.models import MODELS, FlatModel, Precision
from rdpfl_sim.learning.training import train

SHAPE, NUM_CLASSES, BATCH_SIZE = [3, 32, 32], 10, 64
NUM_STEPS = 2
NUM_REPEATS = {"cnn": 9, "resnet": 9, "torchvision": 3}
LAYOUTS = {"channels_last": True, "default": False}


def steps(name: str, precision: Precision, channels_last: bool) -> Callable[[], object]:
    """Return a function that takes a few training steps."""
    data = synthetic(np.random.default_rng(0), shape=SHAPE, num_train=BATCH_SIZE * NUM_STEPS, num_test=1)
    shard = Shard(data.x_train, data.y_train, torch.arange(len(data.y_train)))
    model = FlatModel(partial(MODELS[name], SHAPE, NUM_CLASSES), channels_last=channels_last)
    settings = {"num_steps": NUM_STEPS, "batch_size": BATCH_SIZE, "learning_rate": 0.01, "seed": 0}
    return partial(train, model, model.initial(0), shard, precision=precision, **settings)


def measured(name: str) -> dict[tuple[Precision, str], float]:
    """Return the median seconds per step of a model by precision and layout."""
    variants = {
        (precision, layout): steps(name, precision, channels_last)
        for precision, (layout, channels_last) in product(get_args(Precision), LAYOUTS.items())
    }
    times_s: dict[tuple[Precision, str], list[float]] = {key: [] for key in variants}
    for repeat in range(NUM_REPEATS[name] + 1):
        for key, run in variants.items():
            start = perf_counter()
            run()
            if repeat > 0:  # the first repeat is a warm-up
                times_s[key].append((perf_counter() - start) / NUM_STEPS)
    return {key: median(times) for key, times in times_s.items()}


def rows() -> list[Row]:
    """Measure the declared layout of every model relative to the other one."""
    arithmetic.use("native")
    torch.set_num_threads(1)
    found = []
    for name in NUM_REPEATS:
        times_s = measured(name)
        for precision in get_args(Precision):
            declared = precision in MODELS.facts(name).channels_last
            ours, other = ("channels_last", "default") if declared else ("default", "channels_last")
            seconds, other_s = times_s[precision, ours], times_s[precision, other]
            task = f"a training step of {name}, {precision}: {ours}"
            found.append(
                Row(task, f"{1e3 * seconds:.0f} ms", f"{other} {1e3 * other_s:.0f} ms", seconds / other_s)
            )
    return found


if __name__ == "__main__":
    show(rows())
