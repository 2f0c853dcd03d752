"""Local training: nobody talks to anybody."""

from __future__ import annotations

from collections.abc import Sequence

from rdpfl_sim.methods import base
from rdpfl_sim.methods.exchange import Local as LocalOutcome
from rdpfl_sim.methods.exchange import Payload, Received
from rdpfl_sim.methods.registry import method


@method
class Local(base.Method):
    """w <- w~: plain local SGD, the reference that collaboration has to beat (lambda = 0)."""

    exchanges = False

    def __init__(self, settings: base.Settings) -> None:
        pass

    def outgoing(self, state: base.State, own: LocalOutcome, home: base.Home) -> tuple[base.State, Payload]:
        """Nobody asks for it: nothing is exchanged."""
        return state, Payload(own.w_tilde)

    def inspect(
        self, state: base.State, own: LocalOutcome, received: Sequence[Received], home: base.Home
    ) -> base.Inspection:
        """Never called: nothing is exchanged."""
        raise AssertionError("local training receives nothing")

    def update(
        self, state: base.State, own: LocalOutcome, received: Sequence[Received], home: base.Home
    ) -> tuple[base.State, base.Diagnostics]:
        """The locally trained model."""
        return base.State(own.w_tilde), {}
