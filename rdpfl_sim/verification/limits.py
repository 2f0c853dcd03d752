"""Changes that `verify` does not detect: fields that no run repeats, and those that only a replay checks."""

from __future__ import annotations

UNREPEATABLE = {
    "summary.json": ("wall.seconds", "wall.device", "wall.trained_on", "wall.threads"),
    "provenance.json": ("sessions",),
}
"""Fields that differ from run to run: wall-clock times, host, folder, start time.

Figures are not compared either, nor the warning that a run was resumed in another environment.
docs/commands.md has the same list.
"""

ONLY_BY_REPLAY = (
    "the distances in message_used, and a change of a weight that is lost in the rounding of a sum",
    "the size of a message that is retransmitted or compressed, of a Byzantine or a one-neighbour sender",
    "the place of a message's record among those of the same instant",
    "the time of a message that was lost after it was sent",
    "why a message was lost at the instant at which its sender stopped",
    "whether a message was rejected as 'not finite' or as of 'wrong shape or type'",
    "the numbers in warnings about small test sets, crashes during training and diverged models",
    "the last digits of G_g, sigma_u and the bound in the theory, and all of it if a client never trained",
    "whatever follows from records that output.events or output.message_events has left out",
)
"""What plain `verify` may not notice if it alone was changed; docs/commands.md lists the same."""
