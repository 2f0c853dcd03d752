"""Robust aggregation: one vector from the messages that arrived.

An aggregator takes u (n, d), float32, whose n >= 1 rows are messages, and returns a new vector (d,).
One that is declared with `needs_own` takes the client's own vector as well; `aggregate` calls either kind.
All of them

- are defined for every n >= 1, one and two messages included;
- return finite values for finite messages, entries near the largest float32 included; NaN and infinity never
  arrive here, because mailboxes reject them;
- do not depend on the order of the rows, up to rounding (the geometric median: up to its tolerance);
- stay inside the coordinate-wise hull of the rows, up to rounding (centred clipping that starts at zero: of
  the rows and zero).
"""

from __future__ import annotations

from rdpfl_sim.maths.aggregators.aggregator import (
    AGGREGATORS,
    Aggregator,
    aggregate,
    aggregate_rows,
    aggregator,
)
from rdpfl_sim.maths.aggregators.coordinatewise import meamed, mean, median, trimmed_mean
from rdpfl_sim.maths.aggregators.iterative import centred_clipping, geometric_median
from rdpfl_sim.maths.aggregators.selection import caf, krum, mda, monna, multi_krum, smea

__all__ = [
    "AGGREGATORS",
    "Aggregator",
    "aggregate",
    "aggregate_rows",
    "aggregator",
    "caf",
    "centred_clipping",
    "geometric_median",
    "krum",
    "mda",
    "meamed",
    "mean",
    "median",
    "monna",
    "multi_krum",
    "smea",
    "trimmed_mean",
]
