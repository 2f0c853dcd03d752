"""Time the aggregators and pre-aggregators: `python benchmarks/aggregators.py [--threads N] [--naive]`.

The reference is byzfl, if it is installed, for 10 messages of 122,570 entries (a small CNN). Median and
trimmed mean are also measured as a sorting network compiled by torch, without the time to compile it.
With --naive, the references are simple torch expressions at several sizes. All variants take turns, so
that a busy machine slows all of them, and the minimum time of each counts (processor time if there is one
thread). The ratio is the speed-up; "reading" is the time to read the matrix once (its sum).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from shutil import which
from time import perf_counter, process_time

import numpy as np
import torch
from table import Row, show
from torch import Tensor

from rdpfl_sim.aggregators import AGGREGATORS, PRE_AGGREGATORS
from rdpfl_sim.aggregators.order_statistics import program
from rdpfl_sim.execution.devices import keep_freed_memory

N, D = 10, 122_570
SHAPES = [(9, D), (10, D), (50, D), (4, 650)]
BUDGET_S = 1.0  # per row of the table
MUST = {"median": ">= 8", "trimmed_mean": ">= 8", "krum": ">= 5", "geometric_median": ">= 2"}
BANDS = {"median": (4, 6), "trimmed_mean": (3, 7)}
Route = Callable[[Tensor], object]


def messages(n: int, d: int) -> Tensor:
    """Return honest rows with different amounts of noise, and 30 % of rows with the opposite direction."""
    generator = torch.Generator().manual_seed(n)
    noise = 3 * torch.rand(n, 1, generator=generator) * torch.randn(n, d, generator=generator)
    u = torch.randn(d, generator=generator) + noise
    u[: 3 * n // 10] *= -5
    return u


def byzfl_routes() -> dict[str, tuple[Route, Route]]:
    """Return our and byzfl's version of each rule, with f = 3 of 10 and clipping at the median norm."""
    import byzfl

    ours: dict[str, Callable[..., Tensor]] = {**AGGREGATORS, **PRE_AGGREGATORS}
    norm = float(messages(N, D).norm(dim=1).median())
    options = {
        "centred_clipping": {"radius": norm, "start": "zero"},
        "clipping": {"max_norm": norm},
    }
    theirs: dict[str, Callable[[], Route]] = {
        "mean": byzfl.Average,
        "median": byzfl.Median,
        "trimmed_mean": partial(byzfl.TrMean, 3),
        "meamed": partial(byzfl.Meamed, 3),
        "geometric_median": byzfl.GeometricMedian,
        "centred_clipping": partial(byzfl.CenteredClipping, tau=norm),
        "krum": partial(byzfl.Krum, 3),
        "multi_krum": partial(byzfl.MultiKrum, 3),
        "monna": partial(byzfl.MoNNA, 3),
        "mda": partial(byzfl.MDA, 3),
        "smea": partial(byzfl.SMEA, 3),
        "caf": partial(byzfl.CAF, 3),
        "nnm": partial(byzfl.NNM, 3),
        "bucketing": partial(byzfl.Bucketing, 2),
        "clipping": partial(byzfl.Clipping, norm),
        "arc": partial(byzfl.ARC, 3),
    }
    routes: dict[str, tuple[Route, Route]] = {}
    for rule, make in theirs.items():
        call = partial(ours[rule], **options.get(rule, {}))
        if rule == "monna":
            call = partial(_with_own, call)
        routes[rule] = call, partial(_fresh, make)
    return routes


def _with_own(call: Callable[..., Tensor], u: Tensor) -> Tensor:
    return call(u, u[0])


def _fresh(make: Callable[[], Route], u: Tensor) -> object:
    """Call a new byzfl object, because the objects may keep state; creating one takes almost no time."""
    return make()(u)


def naive_trimmed_mean(u: Tensor) -> Tensor:
    """Sort all rows, trim, and average."""
    cut = min(-(-3 * len(u) // 10), (len(u) - 1) // 2)
    return u.sort(dim=0).values[cut : len(u) - cut].mean(dim=0)


def naive_geometric_median(u: Tensor) -> Tensor:
    """Run Weiszfeld's iteration on the rows, with the same stopping criterion."""
    y = u.mean(dim=0)
    for _ in range(100):
        distances = (u - y).norm(dim=1)
        w = 1 / distances.clamp(min=1e-6)
        last, y = y, (w / w.sum()) @ u
        if (y - last).norm() <= 1e-6 * distances.median():
            break
    return y


def naive_krum(u: Tensor) -> Tensor:
    """Run Krum on distances that are computed from differences."""
    squares = torch.cdist(u, u, compute_mode="donot_use_mm_for_euclid_dist").square()
    scores = squares.sort(dim=1).values[:, 1 : max(2, len(u) - -(-3 * len(u) // 10) - 1)].sum(dim=1)
    return u[scores.argmin()].clone()


NAIVE: dict[str, list[tuple[str, Route]]] = {
    "mean": [("u.mean", lambda u: u.mean(dim=0))],
    "median": [
        ("torch.median (lower)", lambda u: u.median(dim=0)),
        ("torch.sort", lambda u: u.sort(dim=0).values[(len(u) - 1) // 2 : len(u) // 2 + 1].mean(dim=0)),
        ("torch.quantile", lambda u: u.quantile(0.5, dim=0)),
    ],
    "trimmed_mean": [("torch.sort", naive_trimmed_mean)],
    "geometric_median": [("Weiszfeld on rows", naive_geometric_median)],
    "krum": [("torch.cdist", naive_krum)],
}


def seconds(routes: list[Route], u: Tensor) -> list[float]:
    """Return the minimum time of each route; they take turns, each on its own copy of the matrix."""
    clock = process_time if torch.get_num_threads() == 1 else perf_counter
    times: list[list[float]] = [[] for _ in routes]
    end = perf_counter() + BUDGET_S
    while len(times[0]) < 3 or (perf_counter() < end and len(times[0]) < 1000):
        for route, measured in zip(routes, times, strict=True):
            copy = u.clone()
            start = clock()
            route(copy)
            measured.append(clock() - start)
    return [min(measured) for measured in times]


def compiled(low: int, high: int) -> Route:
    """Return the sorting network of `order_statistics.program` as one compiled function."""
    network = program(N, low, high)
    operations = {np.minimum: torch.minimum, np.maximum: torch.maximum}

    @torch.compile(dynamic=False)
    def route(u: Tensor) -> Tensor:
        registers = [*u.unbind(), *[u[0]] * network.num_scratch]
        for operation, x, y, z in network.steps:
            registers[z] = operations[operation](registers[x], registers[y])
        total = registers[network.band[0]]
        for r in network.band[1:]:
            total = total + registers[r]
        return total / (high - low)

    return route


def rows(num_threads: int = 1) -> list[Row]:
    """Compare every rule with that of byzfl."""
    torch.set_num_threads(num_threads)
    keep_freed_memory()  # as in a run; applies to both
    u = messages(N, D)
    where = f"n = {N}, d = {D:,}"
    if find_spec("byzfl") is None:
        return [Row(f"aggregators, {where}", "", "byzfl is not installed: pip install byzfl")]
    table = []
    for rule, (call, rival) in byzfl_routes().items():
        floor, ours, other = seconds([Tensor.sum, call, rival], u)
        reference = f"byzfl {other * 1e3:.2f} ms"
        task = f"{rule}, {where}"
        table.append(
            Row(
                task,
                f"{ours * 1e3:.2f} ms ({ours / floor:.0f} x reading)",
                reference,
                other / ours,
                MUST.get(rule, ">= 1"),
            )
        )
        if rule in BANDS and which("g++"):
            (ours,) = seconds([compiled(*BANDS[rule])], u)
            table.append(Row(f"{task}, compiled", f"{ours * 1e3:.2f} ms", reference, other / ours, ">= 25"))
    return table


def naive_rows() -> list[Row]:
    """Compare some rules with simple torch expressions."""
    table = []
    for n, d in SHAPES:
        u = messages(n, d)
        for rule, naive in NAIVE.items():
            ours, *others = seconds([AGGREGATORS[rule], *(route for _, route in naive)], u)
            for (name, _), other in zip(naive, others, strict=True):
                table.append(
                    Row(
                        f"{rule}, {n} x {d:,}",
                        f"{ours * 1e3:.3f} ms",
                        f"{name} {other * 1e3:.3f} ms",
                        other / ours,
                    )
                )
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--naive", action="store_true", help="compare with simple torch expressions")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    title = f"{options.threads} thread(s), torch {torch.__version__}"
    show(naive_rows() if options.naive else rows(options.threads), title)
