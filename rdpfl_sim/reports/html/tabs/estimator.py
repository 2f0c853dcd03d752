"""Estimator: diagnostics of the method by round, such as threshold, deviation and clipping."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rdpfl_sim.reports.html.page import (
    BYZANTINE,
    HONEST,
    Card,
    Plot,
    Trace,
    axis,
    band,
    compact,
    escape_markup,
    line,
    round_axis,
)
from rdpfl_sim.reports.html.tab import RunRecords, no_events, run_tab
from rdpfl_sim.results.charts import scale_of

MAX_ROWS = 60
MAX_COLUMNS = 240
MAX_POINTS = 400
COMMON_COLUMNS = {
    *("client", "round", "is_byzantine", "started_s", "trained_s", "finished_s", "duration_s", "loss"),
    *("num_steps", "num_used", "max_age"),
}
"""Columns of `Run.rounds` that are common to all methods."""
TITLES = {
    "u_norm": "|u|, the client's own update",
    "d_norm": "|d|, the direction used",
    "neighbour_share": "Step due to neighbours, relative to local training",
    "delta_norm": "|Δ|, the deviation",
    "tau": "τ, the threshold",
    "beta": "β, the prediction coefficient",
    "num_accepted": "Messages accepted",
    "num_clipped": "Messages clipped",
    "moved": "Distance moved by mixing",
    "density": "Density of the mask",
}
"""Titles of diagnostics; the part before the comma labels the axis."""
STATES = ("no messages", "within both limits", "clipped", "bounded by G_d", "clipped and bounded")
SHADES = ("@soft", "@sky", BYZANTINE, "@purple", "@lost")
LIMITS = (("clipped", "@byzantine-band"), ("bounded", "@lost-band"))
"""The flags of a round in which a limit applied, and the colours of their bars."""


@run_tab("Estimator", position=50)
def estimator_tab(records: RunRecords) -> Sequence[Card]:
    """Show the diagnostics of honest clients."""
    if not records.run.has_events:
        return [no_events("Estimator", records.run)]
    return estimator_cards(records.rounds, records.last_round)


def estimator_cards(rounds: pl.DataFrame, last_round: int) -> list[Card]:
    """Show threshold, deviation and clipping, and every other diagnostic of the method."""
    honest = rounds.filter(~pl.col("is_byzantine"), pl.col("finished_s").is_not_null())
    if not honest.height:
        return [Card("Estimator", missing="The records contain no completed round of an honest client.")]
    diagnostics = [
        name
        for name, data_type in honest.schema.items()
        if name not in COMMON_COLUMNS and data_type.is_numeric() and honest[name].is_finite().any()
    ]
    cards = []
    if "tau" in diagnostics and "delta_norm" in diagnostics:
        cards += [_threshold_card(honest, last_round), _limits_card(honest, last_round)]
        diagnostics = [name for name in diagnostics if name not in ("tau", "delta_norm")]
    cards += [_diagnostic_card(honest, name, last_round) for name in diagnostics]
    return cards or [Card("Estimator", missing="This method records no diagnostics.")]


def _threshold_card(honest: pl.DataFrame, last_round: int) -> Card:
    views = {}
    traces = [
        *_median_and_band(honest, "delta_norm", "|Δ|", "@purple"),
        *_median_and_band(honest, "tau", "τ", HONEST),
        *(_share_bars(honest, flag, colour) for flag, colour in LIMITS),
    ]
    axis_types = {"linear": "linear", "logarithmic": "log"}
    for view, axis_type in sorted(axis_types.items(), reverse=_has_outliers(honest)):
        layout = {
            "xaxis": round_axis(last_round),
            "yaxis": axis("norm", type=axis_type, rangemode="tozero", exponentformat="power"),
            "yaxis2": axis(
                "clients clipped or bounded (%)",
                overlaying="y",
                side="right",
                range=[0, 100],
                showgrid=False,
                tickmode="linear",
                dtick=25,
            ),
            "hovermode": "x unified",
            "barmode": "group",
            "legend": {"traceorder": "normal"},
        }
        views[view] = Plot(traces, layout, 420)
    clipped, bounded = (limit_share(honest, flag) or 0.0 for flag, _ in LIMITS)
    return Card(
        "Threshold and deviation",
        "Honest clients: median, and the area from the 10th to the 90th percentile. A deviation |Δ| above τ "
        f"is clipped to τ, in {clipped:.1%} of the rounds of honest clients. A direction longer than G_d is "
        f"bounded, in {bounded:.1%} of them. Bars show both shares per round.",
        views,
        wide=True,
    )


def _has_outliers(honest: pl.DataFrame) -> bool:
    """Return whether a few large deviations would hide the others on a linear axis."""
    values = honest["delta_norm"].drop_nulls().to_numpy()
    return len(values) > 0 and bool(np.percentile(values, 99) > 100 * np.median(values) > 0)


def limit_share(rounds: pl.DataFrame, flag: str) -> float | None:
    """Return the share of honest rounds that are `clipped` or `bounded`; None without a threshold."""
    if not {"tau", flag} <= {*rounds.columns}:
        return None
    honest = rounds.filter(~pl.col("is_byzantine"), pl.col("tau").is_not_null())
    return float(honest[flag].fill_null(value=False).to_numpy().mean()) if honest.height else None


def _median_and_band(honest: pl.DataFrame, name: str, label: str, colour: str) -> list[Trace]:
    """Return the median over clients and the 10th to 90th percentile, per round."""
    finite = honest.filter(pl.col(name).is_finite())
    quantiles = (
        finite.with_columns(_binned_round(honest).alias("round"))
        .group_by("round")
        .agg(
            *(
                pl.col(name).quantile(q, "linear").alias(key)
                for key, q in (("low", 0.1), ("mid", 0.5), ("high", 0.9))
            )
        )
        .sort("round")
    )
    x = quantiles["round"].to_list()
    return [
        *band(
            x,
            compact(quantiles["low"]),
            compact(quantiles["high"]),
            f"{label}, 10 to 90 %",
            colour,
            legend=False,
        ),
        line(x, compact(quantiles["mid"]), f"{label}, median", colour, hovertemplate="%{y}"),
    ]


def _binned_round(honest: pl.DataFrame) -> pl.Expr:
    """Return the round, or the start of its bin if there are many rounds."""
    width = -(-int(honest["round"].max()) // MAX_POINTS)  # type: ignore[arg-type]
    return pl.col("round") // width * width if width > 1 else pl.col("round")


def _share_bars(honest: pl.DataFrame, flag: str, colour: str) -> Trace:
    """Return the share of clients with a flag, per round."""
    share = (
        honest.with_columns(_binned_round(honest).alias("round"))
        .group_by("round")
        .agg((100 * pl.col(flag).fill_null(value=False).mean()).alias("share"))
        .sort("round")
    )
    return {
        "type": "bar",
        "x": share["round"].to_list(),
        "y": compact(share["share"], 3),
        "yaxis": "y2",
        "name": flag,
        "marker": {"color": colour},
        "hovertemplate": "%{y} %",
    }


def _limits_card(honest: pl.DataFrame, last_round: int) -> Card:
    """Show one cell per client and round: whether the deviation was clipped and the direction bounded."""
    clipped, bounded = (pl.col(flag).fill_null(value=False) for flag, _ in LIMITS)
    state = (
        pl.when(clipped & bounded)
        .then(4)
        .when(bounded)
        .then(3)
        .when(clipped)
        .then(2)
        .when(pl.col("num_used") == 0)
        .then(0)
        .otherwise(1)
    )
    all_clients = sorted(set(honest["client"]))
    clients = all_clients[:: -(-len(all_clients) // MAX_ROWS)]
    all_rounds = sorted(set(honest["round"]))
    step = -(-len(all_rounds) // MAX_COLUMNS)
    shown = honest.filter(pl.col("client").is_in(clients), pl.col("round").is_in(all_rounds[::step]))
    cells: NDArray[np.float64] = np.full((len(clients), len(all_rounds[::step])), np.nan)
    rows = {client: row for row, client in enumerate(clients)}
    columns = {round_: column for column, round_ in enumerate(all_rounds[::step])}
    for client, round_, value in shown.select("client", "round", state.alias("state")).iter_rows():
        cells[rows[client], columns[round_]] = value
    num_states = len(STATES)
    scale = [[(index + side) / num_states, shade] for index, shade in enumerate(SHADES) for side in (0, 1)]
    trace = {
        "type": "heatmap",
        "x": all_rounds[::step],
        "y": [str(client) for client in clients],
        "z": [compact(row) for row in cells],
        "zmin": -0.5,
        "zmax": num_states - 0.5,
        "colorscale": scale,
        "xgap": 1 if len(columns) <= 100 else 0,
        "ygap": 1 if len(clients) <= 40 else 0,
        "text": [["" if np.isnan(v) else STATES[int(v)] for v in row] for row in cells],
        "colorbar": {
            "tickvals": [*range(num_states)],
            "ticktext": list(STATES),
            "thickness": 14,
            "outlinewidth": 0,
            "len": 0.9,
        },
        "hovertemplate": "client %{y}, round %{x}: %{text}<extra></extra>",
    }
    layout = {
        "xaxis": round_axis(last_round),
        "yaxis": axis("honest client", type="category", showgrid=False, autorange="reversed"),
    }
    notes = []
    if len(clients) < len(all_clients):
        notes.append(f"{len(clients)} of {len(all_clients):,} honest clients are shown.")
    if step > 1:
        notes.append(f"One in {step} rounds is shown.")
    height = int(np.clip(150 + 22 * len(clients), 260, 720))
    return Card(
        "Clipping and bounding by round",
        "Clipped: the deviation exceeded τ. Bounded: the direction was longer than G_d.",
        {"rounds": Plot([trace], layout, height)},
        note=" ".join(notes),
        wide=True,
    )


def _medians(traces: Sequence[Trace]) -> list[float]:
    """Return the finite medians in the traces of `_median_and_band`."""
    medians = traces[-1]["y"]
    assert isinstance(medians, list), "a median per round"
    return [median for median in medians if median is not None]


def _diagnostic_card(honest: pl.DataFrame, name: str, last_round: int) -> Card:
    title = TITLES.get(name, name)
    label = title.partition(",")[0]
    label = escape_markup(label[:1].lower() + label[1:])
    traces = _median_and_band(honest, name, label, "@green")
    layout = {
        "xaxis": round_axis(last_round),
        "yaxis": axis(label, type=scale_of(_medians(traces))),
        "hovermode": "x unified",
    }
    return Card(
        title,
        "Honest clients: median, and the area from the 10th to the 90th percentile.",
        {name: Plot(traces, layout, 300)},
    )
