"""Inside the method: threshold, deviation and step over rounds, and where the threshold bound."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rdpfl_sim.reports.html.page import Card, missing
from rdpfl_sim.reports.html.plot import (
    BYZANTINE,
    HONEST,
    Figure,
    Trace,
    axis,
    band,
    compact,
    line,
    round_axis,
)

MAX_ROWS = 60
MAX_COLUMNS = 240
MAX_POINTS = 400
KNOWN = {
    *("client", "round", "is_byzantine", "started_s", "trained_s", "finished_s", "duration_s", "loss"),
    *("num_steps", "num_used", "max_age"),
}
"""Columns of `Run.rounds` that every method has."""
NAMES = {
    "u_norm": "|u|, the own update",
    "d_norm": "|d|, the direction used",
    "neighbour_share": "share of neighbours in a step",
    "delta_norm": "|Δ|, the deviation",
    "tau": "τ, the threshold",
    "beta": "β, the prediction coefficient",
    "num_accepted": "messages accepted",
    "num_clipped": "messages held near the own update",
    "moved": "distance moved by mixing",
    "density": "density of the mask",
}
STATES = ("no message", "within the threshold", "clipped", "bounded by G_d")


def estimator_cards(rounds: pl.DataFrame) -> list[Card]:
    """Threshold and deviation with clipping, where it bound, and whatever else the method tells."""
    honest = rounds.filter(~pl.col("is_byzantine"), pl.col("finished_s").is_not_null())
    told = [
        name
        for name, kind in honest.schema.items()
        if name not in KNOWN and kind.is_numeric() and honest[name].is_finite().any()
    ]
    if not honest.height:
        return [missing("Inside the method", "No round of an honest client is in the records.")]
    cards = []
    if "tau" in told and "delta_norm" in told:
        cards += [_threshold(honest), _binding(honest)]
        told = [name for name in told if name not in ("tau", "delta_norm")]
    cards += [_diagnostic(honest, name) for name in told]
    return cards or [missing("Inside the method", "This method tells nothing about its inside.")]


def _threshold(honest: pl.DataFrame) -> Card:
    views = {}
    traces = [
        *_middle(honest, "delta_norm", "|Δ|", "@purple"),
        *_middle(honest, "tau", "τ", HONEST),
        _clipped_share(honest),
    ]
    kinds = {"linear": "linear", "logarithmic": "log"}
    for view, kind in sorted(kinds.items(), reverse=_is_wide(honest)):
        layout = {
            "xaxis": round_axis(honest["round"]),
            "yaxis": axis("norm", type=kind, rangemode="tozero"),
            "yaxis2": axis(
                "clipped (%)",
                overlaying="y",
                side="right",
                range=[0, 100],
                showgrid=False,
                tickmode="linear",
                dtick=25,
            ),
            "hovermode": "x unified",
        }
        views[view] = Figure(traces, layout, 420)
    clipped = clipped_share(honest)
    share = "" if clipped is None else f" It bound in {clipped:.1%} of the rounds of honest clients."
    return Card(
        "Threshold and deviation",
        "Honest clients: median, and the area from the 10th to the 90th percentile. Where |Δ| exceeds τ, "
        f"it is cut down to τ; bars show how many clients that happened to.{share}",
        views,
        wide=True,
    )


def _is_wide(honest: pl.DataFrame) -> bool:
    """Whether a few deviations are so large that nothing else could be seen on a linear axis."""
    values = honest["delta_norm"].drop_nulls().to_numpy()
    return len(values) > 0 and bool(np.percentile(values, 99) > 100 * np.median(values) > 0)


def clipped_share(rounds: pl.DataFrame) -> float | None:
    """In which part of the honest clients' rounds the threshold bound; None if there is no threshold."""
    if "tau" not in rounds.columns:
        return None
    told = rounds.filter(~pl.col("is_byzantine"), pl.col("tau").is_not_null())
    return float(told["clipped"].fill_null(value=False).to_numpy().mean()) if told.height else None


def _middle(honest: pl.DataFrame, name: str, label: str, colour: str) -> list[Trace]:
    """The median over clients and the area around it, round by round."""
    finite = honest.filter(pl.col(name).is_finite())
    quantiles = (
        finite.with_columns(_bin(honest).alias("round"))
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
            showlegend=False,
        ),
        line(x, compact(quantiles["mid"]), f"{label}, median", colour, hovertemplate="%{y}"),
    ]


def _bin(honest: pl.DataFrame) -> pl.Expr:
    """Rounds, in equal groups if there are many."""
    width = -(-int(honest["round"].max()) // MAX_POINTS)  # type: ignore[arg-type]
    return pl.col("round") // width * width if width > 1 else pl.col("round")


def _clipped_share(honest: pl.DataFrame) -> Trace:
    share = (
        honest.with_columns(_bin(honest).alias("round"))
        .group_by("round")
        .agg((100 * pl.col("clipped").fill_null(value=False).mean()).alias("share"))
        .sort("round")
    )
    return {
        "type": "bar",
        "x": share["round"].to_list(),
        "y": compact(share["share"], 3),
        "yaxis": "y2",
        "name": "clipped",
        "marker": {"color": "@byzantine-band"},
        "hovertemplate": "%{y} %",
    }


def _binding(honest: pl.DataFrame) -> Card:
    """A cell for every client and round: whether the threshold, or the bound G_d, held it back."""
    bounded = pl.col("bounded").fill_null(value=False)
    state = (
        pl.when(bounded)
        .then(3)
        .when(pl.col("clipped").fill_null(value=False))
        .then(2)
        .when(pl.col("num_used") == 0)
        .then(0)
        .otherwise(1)
    )
    all_clients = sorted(set(honest["client"]))
    clients = all_clients[:: -(-len(all_clients) // MAX_ROWS)]
    all_rounds = sorted(set(honest["round"]))
    step = -(-len(all_rounds) // MAX_COLUMNS)
    some = honest.filter(pl.col("client").is_in(clients), pl.col("round").is_in(all_rounds[::step]))
    cells: NDArray[np.float64] = np.full((len(clients), len(all_rounds[::step])), np.nan)
    rows = {client: place for place, client in enumerate(clients)}
    columns = {round_: place for place, round_ in enumerate(all_rounds[::step])}
    for client, round_, value in some.select("client", "round", state.alias("state")).iter_rows():
        cells[rows[client], columns[round_]] = value
    shades = ("@soft", "@sky", BYZANTINE, "@purple")
    scale = [[(place + side) / 4, shade] for place, shade in enumerate(shades) for side in (0, 1)]
    trace = {
        "type": "heatmap",
        "x": all_rounds[::step],
        "y": [str(client) for client in clients],
        "z": [compact(row) for row in cells],
        "zmin": -0.5,
        "zmax": 3.5,
        "colorscale": scale,
        "xgap": 1 if len(columns) <= 100 else 0,
        "ygap": 1 if len(clients) <= 40 else 0,
        "text": [["" if np.isnan(v) else STATES[int(v)] for v in row] for row in cells],
        "colorbar": {
            "tickvals": [0, 1, 2, 3],
            "ticktext": list(STATES),
            "thickness": 14,
            "outlinewidth": 0,
            "len": 0.9,
        },
        "hovertemplate": "client %{y}, round %{x}: %{text}<extra></extra>",
    }
    layout = {
        "xaxis": round_axis(honest["round"]),
        "yaxis": axis("honest client", type="category", showgrid=False, autorange="reversed"),
    }
    notes = []
    if len(clients) < len(all_clients):
        notes.append(f"{len(clients)} of {len(all_clients):,} honest clients are shown.")
    if step > 1:
        notes.append(f"Every {step}th round is shown.")
    height = int(np.clip(150 + 22 * len(clients), 260, 720))
    return Card(
        "Where it bound",
        "Clipped: the deviation exceeded τ. Bounded: the direction was longer than G_d, too.",
        {"rounds": Figure([trace], layout, height)},
        note=" ".join(notes),
        wide=True,
    )


def _diagnostic(honest: pl.DataFrame, name: str) -> Card:
    """Any other number that a method tells in every round."""
    title = NAMES.get(name, name)
    traces = _middle(honest, name, title.partition(",")[0], "@green")
    layout = {
        "xaxis": round_axis(honest["round"]),
        "yaxis": axis(title.partition(",")[0]),
        "hovermode": "x unified",
    }
    return Card(
        title,
        "Honest clients: median, and from the 10th to the 90th percentile.",
        {name: Figure(traces, layout, 300)},
    )
