"""The rounds that the clients of a run have finished."""

from __future__ import annotations

from typing import NamedTuple

from rdpfl_sim.records.json_file import JsonObject


class RoundRange(NamedTuple):
    """The smallest and the largest number of rounds that a client has finished, and the planned number.

    >>> str(RoundRange(12, 14, 20)), str(RoundRange(20, 20, 20))
    ('12 to 14 of 20', '20 of 20')
    """

    least: int
    most: int
    planned: int

    @classmethod
    def of_summary(cls, summary: JsonObject, planned: int) -> RoundRange | None:
        """Return the range in a summary, or None if the run is unfinished or has failed."""
        if "rounds_done" not in summary:
            return None
        least, most = summary["rounds_done"]
        return cls(least, most, planned)

    @property
    def is_complete(self) -> bool:
        """Whether every client has finished all rounds."""
        return self.least >= self.planned

    @property
    def done(self) -> str:
        """The numbers of finished rounds, such as `12 to 14`."""
        return f"{self.least:,}" if self.least == self.most else f"{self.least:,} to {self.most:,}"

    def __str__(self) -> str:
        return f"{self.done} of {self.planned:,}"
