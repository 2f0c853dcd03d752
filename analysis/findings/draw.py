"""Draw the figures of the findings, and write TABLES.md and the pages with their numbers.

python analysis/findings/draw.py            writes figures/*.png, TABLES.md, README.md and the other pages
python analysis/findings/draw.py 5_topology writes only this figure
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
from matplotlib.lines import Line2D

sys.path.insert(0, str(Path(__file__).parents[1]))

import style
from colours import colour_of
from overview import CONDITIONS, METHODS, Cell, overview
from rows import ATTACKS, HERE, LAMBDAS, by, comparisons, gains, paired, read
from tables import tables
from templating import pages

from rdpfl_sim.intervals import MeanInterval
from rdpfl_sim.sweeps.spec import SweepSpec

WORDS = {"none": "no attack", "R-DPFL, anchored": "anchored", "Local": "local training"}
GAIN = "gain over local training (points)"


def words(label: str) -> str:
    """Return a label as words: no underscores, and no "none"."""
    return WORDS.get(label, label.replace("_", " ").replace("R-DPFL, anchored", "anchored"))


def estimates(
    axes: Axes,
    x: Sequence[float],
    found: Sequence[MeanInterval | None],
    method: str,
    limits: tuple[float, float] = (-np.inf, np.inf),
    **looks: object,
) -> None:
    """Draw means with their intervals, in points. A mean outside the limits is an arrow with its value."""
    low, high = limits
    options = {
        "fmt": "o",
        "color": colour_of(method),
        "capsize": 2,
        "elinewidth": 0.9,
        "markersize": 5,
        **looks,
    }
    there = [(place, e) for place, e in zip(x, found, strict=True) if e is not None]
    inside = [(place, e) for place, e in there if low <= 100 * e.mean <= high]
    axes.errorbar(
        [place for place, _ in inside],
        [100 * e.mean for _, e in inside],
        yerr=[100 * (e.half_width or 0.0) for _, e in inside],
        label=words(method),
        **options,  # type: ignore[arg-type]
    )
    for place, e in there:
        if not low <= 100 * e.mean <= high:
            mark_outside(axes, place, 100 * e.mean, limits, colour_of(method))


def mark_outside(axes: Axes, x: float, value: float, limits: tuple[float, float], colour: str) -> None:
    """Draw an arrow at the edge of the axes, and the value that lies beyond it."""
    low, high = limits
    edge, marker = (low, "v") if value < low else (high, "^")
    room = 0.025 * (high - low) * (1 if value < low else -1)
    axes.plot([x], [edge + room], marker, color=colour, markersize=6, clip_on=False, zorder=5)
    axes.annotate(
        f"{value:.0f}".replace("-", "−"),
        (x, edge + 2.2 * room),
        ha="center",
        va="bottom" if value < low else "top",
        fontsize=8,
        color=colour,
    )


def zero_line(axes: Axes) -> None:
    """Draw the level of local training."""
    axes.axhline(0.0, color=style.INK, linewidth=0.8, zorder=1)


def legend_below(figure: Figure, axes: Axes, columns: int) -> None:
    """Draw one legend for all panels, without repeated entries."""
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    figure.legend(unique.values(), unique.keys(), loc="outside lower center", ncols=columns, fontsize=9)


# The table at the top


def draw_overview() -> Figure:
    """Draw the gain over local training of every method in five conditions, as a coloured table."""
    found = overview()
    values = np.array([[100 * found[method, where].gain.mean for where in CONDITIONS] for method in METHODS])
    figure, axes = plt.subplots(figsize=(9, 5.4))
    axes.imshow(values, cmap="PuOr", vmin=-12, vmax=12, aspect="auto")
    axes.set_xticks(range(len(CONDITIONS)), list(CONDITIONS.values()), fontsize=9.5)
    axes.set_yticks(range(len(METHODS)), METHODS, fontsize=10)
    axes.xaxis.tick_top()
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    for (row, column), value in np.ndenumerate(values):
        cell = found[METHODS[row], [*CONDITIONS][column]]
        ink = "white" if abs(value) > 6 else style.INK
        axes.text(column, row, _cell_text(cell), ha="center", va="center", color=ink, fontsize=9.5)
    axes.set_xlabel(
        "Points gained over local training in the same condition. Purple: better; orange: worse.\n"
        "Dots: the 95 % interval includes zero. Colours end at 12 points.",
        fontsize=9,
        loc="left",
    )
    return figure


def _cell_text(cell: Cell) -> str:
    """Return the gain, a dot if its interval includes zero, and the worst attack if there is one."""
    text = f"{100 * cell.gain.mean:+.1f}".replace("-", "−") + ("" if cell.gain.excludes_zero else " ·")
    return f"{text}  ({words(cell.attack)})" if cell.attack else text


# 1. The paper's tables


def draw_tables() -> Figure:
    """Draw the runs of Table II beside the paper's numbers."""
    figure, axes = plt.subplots(figsize=(9.5, 4))
    frame = read("robustness")
    defences = ("Mean", "Median", "Trimmed-Mean", "R-DPFL", "DisPFL")
    for place, defence in enumerate(defences):
        for at, attack in enumerate(ATTACKS[1:]):
            runs = frame.filter((pl.col("Defence") == defence) & (pl.col("attack") == attack))
            x = np.full(len(runs), at + 0.15 * (place - 2))
            label = defence.replace("-M", " m") if at == 0 else None
            axes.plot(x, runs["accuracy"], "o", markersize=4.5, color=colour_of(defence), label=label)
    (table,) = SweepSpec.load(HERE.parents[1] / "scenarios" / "paper" / "robustness.toml").table
    for defence, label, left, right in (
        ("R-DPFL", "the paper: all but DisPFL", -0.36, 0.21),
        ("DisPFL", "the paper: DisPFL", 0.24, 0.36),
    ):
        paper = [table.published([defence, attack, "Honest"]) for attack in ATTACKS[1:]]
        colour = style.INK if defence == "R-DPFL" else colour_of("DisPFL")
        at = np.arange(len(paper))
        axes.hlines(paper, at + left, at + right, color=colour, linewidth=2, label=label)
    for line in np.arange(5) + 0.5:
        axes.axvline(line, color=style.FAINT, linewidth=0.8)
    axes.grid(axis="x", visible=False)
    axes.set_xticks(range(6), [words(attack) for attack in ATTACKS[1:]])
    axes.set_ylim(-0.03, 0.9)
    axes.set_ylabel("honest personal accuracy")
    axes.set_title("Table II on CIFAR-10: one dot per run")
    legend_below(figure, axes, 4)
    return figure


def draw_readings() -> Figure:
    """Draw the effect of the other readings of the paper on R-DPFL, one panel per attack."""
    frame = read("readings")
    labels = [label for label in frame["reading"].unique(maintain_order=True) if label != "default"]
    attacks = frame["attack"].unique(maintain_order=True)
    figure, grid = plt.subplots(1, len(attacks), figsize=(10, 2.6), sharey=True, sharex=True)
    for panel, attack in zip(grid, attacks, strict=True):
        panel.axvline(0.0, color=style.INK, linewidth=0.8)
        for place, label in enumerate(labels):
            e = paired(frame, "reading", label, "default")[attack,]
            width = 100 * (e.half_width or 0.0)
            panel.errorbar(100 * e.mean, place, xerr=width, fmt="o", color=colour_of("R-DPFL"), capsize=2)
        panel.set_yticks(range(len(labels)), labels)
        panel.set_title(words(attack))
    grid[0].invert_yaxis()
    figure.supxlabel("change of accuracy of R-DPFL against the default reading (points)", fontsize=9)
    return figure


# 2. Defences


def draw_defences() -> Figure:
    """Draw the gain over local training by lambda, one panel per attack; BALANCE has no lambda."""
    found, balance = gains("defences"), gains("rivals")
    figure, grid = plt.subplots(2, 3, figsize=(9.5, 5.8), sharex=True, sharey="row")
    shown = (("none", "sign_flip", "min_max"), ("adaptive", "scaling", "noise"))
    for panels, attacks, limits in zip(grid, shown, ((-2.0, 11.0), (-42.0, 13.0)), strict=True):
        for panel, attack in zip(panels, attacks, strict=True):
            zero_line(panel)
            for place, method in enumerate(("Mean", "Median", "R-DPFL", "R-DPFL, anchored")):
                x = [float(weight) * 1.1 ** (place - 1.5) for weight in LAMBDAS]
                values = [found[attack, method, weight] for weight in LAMBDAS]
                estimates(panel, x, values, method, limits, fmt="o-", linewidth=1.2)
            estimates(panel, [4.0], [balance[attack, "BALANCE"]], "BALANCE", limits, fmt="D")
            panel.set_title(words(attack))
            panel.set_xscale("log")
            panel.set_xticks([*map(float, LAMBDAS), 4.0], ["0.01", "0.1", "0.5", "1", "no λ"])
            panel.xaxis.set_minor_locator(mpl.ticker.NullLocator())
            panel.set_ylim(*limits)
    grid[1, 1].set_xlabel("λ, the weight of the neighbours")
    for panel in grid[:, 0]:
        panel.set_ylabel(GAIN)
    legend_below(figure, grid[0, 0], 5)
    return figure


def draw_speed() -> Figure:
    """Draw the gain over local training by the number of rounds, without an attack."""
    found = gains("speed_control")
    rounds = [20, 40, 80, 160]
    figure, axes = plt.subplots(figsize=(7, 3.6))
    zero_line(axes)
    for place, method in enumerate(
        ("BALANCE", "D-PSGD", "R-DPFL", "R-DPFL, anchored", "Local, twice the step")
    ):
        x = [count * 1.03 ** (place - 2) for count in rounds]
        dashed = "--" if method == "Local, twice the step" else "-"
        estimates(axes, x, [found[method, str(count)] for count in rounds], method, fmt=f"o{dashed}")
    axes.set_xscale("log")
    axes.set_xticks(rounds, [str(count) for count in rounds])
    axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    axes.set_xlabel("rounds")
    axes.set_ylabel(GAIN)
    legend_below(figure, axes, 3)
    return figure


# 3. Delay and loss


def draw_delay() -> Figure:
    """Draw the gain by loss, with late messages used and dropped, and the time to an accuracy by latency."""
    figure, (used, dropped, time) = plt.subplots(1, 3, figsize=(11, 4), width_ratios=[1, 1, 1.1])
    found, shares = gains("loss"), [0, 10, 20, 40, 60]
    methods = {
        "R-DPFL, predicts in silence": "o-",
        "R-DPFL, skips silence": "s--",
        "R-DPFL, anchored": "o-",
        "Median": "o-",
        "D-PSGD": "o-",
    }
    for panel, late in ((used, "used"), (dropped, "dropped")):
        zero_line(panel)
        for place, (method, fmt) in enumerate(methods.items()):
            values = [found[f"{share} %", late, method] for share in shares]
            estimates(
                panel, [share + 0.9 * (place - 2) for share in shares], values, method, fmt=fmt, linewidth=1.2
            )
        panel.set_xlabel("messages lost (%)")
        panel.set_title(f"Late messages {late}")
        panel.set_ylim(-4, 11)
        panel.set_yticks([-4, -2, 0, 2, 4, 6, 8, 10])
    used.set_ylabel(GAIN)
    frame = read("waiting").filter(pl.col("method") == "R-DPFL")
    latencies = ["0.01", "0.1", "1", "3", "10"]
    styles = {"all": "o-", "quorum 1/2": "s--", "deadline 1 s": "^-.", "none": "D:"}
    for wait, fmt in styles.items():
        some = frame.filter(pl.col("wait") == wait)
        values = by(some, "world", [f"latency {latency}" for latency in latencies], "seconds_to_0.85")
        there = [(float(x), e.mean) for x, e in zip(latencies, values, strict=True) if e is not None]
        time.plot(*zip(*there, strict=True), fmt, color=colour_of("R-DPFL"), markersize=5, linewidth=1.2)
        label = {"all": "waits\nfor all", "none": "does\nnot wait", "quorum 1/2": "waits\nfor half"}
        text = label.get(wait, "waits\nfor 1 s")
        time.annotate(text, there[-1], xytext=(7, 0), textcoords="offset points", va="center", fontsize=8.5)
    time.set_xscale("log")
    time.set_yscale("log")
    time.set_xlim(0.007, 80)
    time.set_xticks([0.01, 0.1, 1, 10], ["0.01", "0.1", "1", "10"])
    time.set_yticks([20, 50, 100, 200, 400], ["20", "50", "100", "200", "400"])
    time.yaxis.set_minor_locator(mpl.ticker.NullLocator())
    time.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    time.set_xlabel("mean latency / median training time")
    time.set_title("R-DPFL: simulated seconds to 0.85")
    legend_below(figure, used, 5)
    return figure


# 4. Timing attacks


def draw_timing() -> Figure:
    """Draw the effect of timing attacks on simulated time by waiting rule, and on accuracy by method."""
    frame = read("timing")
    attacks = [attack for attack in frame["timing"].unique(maintain_order=True) if attack != "none"]
    figure, (time, accuracy) = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    seconds = {
        key: e for key, e in _means(frame, "simulated_s").items() if key[1] == "honest" and key[3] == "R-DPFL"
    }
    markers = {"deadline 3 s": "o", "quorum 1/2": "s", "all, 10 s at most": "^"}
    names = {
        "deadline 3 s": "waits for 3 s",
        "quorum 1/2": "waits for half",
        "all, 10 s at most": "waits for all",
    }
    y = np.arange(len(attacks))
    for place, (wait, marker) in enumerate(markers.items()):
        base = seconds["none", "honest", wait, "R-DPFL"]
        ratio = [seconds[attack, "honest", wait, "R-DPFL"] / base for attack in attacks]
        time.plot(
            ratio, y + 0.2 * (place - 1), marker, color=colour_of("R-DPFL"), label=names[wait], markersize=6
        )
    time.axvline(1.0, color=style.INK, linewidth=0.8)
    time.set_xscale("log")
    time.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
    time.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    time.set_yticks(y, attacks)
    time.invert_yaxis()
    time.set_xlabel("length of the run, as a multiple of that without the attack")
    time.set_title("R-DPFL: simulated time")
    time.legend(fontsize=8.5, loc="lower right")
    for place, method in enumerate(("R-DPFL", "R-DPFL, anchored", "D-PSGD")):
        changes = [paired(frame, "timing", a, "none")["honest", "deadline 3 s", method] for a in attacks]
        accuracy.errorbar(
            [100 * e.mean for e in changes],
            y + 0.2 * (place - 1),
            xerr=[100 * (e.half_width or 0.0) for e in changes],
            fmt="o",
            color=colour_of(method),
            capsize=2,
            elinewidth=0.9,
            label=words(method),
        )
    accuracy.axvline(0.0, color=style.INK, linewidth=0.8)
    accuracy.set_xlabel("change of accuracy (points)")
    accuracy.set_title("True content, clients wait for 3 s: accuracy")
    accuracy.legend(fontsize=8.5, loc="center left")
    return figure


def _means(frame: pl.DataFrame, column: str) -> dict[tuple[str, ...], float]:
    """Return the mean of a column over seeds, by the labels of all axes."""
    axes = frame.columns[: frame.columns.index("seed")]
    means = frame.group_by(axes).agg(pl.col(column).mean())
    return {tuple(row[:-1]): row[-1] for row in means.iter_rows()}


# 5. Topology


def draw_topology() -> Figure:
    """Draw the gain by graph and placement of the Byzantine clients."""
    frame, found = read("topology"), gains("topology")
    graphs = frame["topology"].unique(maintain_order=True)
    everywhere = frame["placement"].unique(maintain_order=True)
    limits = (-36.0, 12.0)
    figure, grid = plt.subplots(1, 5, figsize=(11, 4), sharey=True, width_ratios=[3, 3, 4, 4, 3])
    for panel, graph in zip(grid, graphs, strict=True):
        zero_line(panel)
        # where all clients have the same degree, there are no hubs
        has_hubs = graph in ("small world", "scale-free")
        placements = [where for where in everywhere if where != "hubs" or has_hubs]
        for place, method in enumerate(("Median", "D-PSGD", "R-DPFL", "R-DPFL, anchored")):
            x = np.arange(len(placements)) + 0.2 * (place - 1.5)
            estimates(panel, x, [found[graph, where, method] for where in placements], method, limits)
        panel.set_title(graph)
        panel.set_xticks(range(len(placements)), [words(where) for where in placements], rotation=30)
        panel.grid(axis="x", visible=False)
        panel.set_ylim(*limits)
    grid[0].set_ylabel(GAIN)
    grid[2].set_xlabel("placement of the Byzantine clients")
    legend_below(figure, grid[0], 4)
    return figure


def draw_breakdown() -> Figure:
    """Draw the breakdown fraction of each method and seed under noise."""
    broken = read("breakdown")
    graphs = broken["topology"].unique(maintain_order=True)
    figure, axes = plt.subplots(figsize=(7, 3.4))
    for place, (method, label) in enumerate(
        (("median", "Median"), ("paper", "R-DPFL"), ("anchored", "R-DPFL, anchored"))
    ):
        for at, graph in enumerate(graphs):
            some = broken.filter((pl.col("method") == method) & (pl.col("topology") == graph))
            values = [0.55 if value is None else value for value in some["below_from"].to_list()]
            x = at + 0.22 * (place - 1) + np.linspace(-0.06, 0.06, len(values))
            axes.plot(x, values, "o", color=colour_of(label), label=words(label), alpha=0.8)
    axes.axhspan(0.52, 0.58, color=style.FAINT, zorder=0)
    axes.annotate("no breakdown up to one half", (-0.35, 0.59), fontsize=8.5)
    axes.set_xticks(range(len(graphs)), [words(graph) for graph in graphs])
    axes.grid(axis="x", visible=False)
    axes.set_ylim(0.0, 0.63)
    axes.set_yticks([0, 0.1, 0.2, 0.3, 0.4, 0.5])
    axes.set_ylabel("breakdown fraction, one dot per seed")
    legend_below(figure, axes, 3)
    return figure


def draw_limits() -> Figure:
    """Draw the gain with ten of 24 clients Byzantine, by attack, graph and placement."""
    frame, found = read("limits"), gains("limits")
    places = frame["placement"].unique(maintain_order=True)
    limits = (-46.0, 8.0)
    figure, grid = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    for panel, attack in zip(grid, ("noise", "ipm 10"), strict=True):
        zero_line(panel)
        for place, (method, looks) in enumerate(
            {
                "R-DPFL": {},
                "R-DPFL, anchored": {},
                "R-DPFL, anchored, λ = 0.8": {"markerfacecolor": "white"},
            }.items()
        ):
            x = np.arange(len(places)) + 0.22 * (place - 1)
            estimates(panel, x, [found[attack, where, method] for where in places], method, limits, **looks)
        panel.set_title(words(attack))
        panel.set_xticks(range(len(places)), [where.replace(", ", ",\n") for where in places], fontsize=8)
        panel.grid(axis="x", visible=False)
        panel.set_ylim(*limits)
    grid[0].set_ylabel(GAIN)
    legend_below(figure, grid[0], 3)
    return figure


# 6. The anchored estimator

KINDS = {
    "attack": "attacks, λ = 1",
    "smaller lambda": "attacks, smaller λ",
    "strength": "other attacks and strengths",
    "alpha": "unequal data",
    "loss": "loss",
    "world": "latency and waiting",
    "noise": "graphs under noise",
    "timing": "timing attacks",
}


def draw_anchored() -> Figure:
    """Draw all differences of the anchored estimator to the paper's: one dot per comparison."""
    figure, axes = plt.subplots(figsize=(9.5, 4))
    axes.axvline(0.0, color=style.INK, linewidth=0.8)
    colour = colour_of("R-DPFL, anchored")
    for place, kind in enumerate(KINDS):
        found = sorted((e for what, _, e in comparisons() if what == kind), key=lambda e: e.mean)
        y = place + np.tile([-0.2, 0.0, 0.2], len(found))[: len(found)]
        for at, e in zip(y, found, strict=True):
            face = colour if e.excludes_zero else "white"
            axes.plot(100 * e.mean, at, "o", color=colour, markerfacecolor=face, markersize=5)
    axes.set_yticks(range(len(KINDS)), list(KINDS.values()))
    axes.invert_yaxis()
    axes.set_xlabel("accuracy of anchored minus accuracy of R-DPFL (points)")
    keys = [
        Line2D([], [], marker="o", linestyle="", color=colour, label="its own 95 % interval excludes zero"),
        Line2D(
            [], [], marker="o", linestyle="", color=colour, markerfacecolor="white", label="it includes zero"
        ),
    ]
    axes.legend(handles=keys, fontsize=9, loc="lower right")
    return figure


FIGURES = {
    "0_overview": draw_overview,
    "1_tables": draw_tables,
    "1_readings": draw_readings,
    "2_defences": draw_defences,
    "2_speed": draw_speed,
    "3_delay_and_loss": draw_delay,
    "4_timing": draw_timing,
    "5_topology": draw_topology,
    "5_breakdown": draw_breakdown,
    "6_anchored": draw_anchored,
    "6_limits": draw_limits,
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
        for name, text in {"TABLES.md": tables(), **pages()}.items():
            (HERE / name).write_text(text)
            print(name)
