"""Estimator: diagnostics of the method by round, such as threshold, deviation and clipping."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import polars as pl

from rdpfl_sim.records.field import fields_of
from rdpfl_sim.records.record_types import OTHER_DIAGNOSTICS, EstimateRecord
from rdpfl_sim.reports.html.page import (
    BYZANTINE,
    HONEST,
    Card,
    Trace,
    axis,
    band,
    bars,
    chart,
    compact,
    escape_markup,
    line,
    round_axis,
)
from rdpfl_sim.reports.html.tab import RunRecords, no_events, run_tab
from rdpfl_sim.results.charts import scale_of
from rdpfl_sim.results.run import FRAME_FIELDS, TIMES, schema_of

MAX_ROWS = 60
MAX_COLUMNS = 240
MAX_POINTS = 400
COMMON_COLUMNS = {*FRAME_FIELDS, *schema_of(TIMES.values())}
"""Columns of `Run.rounds` that are common to all methods."""
DIAGNOSTICS = {**fields_of(EstimateRecord), **OTHER_DIAGNOSTICS}
STATES = ("no messages", "within both limits", "clipped", "bounded by G_d", "clipped and bounded")
SHADES = ("@soft", "@sky", BYZANTINE, "@purple", "@lost")
SCALES = {"linear": "linear", "logarithmic": "log"}
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
    traces = [
        *_median_and_band(honest, "delta_norm", "|Δ|", "@purple"),
        *_median_and_band(honest, "tau", "τ", HONEST),
        *(_share_bars(honest, flag, colour) for flag, colour in LIMITS),
    ]
    share = {"overlaying": "y", "side": "right", "range": [0, 100], "showgrid": False}
    views = {
        view: chart(
            traces,
            round_axis(last_round),
            axis("norm", type=SCALES[view], rangemode="tozero", exponentformat="power"),
            420,
            yaxis2=axis("clients clipped or bounded (%)", **share, tickmode="linear", dtick=25),
            hovermode="x unified",
            barmode="group",
            legend={"traceorder": "normal"},
        )
        for view in sorted(SCALES, reverse=_has_outliers(honest))
    }
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


def _by_round(honest: pl.DataFrame, *values: pl.Expr) -> pl.DataFrame:
    """Return values per round, or per bin of rounds if there are many."""
    width = -(-int(honest["round"].max()) // MAX_POINTS) or 1  # type: ignore[arg-type]
    return honest.group_by(pl.col("round") // width * width).agg(*values).sort("round")


def _median_and_band(honest: pl.DataFrame, name: str, label: str, colour: str) -> list[Trace]:
    """Return the median over clients and the 10th to 90th percentile, per round."""
    levels = {"low": 0.1, "mid": 0.5, "high": 0.9}
    quantiles = _by_round(
        honest.filter(pl.col(name).is_finite()),
        *(pl.col(name).quantile(level, "linear").alias(key) for key, level in levels.items()),
    )
    x = quantiles["round"].to_list()
    low, mid, high = (compact(quantiles[key]) for key in levels)
    return [
        *band(x, low, high, f"{label}, 10 to 90 %", colour, legend=False),
        line(x, mid, f"{label}, median", colour, hovertemplate="%{y}"),
    ]


def _share_bars(honest: pl.DataFrame, flag: str, colour: str) -> Trace:
    """Return the share of clients with a flag, per round."""
    share = _by_round(honest, (100 * pl.col(flag).fill_null(value=False).mean()).alias("share"))
    x, y = share["round"].to_list(), compact(share["share"], 3)
    return bars(x, y, flag, colour, yaxis="y2", hovertemplate="%{y} %")


def _limits_card(honest: pl.DataFrame, last_round: int) -> Card:
    """Show one cell per client and round: whether the deviation was clipped and the direction bounded."""
    clipped, bounded = (pl.col(flag).fill_null(value=False) for flag, _ in LIMITS)
    limits = pl.when(bounded).then(3 + clipped.cast(pl.Int8)).when(clipped).then(2)
    state = limits.when(pl.col("num_used") == 0).then(0).otherwise(1)
    all_clients, all_rounds = (sorted(set(honest[column])) for column in ("client", "round"))
    step = -(-len(all_rounds) // MAX_COLUMNS)
    clients, rounds = all_clients[:: -(-len(all_clients) // MAX_ROWS)], all_rounds[::step]
    shown = honest.filter(pl.col("client").is_in(clients), pl.col("round").is_in(rounds))
    found = shown.select("client", "round", state.alias("state"))
    states = {(client, round_): value for client, round_, value in found.rows()}
    cells = [[states.get((client, round_)) for round_ in rounds] for client in clients]
    num_states = len(STATES)
    scale = [[(index + side) / num_states, shade] for index, shade in enumerate(SHADES) for side in (0, 1)]
    ticks = {"tickvals": [*range(num_states)], "ticktext": list(STATES)}
    trace = {
        "type": "heatmap",
        "x": rounds,
        "y": [str(client) for client in clients],
        "z": cells,
        "zmin": -0.5,
        "zmax": num_states - 0.5,
        "colorscale": scale,
        "xgap": 1 if len(rounds) <= 100 else 0,
        "ygap": 1 if len(clients) <= 40 else 0,
        "text": [["" if value is None else STATES[value] for value in row] for row in cells],
        "colorbar": {**ticks, "thickness": 14, "outlinewidth": 0, "len": 0.9},
        "hovertemplate": "client %{y}, round %{x}: %{text}<extra></extra>",
    }
    y = axis("honest client", type="category", showgrid=False, autorange="reversed")
    height = min(max(150 + 22 * len(clients), 260), 720)
    notes = []
    if len(clients) < len(all_clients):
        notes.append(f"{len(clients)} of {len(all_clients):,} honest clients are shown.")
    if step > 1:
        notes.append(f"One in {step} rounds is shown.")
    return Card(
        "Clipping and bounding by round",
        "Clipped: the deviation exceeded τ. Bounded: the direction was longer than G_d.",
        {"rounds": chart([trace], round_axis(last_round), y, height)},
        note=" ".join(notes),
        wide=True,
    )


def _diagnostic_card(honest: pl.DataFrame, name: str, last_round: int) -> Card:
    title, label = _title_and_label(name)
    *area, median = _median_and_band(honest, name, label, "@green")
    medians = [value for value in cast("list[float | None]", median["y"]) if value is not None]
    return Card(
        title,
        "Honest clients: median, and the area from the 10th to the 90th percentile.",
        {
            name: chart(
                [*area, median],
                round_axis(last_round),
                axis(label, type=scale_of(medians)),
                300,
                hovermode="x unified",
            )
        },
    )


def _title_and_label(name: str) -> tuple[str, str]:
    """Return the title of a diagnostic and the label of its axis."""
    if name not in DIAGNOSTICS:
        return name, escape_markup(name)
    field = DIAGNOSTICS[name]
    title = field.meaning.partition(";")[0]
    label = field.heading or title.partition(",")[0]
    return title[:1].upper() + title[1:] if title.isascii() else title, label
