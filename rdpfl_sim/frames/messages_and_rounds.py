"""Combine the records of a message, or of a client's round, into one row."""

from __future__ import annotations

from collections.abc import Collection

import polars as pl

from rdpfl_sim.records.field import Field

DROPPED = ("stale", "duplicate", "rejected")
MESSAGE_EVENTS = tuple(
    f"message_{name}" for name in ("sent", "copied", "lost", "delivered", "used", "stats", *DROPPED)
)
TIMES = {
    "started_s": "training_started",
    "trained_s": "training_finished",
    "finished_s": "round_finished",
}
ROUND_EVENTS = (*TIMES.values(), "estimate")
FRAME_FIELDS = {
    "is_byzantine": Field("true or false", "whether the client, or the sender of the message, is Byzantine"),
    "sent_s": Field("s", "time of sending, or of copying"),
    "delivered_s": Field("s", "time of delivery; null if there was none"),
    "lost_s": Field("s", "time of the loss; null if there was none"),
    "used_s": Field("s", "end of the round that used the message; null if there was none"),
    "dropped_s": Field("s", "time at which the recipient dropped it; null if it did not"),
    "outcome": Field("text", "used, lost, stale, duplicate, rejected, left over or in flight"),
    "started_s": Field("s", "start of the local training"),
    "trained_s": Field("s", "end of the local training"),
    "finished_s": Field("s", "end of the round; null if the client did not finish it"),
}
"""Columns of `messages` and `rounds` that are not fields of records."""


def messages(events: pl.LazyFrame, byzantine: Collection[int]) -> pl.LazyFrame:
    """Return one row per message: sending time, outcome and reason."""
    times = {
        "sent_s": ("message_sent", "message_copied"),
        "delivered_s": ("message_delivered",),
        "lost_s": ("message_lost",),
        "used_s": ("message_used",),
        "dropped_s": tuple(f"message_{outcome}" for outcome in DROPPED),
    }
    outcome = pl.col("event").str.strip_prefix("message_")
    merged = (
        events.with_columns(
            *(_time_of(names).alias(column) for column, names in times.items()),
            pl.when(outcome.is_in(["lost", "used", *DROPPED])).then(outcome).alias("outcome"),
        )
        .group_by("message")
        .agg(pl.exclude("event", "time_s", "message").max())  # records of one message agree on common fields
        .sort("message")
    )
    without_outcome = (
        pl.when(pl.col("delivered_s").is_null()).then(pl.lit("in flight")).otherwise(pl.lit("left over"))
    )
    return merged.select(
        *("message", "sender", "recipient"),
        pl.col("sender").is_in(list(byzantine)).alias("is_byzantine"),
        *("round", "true_round", "original", "size_bytes"),
        *("sent_s", "delivered_s", "lost_s", "used_s", "dropped_s", "delay_s"),
        pl.coalesce("outcome", without_outcome).alias("outcome"),
        *("reason", "age", "weight", "distance_to_own", "distance_to_predicted"),
    )


def rounds(events: pl.LazyFrame, byzantine: Collection[int]) -> pl.LazyFrame:
    """Return one row per round started by a client, with its times and the method's diagnostics.

    A client that crashes starts its round again. The row describes the last attempt.
    """
    last_start = pl.col("started_s").max().over("client", "round")
    return (
        events.with_columns(*(_time_of([name]).alias(column) for column, name in TIMES.items()))
        .filter(pl.col("time_s") >= last_start)
        .group_by("client", "round")
        .agg(pl.exclude("event", "time_s", "client", "round").max())
        .sort("client", "round")
        .select(
            *("client", "round"),
            pl.col("client").is_in(list(byzantine)).alias("is_byzantine"),
            *TIMES,
            pl.exclude("client", "round", *TIMES),
        )
    )


def _time_of(names: Collection[str]) -> pl.Expr:
    return pl.when(pl.col("event").is_in(list(names))).then("time_s")
