"""Local training: clients exchange nothing."""

from __future__ import annotations

from collections.abc import Sequence

from rdpfl_sim.methods.base import (
    ClientView,
    Diagnostics,
    Inbox,
    MessageStats,
    Method,
    Outgoing,
    RunInfo,
    State,
    Trained,
    method,
)


@method
class Local(Method):
    """w <- w~: plain local SGD, the baseline for collaboration (lambda = 0)."""

    exchanges = False

    def __init__(self, run: RunInfo) -> None:
        pass

    def payload(
        self, state: State, trained: Trained, clients: Sequence[ClientView]
    ) -> tuple[State, Outgoing]:
        """Return the trained models, which are never sent."""
        return state, Outgoing(trained.w)

    def update(
        self, state: State, trained: Trained, inbox: Inbox, clients: Sequence[ClientView]
    ) -> tuple[State, Diagnostics]:
        """Keep the trained models."""
        return State(trained.w), {}

    def message_stats(
        self, state: State, trained: Trained, inbox: Inbox, clients: Sequence[ClientView]
    ) -> MessageStats:
        """Fail: there are no messages."""
        raise AssertionError("local training receives no messages")
