"""Time the aggregators against the obvious torch expressions: `python benchmarks/aggregators.py [threads]`.

The floor is the time to read the matrix once (its sum). Routes are timed in turn, so that a busy machine
slows all of them, and the median of the repeats counts. Ratios above 1 in the last column are our gain.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from statistics import median as middle
from time import perf_counter

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from rdpfl_sim.maths.aggregators import AGGREGATORS

SHAPES = [(9, 122_570), (10, 122_570), (50, 122_570), (4, 650)]
BUDGET_S = 0.8  # for one line of the table


def messages(n: int, d: int) -> Tensor:
    """Honest rows that differ in their noise, and 30 % of rows that point the other way."""
    generator = torch.Generator().manual_seed(n)
    noise = 3 * torch.rand(n, 1, generator=generator) * torch.randn(n, d, generator=generator)
    u = torch.randn(d, generator=generator) + noise
    u[: 3 * n // 10] *= -5
    return u


def naive_trimmed_mean(u: Tensor) -> Tensor:
    """Sort everything, cut, average."""
    cut = int(0.3 * len(u))
    return u.sort(dim=0).values[cut : len(u) - cut].mean(dim=0)


def naive_geometric_median(u: Tensor) -> Tensor:
    """Weiszfeld's iteration on the rows themselves, with the same way to stop."""
    y = u.mean(dim=0)
    for _ in range(100):
        distances = (u - y).norm(dim=1)
        w = 1 / distances.clamp(min=1e-6)
        last, y = y, (w / w.sum()) @ u
        if (y - last).norm() <= 1e-6 * distances.median():
            break
    return y


def naive_krum(u: Tensor) -> Tensor:
    """Krum on all distances, from differences."""
    squares = torch.cdist(u, u, compute_mode="donot_use_mm_for_euclid_dist").square()
    scores = squares.sort(dim=1).values[:, 1 : max(2, len(u) - -(-3 * len(u) // 10) - 1)].sum(dim=1)
    return u[scores.argmin()].clone()


ROUTES: dict[str, list[tuple[str, Callable[[Tensor], object]]]] = {
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


def seconds(routes: list[Callable[[Tensor], object]], u: Tensor) -> list[float]:
    """The median time of each route, all of them timed in turn."""
    times: list[list[float]] = [[] for _ in routes]
    end = perf_counter() + BUDGET_S
    while len(times[0]) < 3 or (perf_counter() < end and len(times[0]) < 200):
        for route, measured in zip(routes, times, strict=True):
            start = perf_counter()
            route(u)
            measured.append(perf_counter() - start)
    return [middle(measured[1:]) for measured in times]


def main() -> None:
    """Print one table for all shapes."""
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    table = Table(title=f"Aggregators, {torch.get_num_threads()} thread(s), torch {torch.__version__}")
    for heading in (
        "rows x columns",
        "rule",
        "ours ms",
        "x floor",
        "naive route",
        "naive ms",
        "naive / ours",
    ):
        table.add_column(heading, justify="left" if heading in ("rule", "naive route") else "right")
    for n, d in SHAPES:
        u = messages(n, d)
        for rule, naive in ROUTES.items():
            routes: list[Callable[[Tensor], object]] = [
                Tensor.sum,
                AGGREGATORS[rule],
                *(route for _, route in naive),
            ]
            floor, ours, *others = seconds(routes, u)
            for (name, _), other in zip(naive, others, strict=True):
                numbers = f"{ours * 1e3:.3f}", f"{ours / floor:.1f}", name, f"{other * 1e3:.3f}"
                table.add_row(f"{n} x {d}", rule, *numbers, f"{other / ours:.1f}")
        table.add_section()
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
