"""Write all numbers that the text of the findings quotes, as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations

import polars as pl
from collect import KEPT
from rows import (
    HERE,
    LAMBDAS,
    axes_of,
    comparisons,
    estimate,
    local_on_cifar10,
    local_on_digits,
    paired,
    read,
    with_gain,
)

from rdpfl_sim.intervals import MeanInterval
from rdpfl_sim.sweeps.spec import SweepSpec, TableLayout

PAPER = HERE.parents[1] / "scenarios" / "paper"
HEAD = """# Tables

Made by `draw.py` from `results/`: means over seeds, ± half of the 95 % interval (in brackets: the paper's).
Differences are paired by seed.
"""


def tables() -> str:
    """Return the tables of all parts."""
    parts = {
        "1. The paper's tables": [*paper(), *pairs(), *readings()],
        "2. When do defences matter?": defences(),
        "3. Delay and loss": [*loss(), *waiting()],
        "4. Timing attacks": timing(),
        "5. Topology": topology(),
        "6. An improved R-DPFL": anchored(),
    }
    return HEAD + "".join(f"\n## {title}\n{''.join(part)}" for title, part in parts.items())


def paper() -> Iterator[str]:
    """Yield Tables I to IV with the paper's numbers, and their differences to local training."""
    for name, rows, columns, title in (
        ("clean", "Aggregation", "method.lambda", "Table I on CIFAR-10, no attack"),
        ("robustness", "Defence", "attack", "Table II on CIFAR-10"),
        ("ablation", "variant", "attack", "Table III on CIFAR-10"),
        ("sensitivity", "attack", "method.lambda", "Table IV on CIFAR-10"),
    ):
        frame, (layout,) = read(name), SweepSpec.load(PAPER / f"{name}.toml").table
        for metric, path in layout.metrics.items():
            several = len(layout.metrics) > 1
            heading = f"{title}: {metric.lower()} clients" if several else title
            published = partial(_published, layout, rows, columns, [metric] if several else [])
            yield _table(frame, rows, columns, heading, KEPT[path], published=published)
    yield _differences(read("clean"), "method.lambda", "0.0", "Aggregation", "Table I less λ = 0")
    for name, rows, columns, title in (
        ("robustness", "Defence", "attack", "Table II"),
        ("ablation", "variant", "attack", "Table III"),
        ("sensitivity", "attack", "method.lambda", "Table IV"),
        ("lambda_cifar10", "method", "attack", "Larger λ on CIFAR-10"),
    ):
        frame = with_gain(read(name), local_on_cifar10())
        yield _table(frame, rows, columns, f"{title} less training alone", "gain", sign=True)
    yield _table(read("lambda_cifar10"), "method", "attack", "Larger λ on CIFAR-10")
    yield _table(read("size_cifar10"), "size", "seed", "The paper's setting on CIFAR-10 by size, each seed")


def _published(
    layout: TableLayout, rows: str, columns: str, metric: list[str], row: str, column: str
) -> float | None:
    """Return the paper's number for a cell; with several metrics, the metric is the last label."""
    labels = {rows: row, columns: column}
    place = [labels[axis] for axis in (*layout.rows, *layout.columns)]
    return layout.published([*place, *metric])


def pairs() -> Iterator[str]:
    """Yield the pairs of cells in Tables I to IV that differ significantly, without DisPFL and noise."""
    yield "\n### Cells of Tables I to IV that can be told apart, without DisPFL and noise\n\n"
    num_pairs = 0
    for name, axis in (
        ("clean", "Aggregation"),
        ("clean", "method.lambda"),
        ("robustness", "Defence"),
        ("ablation", "variant"),
        ("sensitivity", "method.lambda"),
    ):
        cases = [case for case in read(name)[axis].unique(maintain_order=True) if case != "DisPFL"]
        for case, other in combinations(cases, 2):
            for key, found in paired(read(name), axis, case, other).items():
                num_pairs += key != ("noise",)
                if key != ("noise",) and abs(found.mean) > (found.half_width or 0.0) > 0:
                    difference = formatted(found, 4, sign=True)
                    yield f"- {name}, {', '.join(key)}: {case} less {other} {difference}\n"
    yield f"\nof {num_pairs} pairs.\n"


def readings() -> Iterator[str]:
    """Yield the effect of each ambiguity of the paper."""
    for name, columns, title in (
        ("ambiguities", "lambda", "Readings of the paper, on CIFAR-10 under min_max"),
        ("readings", "attack", "Readings of the paper, on digits at λ = 1"),
    ):
        yield _table(read(name), "reading", columns, title)
        yield _differences(read(name), "reading", "default", columns, f"{title}: less the default")
    title = "Honest clients, of 7, for which γ <= 1 / (8 L)"
    yield _table(read("ambiguities"), "reading", "lambda", title, "num_gamma_small_enough", 0)


def defences() -> Iterator[str]:
    """Yield methods by attack: with and without lambda, by their parts, and on unequal data."""
    defences, rivals, controls = read("defences"), read("rivals"), read("controls")
    local = local_on_digits()
    for weight in LAMBDAS:
        some = defences.filter(pl.col("method.lambda") == weight)
        yield _table(some, "method", "attack", f"Defences at λ = {weight}")
        title = f"Gain over training alone at λ = {weight}"
        yield _table(with_gain(some, local), "method", "attack", title, "gain", sign=True)
    yield _table(some, "method", "attack", "Worst honest client at λ = 1", "worst")
    title = "Gain of the worst honest client at λ = 1"
    yield _table(with_gain(some, local, "worst"), "method", "attack", title, "gain", sign=True)
    for column, what in (("accuracy", "Gain"), ("worst", "Gain of the worst honest client")):
        some = with_gain(read("strengths"), local, column)
        title = f"{what} over training alone by attack and strength"
        yield _table(some, "attack", "method", title, "gain", sign=True)
    for baseline in ("R-DPFL", "R-DPFL, anchored"):
        title = f"By attack and strength: less {baseline}"
        yield _differences(read("strengths"), "method", baseline, "attack", title, upright=True)
    yield _table(rivals, "method", "attack", "Methods without λ")
    yield _differences(rivals, "method", "Local", "attack", "Methods without λ less training alone")
    title = "Methods without λ less training alone, worst client"
    yield _differences(rivals, "method", "Local", "attack", title, "worst")
    yield _table(controls, "method", "attack", "Parts of the estimators at λ = 1")
    yield _differences(controls, "method", "R-DPFL", "attack", "Parts of the estimators less R-DPFL")
    title = "Honest clients, of 9, with at least half of their neighbours liars, by seed"
    yield _table(local, "method", "seed", title, "num_outside_threat_model", 0)
    for attack in ("none", "noise"):
        some = read("heterogeneity").filter(pl.col("attack") == attack)
        title = f"Unequal data (Dirichlet α), attack: {attack}"
        yield _table(some, "method", "partition.alpha", title)
        title += "; less R-DPFL, anchored"
        yield _differences(some, "method", "R-DPFL, anchored", "partition.alpha", title)


def loss() -> Iterator[str]:
    """Yield the effect of lost messages, with late messages dropped or used."""
    for late in ("dropped", "used"):
        some = read("loss").filter(pl.col("late") == late)
        title = f"Loss, late messages are {late}"
        yield _table(some, "loss", "method", title)
        yield _table(some, "loss", "method", f"{title}: simulated seconds to 0.85", "seconds_to_0.85", 1)
        yield _differences(some, "method", "Local", "loss", f"{title}: less training alone")
        silence = "R-DPFL, predicts in silence"
        yield _differences(some, "method", silence, "loss", f"{title}: less R-DPFL that predicts in silence")


def waiting() -> Iterator[str]:
    """Yield the effect of latency, stragglers and partitions, by waiting rule."""
    waiting = read("waiting")
    for method in waiting["method"].unique(maintain_order=True):
        some = waiting.filter(pl.col("method") == method)
        for what, column, digits in (
            ("accuracy", "accuracy", 3),
            ("simulated seconds to 0.85", "seconds_to_0.85", 1),
        ):
            yield _table(some, "world", "wait", f"{method}: {what} by wait", column, digits)
            title = f"{method}: {what}, less waiting for all"
            yield _differences(some, "wait", "all", "world", title, column, digits)


def timing() -> Iterator[str]:
    """Yield timing attacks, with honest content and with noise."""
    timing = read("timing")
    for content in ("honest", "noise"):
        for method in timing["method"].unique(maintain_order=True):
            some = timing.filter((pl.col("content") == content) & (pl.col("method") == method))
            title = f"{method}, {content} content"
            for what, column, digits in (
                ("accuracy", "accuracy", 3),
                ("simulated seconds", "simulated_s", 1),
            ):
                if content == "honest" or what == "accuracy":
                    yield _table(some, "lie", "wait", f"{title}: {what} by lie about time", column, digits)
                    without = f"{title}: {what}, less without a lie about time"
                    yield _differences(some, "lie", "none", "wait", without, column, digits)


def topology() -> Iterator[str]:
    """Yield graphs by placement of the Byzantine clients, accuracy by distance to them, and breakdown."""
    topology = read("topology")
    for liars in topology["liars"].unique(maintain_order=True):
        some = topology.filter(pl.col("liars") == liars)
        yield _table(some, "method", "topology", f"Graphs, liars: {liars}")
        yield _differences(
            some, "method", "Local", "topology", f"Graphs, liars: {liars}; less training alone"
        )
    some = topology.filter(pl.col("liars") == "clustered")
    for column in ("accuracy_1_hop", "accuracy_2_hops", "accuracy_3_hops"):
        title = f"Clustered liars, {column.replace('_', ' ')} away"
        yield _table(some, "method", "topology", title, column)
        yield _differences(some, "method", "Local", "topology", f"{title}: less training alone", column)
    some = topology.filter(pl.col("method") == "R-DPFL")
    local = topology.filter(pl.col("method") == "Local")
    gained = with_gain(some, local, on=("topology", "liars", "seed"))
    title = "R-DPFL's gain over training alone, less that with liars at random"
    yield _differences(gained, "liars", "random", "topology", title, "gain")
    title = "Honest clients, of 18, with at least half of their neighbours liars"
    yield _table(some, "liars", "topology", title, "num_outside_threat_model", 1)
    title = "Breakdown fraction of liars (noise)"
    yield _table(read("breakdown"), "method", "topology", title, "below_from")


def anchored() -> Iterator[str]:
    """Yield all comparisons of the anchored estimator with the paper's."""
    compared = comparisons()
    yield "\n### Anchored − paper\n\n"
    for kind in (None, *dict.fromkeys(kind for kind, _, _ in compared)):
        some = [one for one in compared if kind in (None, one[0])]
        yield f"- {kind or 'all'}: {verdict(some)}\n"
    yield "\n| | case | difference |\n|---|---|---|\n"
    for kind, case, difference in compared:
        yield f"| {kind} | {case} | {formatted(difference, sign=True)} |\n"


def _differences(
    frame: pl.DataFrame,
    axis: str,
    baseline: str,
    other: str,
    title: str,
    column: str = "accuracy",
    digits: int = 3,
    upright: bool = False,
) -> str:
    """Return the cases of one axis minus its baseline as rows (`upright`: columns), by those of another."""
    heads = [str(head) for head in frame[other].unique(maintain_order=True)]
    place = [name for name in axes_of(frame) if name != axis].index(other)
    cells: dict[str, list[str]] = {}
    for case in frame[axis].unique(maintain_order=True):
        if case != baseline:
            found = {key[place]: e for key, e in paired(frame, axis, case, baseline, column).items()}
            cells[case] = [formatted(found.get(head), digits, sign=True) for head in heads]
    if upright:
        return _grid(title, [*cells], dict(zip(heads, zip(*cells.values(), strict=True), strict=True)))
    return _grid(title, heads, cells)


def _table(
    frame: pl.DataFrame,
    rows: str,
    columns: str,
    title: str,
    column: str = "accuracy",
    digits: int = 3,
    sign: bool = False,
    published: Callable[[str, str], float | None] = lambda row, column: None,
) -> str:
    """Return the means by the cases of two axes; if an event may not occur, also how often it did not."""
    heads = [str(head) for head in frame[columns].unique(maintain_order=True)]
    cells: dict[str, list[str]] = {}
    for row in frame[rows].unique(maintain_order=True):
        for head in heads:
            some = frame.filter((pl.col(rows) == row) & (pl.col(columns).cast(pl.String) == head))
            text = formatted(estimate(some[column].to_list()), digits, sign)
            paper, missing = published(row, head), some[column].null_count()
            if paper is not None:
                text += f" ({paper:.4f})"
            if missing > 0 and column in ("seconds_to_0.85", "below_from"):
                text += f" ({missing} of {len(some)} never)"
            cells.setdefault(row, []).append(text)
    return _grid(title, heads, cells)


def _grid(title: str, heads: Sequence[str], rows: Mapping[str, Sequence[str]]) -> str:
    text = f"\n### {title}\n\n| | {' | '.join(heads)} |\n|---|{'---|' * len(heads)}\n"
    return text + "".join(f"| {label} | {' | '.join(cells)} |\n" for label, cells in rows.items())


def verdict(found: Sequence[tuple[str, str, MeanInterval]]) -> str:
    """Return the number of comparisons, and how many intervals are above and below zero."""
    better = sum(e.low > 0 for *_, e in found)
    worse = sum(e.high < 0 for *_, e in found)
    least = min(e.mean for *_, e in found)
    return f"{len(found)} comparisons: better in {better}, worse in {worse}; the least is {least:+.3f}"


def formatted(found: MeanInterval | None, digits: int = 3, sign: bool = False) -> str:
    """Format a mean and its interval for a table."""
    if found is None:
        return "–"
    width = f" ± {found.half_width:.{digits}f}" if found.half_width is not None else ""
    return f"{found.mean:{'+' if sign else ''}.{digits}f}{width}"
