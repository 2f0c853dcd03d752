"""What records tell of one thing at several moments, as one row: a message, a round."""

from __future__ import annotations

from collections.abc import Collection

import polars as pl

DROPPED = ("stale", "duplicate", "rejected")
MESSAGE_EVENTS = tuple(
    f"message_{what}" for what in ("sent", "copied", "lost", "delivered", "used", *DROPPED)
)
ROUND_EVENTS = ("training_started", "training_finished", "round_finished")


def messages(events: pl.LazyFrame, byzantine: Collection[int]) -> pl.LazyFrame:
    """One row a message, with when it was sent, what became of it, and why."""
    moments = {
        "sent_s": ("message_sent", "message_copied"),
        "delivered_s": ("message_delivered",),
        "lost_s": ("message_lost",),
        "used_s": ("message_used",),
        "dropped_s": tuple(f"message_{fate}" for fate in DROPPED),
    }
    fate = pl.col("event").str.strip_prefix("message_")
    lives = (
        events.with_columns(
            *(_moment(names).alias(column) for column, names in moments.items()),
            pl.when(fate.is_in(["lost", "used", *DROPPED])).then(fate).alias("fate"),
        )
        .group_by("message")
        .agg(pl.exclude("event", "time_s", "message").max())  # each field is in one of a message's records
        .sort("message")
    )
    unfinished = (
        pl.when(pl.col("delivered_s").is_null()).then(pl.lit("in flight")).otherwise(pl.lit("left over"))
    )
    return lives.select(
        *("message", "sender", "recipient"),
        pl.col("sender").is_in(list(byzantine)).alias("is_byzantine"),
        *("round", "true_round", "original", "size_bytes"),
        *("sent_s", "delivered_s", "lost_s", "used_s", "dropped_s", "delay_s"),
        pl.coalesce("fate", unfinished).alias("fate"),
        *("reason", "age", "weight", "distance_to_own", "distance_to_predicted", "clipped"),
    )


def rounds(events: pl.LazyFrame, byzantine: Collection[int]) -> pl.LazyFrame:
    """One row for every round that a client has begun, with its moments and the method's diagnostics.

    A client that crashes begins its round again: then the row is about the last time.
    """
    moments = dict(zip(("started_s", "trained_s", "finished_s"), ROUND_EVENTS, strict=True))
    last_start = pl.col("started_s").max().over("client", "round")
    return (
        events.with_columns(*(_moment([name]).alias(column) for column, name in moments.items()))
        .filter(pl.col("time_s") >= last_start)
        .group_by("client", "round")
        .agg(pl.exclude("event", "time_s", "client", "round").max())
        .sort("client", "round")
        .select(
            *("client", "round"),
            pl.col("client").is_in(list(byzantine)).alias("is_byzantine"),
            *moments,
            pl.exclude("client", "round", *moments),
        )
    )


def _moment(names: Collection[str]) -> pl.Expr:
    return pl.when(pl.col("event").is_in(list(names))).then("time_s")
