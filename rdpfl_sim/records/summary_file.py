"""The message counts in summary.json, which must add up."""

from __future__ import annotations

from collections.abc import Mapping

from rdpfl_sim.records.record_types import RunFinished

OUTCOMES = ("used", "stale", "duplicate", "rejected")
"""Possible outcomes of a message in the mailbox of its recipient."""

MESSAGE_COUNTS = tuple(key for key in RunFinished.__annotations__ if key not in ("event", "time_s", "status"))
"""The keys of the section `messages`."""


def message_counts(
    sent: int, delivered: int, lost: int, in_flight: int, outcomes: Mapping[str, int], left_over: int
) -> dict[str, int]:
    """Return the numbers of messages by outcome.

    sent = delivered + lost + in_flight, delivered = used + stale + duplicate + rejected + left_over.
    """
    counts = {
        "sent": sent,
        "delivered": delivered,
        "lost": lost,
        "in_flight": in_flight,
        **{outcome: outcomes.get(outcome, 0) for outcome in OUTCOMES},
        "left_over": left_over,
    }
    assert sent == delivered + lost + in_flight, f"messages went missing on links: {counts}"
    assert delivered == sum(outcomes.values()) + left_over, f"messages went missing in mailboxes: {counts}"
    return counts
