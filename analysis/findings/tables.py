"""Write all tables of the findings as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import polars as pl
from collect import KEPT
from overview import CONDITIONS, METHODS, overview
from rows import (
    HERE,
    LAMBDAS,
    adjusted_p_values,
    axes_of,
    comparisons,
    estimate,
    local_on_cifar10,
    local_on_digits,
    p_value,
    paired,
    pairs_of_cells,
    read,
    with_gain,
)

from rdpfl_sim.intervals import MeanInterval
from rdpfl_sim.results.tables import TableLayout
from rdpfl_sim.sweeps.spec import SweepSpec

PAPER = HERE.parents[1] / "scenarios" / "paper"
HEAD = """# Tables

Made by `draw.py` from `results/`: means over seeds, ± half of the 95 % interval (in brackets: the paper's).
Differences are paired by seed.
"""


def tables() -> str:
    """Return the tables of all parts."""
    parts = {
        "Overview": summary(),
        "1. The paper's tables": [*paper(), *pairs(), *readings()],
        "2. When do defences matter?": defences(),
        "3. Delay and loss": [*loss(), *waiting()],
        "4. Timing attacks": timing(),
        "5. Topology": topology(),
        "6. An improved R-DPFL": anchored(),
    }
    return HEAD + "".join(f"\n## {title}\n{''.join(part)}" for title, part in parts.items())


def summary() -> Iterator[str]:
    """Yield the table at the top of the findings."""
    found = overview()
    cells = {}
    for method in METHODS:
        row = [found[method, condition] for condition in CONDITIONS]
        cells[method] = [formatted(c.gain, sign=True) + (f" ({c.attack})" if c.attack else "") for c in row]
    yield _grid("Gain over local training in the same condition, λ = 1", [*CONDITIONS], cells)


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
    yield _differences(read("clean"), "method.lambda", "0.0", "Aggregation", "Table I minus λ = 0")
    for name, rows, columns, title in (
        ("robustness", "Defence", "attack", "Table II"),
        ("ablation", "variant", "attack", "Table III"),
        ("sensitivity", "attack", "method.lambda", "Table IV"),
        ("lambda_cifar10", "method", "attack", "Larger λ on CIFAR-10"),
    ):
        frame = with_gain(read(name), local_on_cifar10())
        yield _table(frame, rows, columns, f"{title} minus local training", "gain", sign=True)
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
    yield "\n### Cells of Tables I to IV that differ by more than their intervals (no DisPFL, no noise)\n\n"
    found = pairs_of_cells()
    for name, labels, cases, difference in found:
        if abs(difference.mean) > (difference.half_width or 0.0) > 0:
            yield f"- {name}, {labels}: {cases} {formatted(difference, 4, sign=True)}\n"
    yield f"\nof {len(found)} pairs.\n"


def readings() -> Iterator[str]:
    """Yield the effect of each ambiguity of the paper."""
    for name, columns, title in (
        ("ambiguities", "lambda", "Readings of the paper, on CIFAR-10 under min_max"),
        ("readings", "attack", "Readings of the paper, on digits at λ = 1"),
    ):
        yield _table(read(name), "reading", columns, title)
        yield _differences(read(name), "reading", "default", columns, f"{title}: minus the default")
    title = "Honest clients, of 7, for which γ <= 1 / (8 L)"
    yield _table(read("ambiguities"), "reading", "lambda", title, "num_gamma_small_enough", 0)


def defences() -> Iterator[str]:
    """Yield methods by attack: with and without lambda, by their parts, and on unequal data."""
    defences, rivals, controls = read("defences"), read("rivals"), read("controls")
    local = local_on_digits()
    for weight in LAMBDAS:
        some = defences.filter(pl.col("method.lambda") == weight)
        yield _table(some, "method", "attack", f"Defences at λ = {weight}")
        title = f"Gain over local training at λ = {weight}"
        yield _table(with_gain(some, local), "method", "attack", title, "gain", sign=True)
    yield _table(some, "method", "attack", "Worst honest client at λ = 1", "worst")
    title = "Gain of the worst honest client at λ = 1"
    yield _table(with_gain(some, local, "worst"), "method", "attack", title, "gain", sign=True)
    for column, what in (("accuracy", "Gain"), ("worst", "Gain of the worst honest client")):
        some = with_gain(read("strengths"), local, column)
        title = f"{what} over local training by attack and strength"
        yield _table(some, "attack", "method", title, "gain", sign=True)
    for baseline in ("R-DPFL", "R-DPFL, anchored"):
        title = f"By attack and strength: minus {baseline}"
        yield _differences(read("strengths"), "method", baseline, "attack", title, upright=True)
    yield _table(rivals, "method", "attack", "Methods without λ")
    yield _differences(rivals, "method", "Local", "attack", "Methods without λ minus local training")
    title = "Methods without λ minus local training, worst client"
    yield _differences(rivals, "method", "Local", "attack", title, "worst")
    yield _table(controls, "method", "attack", "Parts of the estimators at λ = 1")
    yield _differences(controls, "method", "R-DPFL", "attack", "Parts of the estimators minus R-DPFL")
    speed = read("speed_control")
    yield _differences(
        speed, "method", "Local", "rounds", "After several numbers of rounds: minus local training"
    )
    title = "Honest clients, of 9, with at least half of their neighbours Byzantine, by seed"
    yield _table(local, "method", "seed", title, "num_outside_threat_model", 0)
    for attack in ("none", "noise"):
        some = read("heterogeneity").filter(pl.col("attack") == attack)
        title = f"Unequal data (Dirichlet α), attack: {attack}"
        yield _table(some, "method", "partition.alpha", title)
        title += "; minus R-DPFL, anchored"
        yield _differences(some, "method", "R-DPFL, anchored", "partition.alpha", title)


def loss() -> Iterator[str]:
    """Yield the effect of lost messages, with late messages dropped or used."""
    for late in ("dropped", "used"):
        some = read("loss").filter(pl.col("late") == late)
        title = f"Loss, late messages are {late}"
        yield _table(some, "loss", "method", title)
        yield _table(some, "loss", "method", f"{title}: simulated seconds to 0.85", "seconds_to_0.85", 1)
        yield _differences(some, "method", "Local", "loss", f"{title}: minus local training")
        silence = "R-DPFL, predicts in silence"
        yield _differences(some, "method", silence, "loss", f"{title}: minus R-DPFL that predicts in silence")


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
            title = f"{method}: {what}, minus waiting for all"
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
                    yield _table(some, "timing", "wait", f"{title}: {what} by timing attack", column, digits)
                    without = f"{title}: {what}, minus no timing attack"
                    yield _differences(some, "timing", "none", "wait", without, column, digits)


def topology() -> Iterator[str]:
    """Yield graphs by placement of the Byzantine clients, accuracy by distance to them, and breakdown."""
    topology = read("topology")
    for placement in topology["placement"].unique(maintain_order=True):
        some = topology.filter(pl.col("placement") == placement)
        yield _table(some, "method", "topology", f"Graphs, Byzantine clients: {placement}")
        yield _differences(
            some,
            "method",
            "Local",
            "topology",
            f"Graphs, Byzantine clients: {placement}; minus local training",
        )
    some = topology.filter(pl.col("placement") == "clustered")
    for column in ("accuracy_1_hop", "accuracy_2_hops", "accuracy_3_hops"):
        title = f"Clustered Byzantine clients, {column.replace('_', ' ')} away"
        yield _table(some, "method", "topology", title, column)
        yield _differences(some, "method", "Local", "topology", f"{title}: minus local training", column)
    some = topology.filter(pl.col("method") == "R-DPFL")
    local = topology.filter(pl.col("method") == "Local")
    gained = with_gain(some, local, on=("topology", "placement", "seed"))
    title = "R-DPFL's gain over local training, minus that with random placement"
    yield _differences(gained, "placement", "random", "topology", title, "gain")
    title = "Honest clients, of 18, with at least half of their neighbours Byzantine"
    yield _table(some, "placement", "topology", title, "num_outside_threat_model", 1)
    title = "Breakdown fraction of Byzantine clients (noise)"
    yield _table(read("breakdown"), "method", "topology", title, "below_from")


def anchored() -> Iterator[str]:
    """Yield all comparisons of the anchored estimator with the paper's."""
    compared = comparisons()
    adjusted = adjusted_p_values(e for *_, e in compared)
    yield "\n### Anchored minus paper\n\n"
    for kind in (None, *dict.fromkeys(kind for kind, _, _ in compared)):
        some = [one for one in compared if kind in (None, one[0])]
        yield f"- {kind or 'all'}: {verdict(some)}\n"
    num_left = sum(p <= 0.05 for p in adjusted)
    yield f"\nAfter the correction of Benjamini and Hochberg over all {len(compared)}, {num_left} are left "
    yield f"at a false discovery rate of 0.05. The smallest corrected p-value is {min(adjusted):.3f}.\n"
    yield "\n| | case | difference | p | corrected p |\n|---|---|---|---|---|\n"
    for (kind, case, difference), p in zip(compared, adjusted, strict=True):
        p_values = f"{p_value(difference):.3f} | {p:.3f}"
        yield f"| {kind} | {case} | {formatted(difference, sign=True)} | {p_values} |\n"
    some = read("limits")
    for attack in some["attack"].unique(maintain_order=True):
        title = f"Ten of 24 clients Byzantine, {attack}: minus local training"
        yield _differences(
            some.filter(pl.col("attack") == attack), "method", "Local", "placement", title, upright=True
        )


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
