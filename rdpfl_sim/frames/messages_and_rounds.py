"""Combine the records of a message, or of a client's round, into one row."""

from __future__ import annotations

from collections.abc import Collection

import polars as pl

DROPPED = ("stale", "duplicate", "rejected")
MESSAGE_EVENTS = tuple(
    f"message_{name}" for name in ("sent", "copied", "lost", "delivered", "used", *DROPPED)
)
ROUND_EVENTS = ("training_started", "training_finished", "round_finished")


def messages(events: pl.LazyFrame, byzantine: Collection[int]) -> pl.LazyFrame:
    """Return one row per message: when it was sent, its outcome (`fate`) and the reason."""
    times = {
        "sent_s": ("message_sent", "message_copied"),
        "delivered_s": ("message_delivered",),
        "lost_s": ("message_lost",),
        "used_s": ("message_used",),
        "dropped_s": tuple(f"message_{fate}" for fate in DROPPED),
    }
    fate = pl.col("event").str.strip_prefix("message_")
    merged = (
        events.with_columns(
            *(_time_of(names).alias(column) for column, names in times.items()),
            pl.when(fate.is_in(["lost", "used", *DROPPED])).then(fate).alias("fate"),
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
        pl.coalesce("fate", without_outcome).alias("fate"),
        *("reason", "age", "weight", "distance_to_own", "distance_to_predicted", "clipped"),
    )


def rounds(events: pl.LazyFrame, byzantine: Collection[int]) -> pl.LazyFrame:
    """Return one row per round that a client has started, with its times and the method's diagnostics.

    A client that crashes starts its round again. The row describes the last attempt.
    """
    times = dict(zip(("started_s", "trained_s", "finished_s"), ROUND_EVENTS, strict=True))
    last_start = pl.col("started_s").max().over("client", "round")
    return (
        events.with_columns(*(_time_of([name]).alias(column) for column, name in times.items()))
        .filter(pl.col("time_s") >= last_start)
        .group_by("client", "round")
        .agg(pl.exclude("event", "time_s", "client", "round").max())
        .sort("client", "round")
        .select(
            *("client", "round"),
            pl.col("client").is_in(list(byzantine)).alias("is_byzantine"),
            *times,
            pl.exclude("client", "round", *times),
        )
    )


def _time_of(names: Collection[str]) -> pl.Expr:
    return pl.when(pl.col("event").is_in(list(names))).then("time_s")
