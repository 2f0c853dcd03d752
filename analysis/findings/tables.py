"""All numbers that the text of the findings quotes, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from rows import ATTACKS, HERE, LAMBDAS, against_local, axes_of, comparisons, estimate, gains, paired, read

from rdpfl_sim.sweeps.results import Estimate


def tables() -> str:
    """All that the text quotes, as Markdown."""
    parts = [
        "# Tables\n\nMade by `draw.py` from `results/`: means over seeds, ± half of the 95 % interval.\n"
    ]
    for name, rows, columns, title in (
        ("clean", "Aggregation", "method.lambda", "Table I on CIFAR-10: no attack"),
        ("robustness", "Defence", "attack", "Table II on CIFAR-10: honest clients"),
        ("ablation", "variant", "attack", "Table III on CIFAR-10: honest clients"),
        ("sensitivity", "attack", "method.lambda", "Table IV on CIFAR-10: honest clients"),
        ("ambiguities", "reading", "lambda", "Readings of the paper, on CIFAR-10 under min_max"),
        ("readings", "reading", "attack", "Readings of the paper, on digits at lambda = 1"),
        ("lambda_cifar10", "method", "attack", "Larger lambda on CIFAR-10"),
        ("rivals", "method", "attack", "Methods without lambda, on digits"),
        ("controls", "method", "attack", "Parts of the estimators, on digits at lambda = 1"),
    ):
        if (HERE / "results" / f"{name}.csv").exists():
            parts.append(_table(read(name), rows, columns, title))
    defences = read("defences")
    for weight in LAMBDAS:
        some = defences.filter(pl.col("method.lambda") == weight)
        parts.append(_table(some, "method", "attack", f"Defences at lambda = {weight}, on digits"))
    some = defences.filter(pl.col("method.lambda") == "1.0")
    parts.append(_table(some, "method", "attack", "Worst honest client at lambda = 1, on digits", "worst"))
    gained, lost = gains(), against_local("worst")
    parts += [_gain_table(gained, f"Gain over training alone at lambda = {at}", at) for at in LAMBDAS]
    parts.append(_gain_table(lost, "Gain of the worst honest client at lambda = 1", "1.0"))
    unequal = read("heterogeneity")
    for attack in ("none", "noise"):
        some = unequal.filter(pl.col("attack") == attack)
        parts.append(
            _table(some, "method", "partition.alpha", f"Unequal data (Dirichlet alpha), attack: {attack}")
        )
    loss = read("loss")
    for late in ("dropped", "used"):
        some = loss.filter(pl.col("late") == late)
        parts.append(_table(some, "loss", "method", f"Loss; late messages are {late}"))
    waiting = read("waiting")
    for method in waiting["method"].unique(maintain_order=True):
        some = waiting.filter(pl.col("method") == method)
        parts.append(_table(some, "world", "wait", f"{method}: accuracy by wait"))
        parts.append(
            _table(some, "world", "wait", f"{method}: simulated seconds to 0.85", "seconds_to_0.85", 1)
        )
    timing = read("timing")
    for content in ("honest", "noise"):
        for method in timing["method"].unique(maintain_order=True):
            some = timing.filter((pl.col("content") == content) & (pl.col("method") == method))
            parts.append(
                _table(some, "lie", "wait", f"{method}, {content} content: accuracy by lie about time")
            )
            if content == "honest":
                parts.append(_table(some, "lie", "wait", f"{method}: simulated seconds", "simulated_s", 1))
    topology = read("topology")
    for liars in topology["liars"].unique(maintain_order=True):
        some = topology.filter(pl.col("liars") == liars)
        parts.append(_table(some, "method", "topology", f"Graphs, liars: {liars}"))
    for column in ("accuracy_1_hop", "accuracy_2_hops", "accuracy_3_hops"):
        some = topology.filter(pl.col("liars") == "clustered")
        parts.append(
            _table(some, "method", "topology", f"Clustered liars, {column.replace('_', ' ')}", column)
        )
    parts.append(
        _table(read("breakdown"), "method", "topology", "Breakdown fraction of liars (noise)", "below_from")
    )
    parts += _all_differences()
    compared = comparisons()
    parts.append("\n## Anchored − paper\n\n")
    for kind in (None, *dict.fromkeys(kind for kind, _, _ in compared)):
        some = [one for one in compared if kind in (None, one[0])]
        parts.append(f"- {kind or 'all'}: {verdict(some)}\n")
    parts.append("\n| | case | difference |\n|---|---|---|\n")
    parts += [f"| {kind} | {case} | {told(e, sign=True)} |\n" for kind, case, e in compared]
    return "".join(parts)


def _all_differences() -> list[str]:
    """Paired differences: what the text says of one case beside another."""
    alone, silence = "Local", "R-DPFL, predicts in silence"
    readings, controls, rivals = read("readings"), read("controls"), read("rivals")
    parts = [
        _differences(readings, "reading", "default", "attack", "Readings less the default"),
        _differences(controls, "method", "R-DPFL", "attack", "Parts of the estimators less R-DPFL"),
        _differences(rivals, "method", alone, "attack", "Rivals less training alone"),
        _differences(rivals, "method", alone, "attack", "Rivals less training alone, worst client", "worst"),
    ]
    for late in ("dropped", "used"):
        some = read("loss").filter(pl.col("late") == late)
        title = f"Loss, late messages {late}: less"
        parts.append(_differences(some, "method", alone, "loss", f"{title} training alone"))
        parts.append(
            _differences(some, "method", silence, "loss", f"{title} R-DPFL that predicts in silence")
        )
    waiting = read("waiting")
    for method in waiting["method"].unique(maintain_order=True):
        some = waiting.filter(pl.col("method") == method)
        parts.append(
            _differences(some, "wait", "all", "world", f"{method}: less than waiting for all, accuracy")
        )
        title = f"{method}: less than waiting for all, seconds to 0.85"
        parts.append(_differences(some, "wait", "all", "world", title, "seconds_to_0.85", 1))
    timing = read("timing")
    for method in timing["method"].unique(maintain_order=True):
        for content in ("honest", "noise"):
            some = timing.filter((pl.col("method") == method) & (pl.col("content") == content))
            title = f"{method}, {content} content: less than without a lie about time"
            parts.append(_differences(some, "lie", "none", "wait", f"{title}, accuracy"))
            if content == "honest" and method == "R-DPFL":
                parts.append(_differences(some, "lie", "none", "wait", f"{title}, seconds", "simulated_s", 2))
    topology = read("topology")
    for liars in topology["liars"].unique(maintain_order=True):
        some = topology.filter(pl.col("liars") == liars)
        parts.append(
            _differences(some, "method", alone, "topology", f"Graphs, liars {liars}: less training alone")
        )
    hops = topology.filter(pl.col("liars") == "clustered")
    parts += [
        _differences(
            hops, "method", alone, "topology", f"Clustered liars, {column}: less training alone", column
        )
        for column in ("accuracy_1_hop", "accuracy_2_hops", "accuracy_3_hops")
    ]
    some, column = topology.filter(pl.col("method") == "R-DPFL"), "num_outside_threat_model"
    title = "Honest clients, of 18, with at least half of their neighbours liars"
    parts.append(_table(some, "liars", "topology", title, column, 1))
    some = read("rivals").filter((pl.col("method") == "Local") & (pl.col("attack") == "none"))
    title = "The same of parts 2 and 6, of 9, by seed"
    parts.append(_table(some, "method", "seed", title, column, 0))
    unequal = read("heterogeneity")
    for attack in ("none", "noise"):
        some = unequal.filter(pl.col("attack") == attack)
        title = f"Unequal data, attack {attack}: less R-DPFL, anchored"
        parts.append(_differences(some, "method", "R-DPFL, anchored", "partition.alpha", title))
    return parts


def _differences(
    frame: pl.DataFrame,
    rows: str,
    baseline: str,
    columns: str,
    title: str,
    column: str = "accuracy",
    digits: int = 3,
) -> str:
    """The cases of one axis less its baseline, by those of another; all other axes have one case."""
    heads = [str(head) for head in frame[columns].unique(maintain_order=True)]
    place = [axis for axis in axes_of(frame) if axis != rows].index(columns)
    text = f"\n## {title}\n\n| | {' | '.join(heads)} |\n|---|{'---|' * len(heads)}\n"
    for case in frame[rows].unique(maintain_order=True):
        if case != baseline:
            found = {key[place]: e for key, e in paired(frame, rows, case, baseline, column).items()}
            cells = [told(found.get(head), digits, sign=True) for head in heads]
            text += f"| {case} | {' | '.join(cells)} |\n"
    return text


def _table(
    frame: pl.DataFrame, rows: str, columns: str, title: str, column: str = "accuracy", digits: int = 3
) -> str:
    if column not in frame.columns:
        return ""
    heads = [str(head) for head in frame[columns].unique(maintain_order=True)]
    text = f"\n## {title}\n\n| | {' | '.join(heads)} |\n|---|{'---|' * len(heads)}\n"
    for row in frame[rows].unique(maintain_order=True):
        cells = []
        for head in heads:
            some = frame.filter((pl.col(rows) == row) & (pl.col(columns).cast(pl.String) == head))
            found = estimate(some[column].to_list())
            missing = some[column].null_count()
            never = missing > 0 and column in ("seconds_to_0.85", "below_from")
            note = f" ({missing} of {len(some)} never)" if never else ""
            cells.append(told(found, digits) + note)
        text += f"| {row} | {' | '.join(cells)} |\n"
    return text


def _gain_table(gained: dict[tuple[str, str, str], Estimate], title: str, weight: str) -> str:
    text = f"\n## {title}\n\n| | {' | '.join(ATTACKS)} |\n|---|{'---|' * len(ATTACKS)}\n"
    for method in dict.fromkeys(method for _, method, _ in gained):
        cells = [told(gained.get((attack, method, weight)), sign=True) for attack in ATTACKS]
        text += f"| {method} | {' | '.join(cells)} |\n"
    return text


def verdict(found: Sequence[tuple[str, str, Estimate]]) -> str:
    """How many comparisons there are, and on which side of zero their intervals lie."""
    better = sum(e.mean - (e.half_width or 0.0) > 0 for *_, e in found)
    worse = sum(e.mean + (e.half_width or 0.0) < 0 for *_, e in found)
    least = min(e.mean for *_, e in found)
    return f"{len(found)} comparisons: better in {better}, worse in {worse}; the least is {least:+.3f}"


def told(found: Estimate | None, digits: int = 3, sign: bool = False) -> str:
    """A mean and its interval, as a table has it."""
    if found is None:
        return "–"
    width = f" ± {found.half_width:.{digits}f}" if found.half_width is not None else ""
    return f"{found.mean:{'+' if sign else ''}.{digits}f}{width}"
