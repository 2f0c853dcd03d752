"""Faults: one module per kind, with its schedules, its effect on the world and the end of that effect."""

from rdpfl_sim.world.faults import (
    churn,
    churn_trace,
    crash,
    link_outage,
    partition,
    slow_down,
    topology_change,
)
from rdpfl_sim.world.faults.fault import FAULTS

__all__ = [
    "FAULTS",
    "churn",
    "churn_trace",
    "crash",
    "link_outage",
    "partition",
    "slow_down",
    "topology_change",
]
