"""Draw the six figures of the findings, and write TABLES.md.

python analysis/findings/draw.py      writes figures/*.png and TABLES.md
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

sys.path.insert(0, str(Path(__file__).parents[1]))

import style
from rows import ATTACKS, HERE, LAMBDAS, by, comparisons, estimate, local_on_digits, paired, read, with_gain
from tables import tables

from rdpfl_sim.intervals import MeanInterval
from rdpfl_sim.sweeps.spec import SweepSpec

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


def line(
    axes: Axes, x: Sequence[float], found: Sequence[MeanInterval | None], label: str, **looks: object
) -> None:
    """Draw means over seeds with their intervals."""
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
    """Draw the runs of Table II, and the effect of other readings of the paper."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.8), width_ratios=[3, 2])
    frame = read("robustness")
    for place, defence in enumerate(("Mean", "Median", "Trimmed-Mean", "R-DPFL")):
        for at, attack in enumerate(ATTACKS[1:]):
            runs = frame.filter((pl.col("Defence") == defence) & (pl.col("attack") == attack))
            x = np.full(len(runs), at + 0.18 * (place - 1.5))
            label = defence if at == 0 else None
            left.plot(x, runs["accuracy"], "o", markersize=4, color=style.PALETTE[place], label=label)
    (table,) = SweepSpec.load(HERE.parents[1] / "scenarios" / "paper" / "robustness.toml").table
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


def draw_defences() -> Figure:
    """Draw the gain over local training by lambda, one panel per attack; BALANCE has no lambda."""
    frame = with_gain(read("defences"), local_on_digits())
    averaging = {key[0]: e for key, e in paired(read("rivals"), "method", "BALANCE", "Local").items()}
    methods = frame["method"].unique(maintain_order=True)
    figure, grid = plt.subplots(2, 4, figsize=(11, 5.2), sharex=True, sharey=True)
    for panel, attack in zip(grid.flat, ATTACKS, strict=False):
        panel.axhline(0.0, color=style.INK, linewidth=0.8)
        for method in methods:
            some = frame.filter((pl.col("attack") == attack) & (pl.col("method") == method))
            values = by(some, "method.lambda", LAMBDAS, "gain")
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
    """Draw accuracy by loss, and time to accuracy by latency."""
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
    """Draw the effect of timing attacks on simulated time and on accuracy."""
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


def _scaled(found: MeanInterval | None, factor: float) -> MeanInterval | None:
    if found is None:
        return None
    width = None if found.half_width is None else found.half_width * factor
    return MeanInterval(found.mean * factor, None, width, found.num)


def _dots(
    axes: Axes, y: Sequence[float] | np.ndarray, found: Sequence[MeanInterval | None], colour: str, label: str
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
    """Draw accuracy by placement of the Byzantine clients, and the breakdown fraction of each method."""
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


def draw_anchored() -> Figure:
    """Draw the paired differences of the anchored estimator to the paper's."""
    titles = {
        "attack": "Attacks",
        "strength": "Other attacks",
        "alpha": "Unequal data",
        "loss": "Loss",
        "world": "Latency and waiting",
        "noise": "Graphs, noise",
    }
    found = [one for one in comparisons() if one[0] in titles]
    kinds = [*dict.fromkeys(kind for kind, _, _ in found)]
    figure, grid = plt.subplots(1, len(kinds), figsize=(15, 5.6))
    for panel, kind in zip(grid, kinds, strict=True):
        cases = [(case, e) for what, case, e in found if what == kind]
        for place, (_, e) in enumerate(cases):
            colour = style.GREEN if e.low > 0 else style.VERMILION if e.high < 0 else style.MUTED
            _dots(panel, [float(place)], [e], colour, "")
        panel.axvline(0.0, color=style.INK, linewidth=0.8)
        panel.set_yticks(range(len(cases)), [case for case, _ in cases], fontsize=7)
        panel.invert_yaxis()
        panel.set_title(titles[kind])
        panel.set_xlabel("anchored − paper")
    return figure


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
