"""The six figures and the tables of the findings, from the CSV files in results/.

python analysis/findings/draw.py      writes figures/*.png and TABLES.md
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import style

from rdpfl_sim.sweeps.plan import Sweep
from rdpfl_sim.sweeps.results import Estimate

COLOURS = {
    "Local": style.MUTED,
    "Mean": style.ORANGE,
    "Median": style.SKY,
    "Trimmed mean": style.PINK,
    "Geometric median": style.GREEN,
    "Krum": "#999933",
    "D-PSGD": style.ORANGE,
    "R-DPFL": style.BLUE,
    "R-DPFL, predicts in silence": style.BLUE,
    "R-DPFL, skips silence": style.GREEN,
    "R-DPFL, anchored": style.VERMILION,
}
ATTACKS = ["none", "sign_flip", "noise", "scaling", "min_max", "min_sum", "adaptive"]
LAMBDAS = ["0.01", "0.1", "0.5", "1.0"]


def read(name: str) -> pl.DataFrame:
    """The runs of a sweep; labels are words."""
    return pl.read_csv(HERE / "results" / f"{name}.csv", infer_schema_length=None).with_columns(
        pl.col("^method.lambda$|^lambda$").cast(pl.String)
    )


def estimate(values: Sequence[float | None]) -> Estimate | None:
    """Mean and interval of what there is."""
    there = [value for value in values if value is not None]
    return Estimate.of(there) if there else None


def by(
    frame: pl.DataFrame, axis: str, cases: Iterable[str], column: str = "accuracy"
) -> list[Estimate | None]:
    """One estimate for each case of an axis."""
    return [estimate(frame.filter(pl.col(axis) == case)[column].to_list()) for case in cases]


def paired(
    frame: pl.DataFrame, axis: str, case: str, baseline: str, column: str = "accuracy"
) -> dict[tuple[str, ...], Estimate]:
    """Differences of a case to another, over seeds that both have, by the labels of all other axes."""
    others = [name for name in axes_of(frame) if name != axis]
    ours, theirs = (frame.filter(pl.col(axis) == label) for label in (case, baseline))
    both = ours.join(theirs, on=[*others, "seed"], suffix="_baseline").drop_nulls(
        [column, f"{column}_baseline"]
    )
    found: dict[tuple[str, ...], list[float]] = {}
    for row in both.iter_rows(named=True):
        key = tuple(str(row[name]) for name in others)
        found.setdefault(key, []).append(row[column] - row[f"{column}_baseline"])
    return {key: Estimate.of(values) for key, values in found.items()}


def axes_of(frame: pl.DataFrame) -> list[str]:
    """The columns before the seed."""
    return frame.columns[: frame.columns.index("seed")]


def told(found: Estimate | None, digits: int = 3, sign: bool = False) -> str:
    """A mean and its interval, as a table has it."""
    if found is None:
        return "–"
    width = f" ± {found.half_width:.{digits}f}" if found.half_width is not None else ""
    return f"{found.mean:{'+' if sign else ''}.{digits}f}{width}"


def line(
    axes: Axes, x: Sequence[float], found: Sequence[Estimate | None], label: str, **looks: object
) -> None:
    """Means over seeds with their intervals."""
    there = [(place, e) for place, e in zip(x, found, strict=True) if e is not None]
    if there:
        looks = {"color": COLOURS.get(label), "capsize": 2, "marker": "o", "elinewidth": 0.8, **looks}
        axes.errorbar(
            [place for place, _ in there],
            [e.mean for _, e in there],
            yerr=[e.half_width or 0.0 for _, e in there],
            label=label,
            **looks,  # type: ignore[arg-type]
        )


# 1. The paper's tables


def draw_tables() -> Figure:
    """Table II run by run, and what the paper's other readings change."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.8), width_ratios=[3, 2])
    frame = read("robustness")
    for place, defence in enumerate(("Mean", "Median", "Trimmed-Mean", "R-DPFL")):
        for at, attack in enumerate(ATTACKS[1:]):
            runs = frame.filter((pl.col("Defence") == defence) & (pl.col("attack") == attack))
            x = np.full(len(runs), at + 0.18 * (place - 1.5))
            label = defence if at == 0 else None
            left.plot(x, runs["accuracy"], "o", markersize=4, color=style.PALETTE[place], label=label)
    (table,) = Sweep.load(HERE.parents[1] / "scenarios" / "paper" / "robustness.toml").table
    paper = [table.published(["R-DPFL", attack, "Honest"]) for attack in ATTACKS[1:]]
    left.plot(range(6), paper, "k_", markersize=22, label="the paper, all four rows")
    left.set_xticks(range(6), ATTACKS[1:])
    left.set_ylim(-0.03, 0.95)
    left.set_ylabel("honest personal accuracy")
    left.set_title("Table II on CIFAR-10, a dot for every run")
    left.legend(ncols=3, loc="center", bbox_to_anchor=(0.6, 0.25), fontsize=8)
    readings = read("readings")
    labels = [label for label in readings["reading"].unique(maintain_order=True) if label != "default"]
    attacks = readings["attack"].unique(maintain_order=True)
    for place, attack in enumerate(attacks):
        found = [paired(readings, "reading", label, "default").get((attack,)) for label in labels]
        y = np.arange(len(labels)) + 0.15 * (place - 2)
        _dots(right, y, found, style.PALETTE[place], "no attack" if attack == "none" else attack)
    right.axvline(0.0, color=style.INK, linewidth=0.8)
    right.set_yticks(range(len(labels)), labels)
    right.invert_yaxis()
    right.set_xlabel("change of accuracy (digits, λ = 1)")
    right.set_title("The other readings of the paper")
    right.legend(fontsize=8)
    return figure


# 2. Defences


def gains() -> dict[tuple[str, str, str], Estimate]:
    """By attack, method and lambda: the honest clients' gain over training alone, paired by seed."""
    return _against_local("accuracy")


def _against_local(column: str) -> dict[tuple[str, str, str], Estimate]:
    local = (
        read("rivals")
        .filter(pl.col("method") == "Local")
        .select("attack", "seed", pl.col(column).alias("local"))
    )
    both = read("defences").join(local, on=["attack", "seed"])
    found: dict[tuple[str, str, str], list[float]] = {}
    for row in both.iter_rows(named=True):
        key = row["attack"], row["method"], row["method.lambda"]
        found.setdefault(key, []).append(row[column] - row["local"])
    return {key: Estimate.of(values) for key, values in found.items()}


def draw_defences() -> Figure:
    """Gain over local training by lambda, one panel an attack; BALANCE averages models, without lambda."""
    found = gains()
    averaging = {key[0]: e for key, e in paired(read("rivals"), "method", "BALANCE", "Local").items()}
    methods = [*dict.fromkeys(method for _, method, _ in found)]
    figure, grid = plt.subplots(2, 4, figsize=(11, 5.2), sharex=True, sharey=True)
    for panel, attack in zip(grid.flat, ATTACKS, strict=False):
        panel.axhline(0.0, color=style.INK, linewidth=0.8)
        for method in methods:
            values = [found.get((attack, method, weight)) for weight in LAMBDAS]
            line(panel, range(4), values, method, linewidth=2.2 if "R-DPFL" in method else 1.2)
        best = averaging.get(attack)
        if best is not None:
            panel.axhline(best.mean, color=style.INK, linestyle="--", linewidth=1, label="BALANCE")
        panel.set_title("no attack" if attack == "none" else attack)
        panel.set_xticks(range(4), LAMBDAS)
        panel.set_ylim(-0.2, 0.1)
    for panel in grid[1]:
        panel.set_xlabel("λ, the weight of the neighbours")
    grid[0, 3].tick_params(labelbottom=True)
    for panel in grid[:, 0]:
        panel.set_ylabel("accuracy gained over\ntraining alone")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    grid[1, 3].axis("off")
    grid[1, 3].legend(handles, labels, loc="center", fontsize=9)
    return figure


# 3. Delay and loss


def draw_delay() -> Figure:
    """Accuracy by loss, and time to accuracy by latency."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 3.8))
    frame = read("loss")
    x = [0, 10, 20, 40, 60]
    for method in frame["method"].unique(maintain_order=True):
        for late, looks in (("dropped", {"linestyle": "-"}), ("used", {"linestyle": ":", "marker": "s"})):
            some = frame.filter((pl.col("method") == method) & (pl.col("late") == late))
            values = by(some, "loss", [f"{share} %" for share in x])
            if late == "dropped" or method != "Local":
                line(left, x, values, method if late == "dropped" else "", color=COLOURS[method], **looks)
    left.set_xlabel("messages lost, %  (dotted: late ones are used)")
    left.set_ylabel("honest personal accuracy")
    left.set_title("Loss")
    left.set_ylim(0.8, 0.985)
    left.legend(fontsize=7.5, ncols=2, loc="upper center")
    frame = read("waiting")
    waits = frame["wait"].unique(maintain_order=True)
    latencies = ["0.01", "0.1", "1", "3", "10"]
    names, x = [f"latency {latency}" for latency in latencies], [float(latency) for latency in latencies]
    for place, wait in enumerate(waits):
        some = frame.filter(pl.col("wait") == wait)
        anchored, paper = (some.filter(pl.col("method") == m) for m in ("R-DPFL, anchored", "R-DPFL"))
        looks = {"color": style.PALETTE[place]}
        line(middle, x, by(anchored, "world", names), wait, **looks)
        line(middle, x, by(paper, "world", names), "", linestyle=":", marker="s", **looks)
        line(right, x, by(paper, "world", names, "seconds_to_0.85"), wait, **looks)
    for panel in (middle, right):
        panel.set_xscale("log")
        panel.set_xlabel("mean latency / median compute time")
    right.set_yscale("log")
    middle.set_ylim(0.82, 0.92)
    middle.set_title("R-DPFL after 40 rounds (solid: anchored)")
    right.set_title("R-DPFL: simulated seconds to 0.85")
    right.legend(title="clients wait for", fontsize=8)
    return figure


# 4. Timing attacks


def draw_timing() -> Figure:
    """What a lie about time adds, in simulated time and in accuracy."""
    frame = read("timing")
    lies = [lie for lie in frame["lie"].unique(maintain_order=True) if lie != "none"]
    waits = frame["wait"].unique(maintain_order=True)
    figure, grid = plt.subplots(1, 3, figsize=(11, 3.8), sharey=True)
    time_panel, honest_panel, noise_panel = grid
    for place, wait in enumerate(waits):
        some = frame.filter((pl.col("wait") == wait) & (pl.col("method") == "R-DPFL"))
        y = np.arange(len(lies)) + 0.24 * (place - 1)
        honest = some.filter(pl.col("content") == "honest")
        base = estimate(honest.filter(pl.col("lie") == "none")["simulated_s"].to_list())
        assert base is not None
        slow = [
            paired(honest, "lie", lie, "none", "simulated_s").get(("honest", wait, "R-DPFL")) for lie in lies
        ]
        colour = style.PALETTE[place]
        _dots(time_panel, y, [_scaled(e, 100 / base.mean) for e in slow], colour, wait)
        for panel, content in ((honest_panel, "honest"), (noise_panel, "noise")):
            part = some.filter(pl.col("content") == content)
            found = [paired(part, "lie", lie, "none").get((content, wait, "R-DPFL")) for lie in lies]
            _dots(panel, y, found, colour, wait)
    for panel in grid:
        panel.axvline(0.0, color=style.INK, linewidth=0.8)
    time_panel.set_yticks(range(len(lies)), lies)
    time_panel.invert_yaxis()
    time_panel.set_xlabel("% more simulated time")
    time_panel.set_title("Cost in time")
    honest_panel.set_xlabel("change of accuracy")
    honest_panel.set_title("True content, false time")
    noise_panel.set_xlabel("change of accuracy")
    noise_panel.set_title("Noise, and false time on top")
    noise_panel.legend(fontsize=8)
    return figure


def _scaled(found: Estimate | None, factor: float) -> Estimate | None:
    if found is None:
        return None
    width = None if found.half_width is None else found.half_width * factor
    return Estimate(found.mean * factor, None, width, found.num)


def _dots(
    axes: Axes, y: Sequence[float] | np.ndarray, found: Sequence[Estimate | None], colour: str, label: str
) -> None:
    there = [(at, e) for at, e in zip(y, found, strict=True) if e is not None]
    axes.errorbar(
        [e.mean for _, e in there],
        [at for at, _ in there],
        xerr=[e.half_width or 0.0 for _, e in there],
        fmt="o",
        markersize=4,
        color=colour,
        elinewidth=0.8,
        capsize=2,
        label=label,
    )


# 5. Topology


def draw_topology() -> Figure:
    """Accuracy by placement of the liars, and the fraction of them that breaks each method."""
    frame = read("topology")
    graphs = frame["topology"].unique(maintain_order=True)
    figure, grid = plt.subplots(1, 6, figsize=(13, 3.6), width_ratios=[1, 1, 1, 1, 1, 1.3])
    placements = frame["liars"].unique(maintain_order=True)
    for panel, graph in zip(grid[:5], graphs, strict=True):
        for method in frame["method"].unique(maintain_order=True):
            some = frame.filter((pl.col("topology") == graph) & (pl.col("method") == method))
            values = by(some, "liars", placements)
            line(panel, range(len(placements)), values, method)
        panel.set_title(graph)
        panel.set_xticks(range(len(placements)), placements, rotation=35)
        panel.set_ylim(0.1, 1.0)
        if panel is not grid[0]:
            panel.tick_params(labelleft=False)
    grid[0].set_ylabel("honest personal accuracy")
    grid[4].legend(fontsize=7, loc="lower left")
    broken = read("breakdown")
    graphs = broken["topology"].unique(maintain_order=True)
    for place, (method, label) in enumerate(
        (("median", "Median"), ("paper", "R-DPFL"), ("anchored", "R-DPFL, anchored"))
    ):
        some = broken.filter(pl.col("method") == method)
        for at, graph in enumerate(graphs):
            values = some.filter(pl.col("topology") == graph)["below_from"].to_list()
            seeds = [0.55 if value is None else value for value in values]
            grid[5].scatter(
                np.full(len(seeds), at + 0.22 * (place - 1)), seeds, s=18, color=COLOURS[label], alpha=0.8
            )
    grid[5].axhline(0.5, color=style.INK, linewidth=0.8)
    grid[5].set_xticks(range(len(graphs)), [graph.replace("_", " ") for graph in graphs], rotation=35)
    grid[5].set_title("breakdown, by seed")
    grid[5].text(0.02, 0.565, "holds up to 1/2", fontsize=8, color=style.INK)
    grid[5].set_ylim(0.0, 0.6)
    grid[5].set_ylabel("fraction of liars")
    return figure


# 6. The anchored estimator


def comparisons() -> list[tuple[str, str, Estimate]]:
    """What varies, the case, and the paired difference of anchored to paper; cases that are the same once."""
    found: list[tuple[str, str, Estimate]] = []
    sources: list[tuple[str, str, str, Callable[[tuple[str, ...]], str | None]]] = [
        ("defences", "R-DPFL", "attack", lambda key: key[0] if key[1] == "1.0" else None),
        (
            "defences",
            "R-DPFL",
            "smaller lambda",
            lambda key: f"{key[0]}, λ = {key[1]}" if key[1] != "1.0" else None,
        ),
        # alpha = 1 is the setting of all the others
        (
            "heterogeneity",
            "R-DPFL",
            "alpha",
            lambda key: f"α = {key[1]}, {key[0]}" if key[1] != "1.0" else None,
        ),
        ("loss", "R-DPFL, predicts in silence", "loss", lambda key: f"{key[0]}, late {key[1]}"),
        ("waiting", "R-DPFL", "world", _world),
        (
            "topology",
            "R-DPFL",
            "noise",
            lambda key: f"{key[0]}, {key[1]}" if key != ("complete", "clustered") else None,
        ),
        ("timing", "R-DPFL", "timing", lambda key: f"{key[0]}, {key[1]} content, {key[2]}"),
    ]
    for name, baseline, kind, label in sources:
        for key, difference in paired(read(name), "method", "R-DPFL, anchored", baseline).items():
            case = label(key)
            if case is not None:
                found.append((kind, case, difference))
    return found


def _world(key: tuple[str, ...]) -> str | None:
    """With such quick links nobody reaches the deadline: waiting for all is the same."""
    return None if key == ("latency 0.01", "deadline 1 s") else f"{key[0]}, wait {key[1]}"


def verdict(found: Sequence[tuple[str, str, Estimate]]) -> str:
    """How many comparisons there are, and on which side of zero their intervals lie."""
    better = sum(e.mean - (e.half_width or 0.0) > 0 for *_, e in found)
    worse = sum(e.mean + (e.half_width or 0.0) < 0 for *_, e in found)
    least = min(e.mean for *_, e in found)
    return f"{len(found)} comparisons: better in {better}, worse in {worse}; the least is {least:+.3f}"


def draw_anchored() -> Figure:
    """Paired differences of the anchored estimator to the paper's."""
    titles = {
        "attack": "Attacks",
        "alpha": "Unequal data",
        "loss": "Loss",
        "world": "Latency and waiting",
        "noise": "Graphs, noise",
    }
    found = [one for one in comparisons() if one[0] in titles]
    kinds = [*dict.fromkeys(kind for kind, _, _ in found)]
    figure, grid = plt.subplots(1, len(kinds), figsize=(13, 5.6))
    for panel, kind in zip(grid, kinds, strict=True):
        cases = [(case, e) for what, case, e in found if what == kind]
        for place, (_, e) in enumerate(cases):
            low, high = e.mean - (e.half_width or 0.0), e.mean + (e.half_width or 0.0)
            colour = style.GREEN if low > 0 else style.VERMILION if high < 0 else style.MUTED
            _dots(panel, [float(place)], [e], colour, "")
        panel.axvline(0.0, color=style.INK, linewidth=0.8)
        panel.set_yticks(range(len(cases)), [case for case, _ in cases], fontsize=7)
        panel.invert_yaxis()
        panel.set_title(titles[kind])
        panel.set_xlabel("anchored − paper")
    return figure


# Tables


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
    gained, lost = gains(), _against_local("worst")
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


FIGURES = {
    "1_tables": draw_tables,
    "2_defences": draw_defences,
    "3_delay_and_loss": draw_delay,
    "4_timing": draw_timing,
    "5_topology": draw_topology,
    "6_anchored": draw_anchored,
}


if __name__ == "__main__":
    mpl.use("agg")
    style.use()
    (HERE / "figures").mkdir(exist_ok=True)
    for name in sys.argv[1:] or FIGURES:
        figure = FIGURES[name]()
        figure.savefig(HERE / "figures" / f"{name}.png", dpi=110, pil_kwargs={"optimize": True})
        print(f"figures/{name}.png")
    if not sys.argv[1:]:
        (HERE / "TABLES.md").write_text(tables())
        print("TABLES.md")
