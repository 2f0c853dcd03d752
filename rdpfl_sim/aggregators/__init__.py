"""Robust aggregation: one vector from the received messages.

An aggregator takes u (n, d), float32, whose n >= 1 rows are messages, and returns a new vector (d,).
If it is declared with `needs_own`, it also takes the client's own vector; `aggregate` calls either kind.
`Aggregation` combines pre-aggregators with an aggregator and computes message weights. All aggregators

- are defined for every n >= 1, including one and two messages;
- return finite values for finite messages, even for entries near the largest float32 (mailboxes reject NaN
  and infinity);
- do not depend on the order of the rows, up to rounding (the geometric median: up to its tolerance);
- stay inside the coordinate-wise hull of the rows, up to rounding (centred clipping that starts at zero: the
  hull of the rows and zero).
"""

from __future__ import annotations

from rdpfl_sim.aggregators.aggregation import Aggregation
from rdpfl_sim.aggregators.aggregator import (
    AGGREGATORS,
    PRE_AGGREGATORS,
    Aggregator,
    PreAggregator,
    aggregate,
    aggregate_rows,
    aggregator,
    pre_aggregator,
    weighting_aggregator,
    weighting_pre_aggregator,
)
from rdpfl_sim.aggregators.coordinatewise import meamed, mean, median, trimmed_mean
from rdpfl_sim.aggregators.iterative import centred_clipping, geometric_median
from rdpfl_sim.aggregators.preaggregators import arc, bucketing, clipping, nnm
from rdpfl_sim.aggregators.selection import caf, krum, mda, monna, multi_krum, smea
from rdpfl_sim.components.registry import import_modules

__all__ = [
    "AGGREGATORS",
    "PRE_AGGREGATORS",
    "Aggregation",
    "Aggregator",
    "PreAggregator",
    "aggregate",
    "aggregate_rows",
    "aggregator",
    "arc",
    "bucketing",
    "caf",
    "centred_clipping",
    "clipping",
    "geometric_median",
    "krum",
    "mda",
    "meamed",
    "mean",
    "median",
    "monna",
    "multi_krum",
    "nnm",
    "pre_aggregator",
    "smea",
    "trimmed_mean",
    "weighting_aggregator",
    "weighting_pre_aggregator",
]

import_modules(__name__, __path__)
