"""The public names that a plug-in needs.

A plug-in is a function or class with the decorator of its kind. Its keyword-only parameters are its TOML
options.

    from rdpfl_sim.plugins import Positive, View, attack

    @attack(needs="honest")
    def drag(view: View, *, strength: Positive = 2.0) -> Tensor:
        return -strength * view.honest.mean(dim=0)

In a script, the decorator is enough. An installed package also lists the component in the entry-point group
of its kind, such as `rdpfl_sim.attack`, so that every process finds it.
"""

from __future__ import annotations

from rdpfl_sim.aggregators import (
    aggregator,
    pre_aggregator,
    weighting_aggregator,
    weighting_pre_aggregator,
)
from rdpfl_sim.attacks import View, attack
from rdpfl_sim.attacks.equivocation import equivocation
from rdpfl_sim.components.options import (
    ClientSet,
    Count,
    Doc,
    Fraction,
    NonNegative,
    NonNegativeInt,
    Positive,
    PositiveFraction,
    Probability,
    client_ids,
)
from rdpfl_sim.errors import OptionError
from rdpfl_sim.execution.executor import Executor, executor
from rdpfl_sim.learning.datasets.dataset import Dataset, data
from rdpfl_sim.learning.models import model
from rdpfl_sim.learning.partition import partition
from rdpfl_sim.learning.training import learning_rate_schedule
from rdpfl_sim.methods import method
from rdpfl_sim.methods.base import (
    ClientView,
    Diagnostics,
    Inbox,
    Layer,
    MessageStats,
    Method,
    Outgoing,
    Payload,
    RunInfo,
    State,
    Trained,
    TrainingTask,
)
from rdpfl_sim.methods.gossip import Gossip, ModelExchange, distances
from rdpfl_sim.randomness import Streams
from rdpfl_sim.vectors import square_root
from rdpfl_sim.world.adversary.placement import placement
from rdpfl_sim.world.adversary.schedules import ScheduleView, attack_schedule
from rdpfl_sim.world.adversary.timing import ScheduledMessage, TimingView, timing_attack
from rdpfl_sim.world.compute_time import compute
from rdpfl_sim.world.faults.crash import Crash
from rdpfl_sim.world.faults.fault import Condition, End, Fault, FaultContext, FaultTarget, Start, fault
from rdpfl_sim.world.faults.join_and_leave import Absence, Leave
from rdpfl_sim.world.faults.link_outage import LinkOutage
from rdpfl_sim.world.faults.partition import Partition
from rdpfl_sim.world.faults.slow_down import SlowDown
from rdpfl_sim.world.faults.topology_change import TopologyChange
from rdpfl_sim.world.kernel import Kernel
from rdpfl_sim.world.network.bandwidth import Bandwidth, bandwidth
from rdpfl_sim.world.network.latency import geography, latency
from rdpfl_sim.world.network.links import Link, loss
from rdpfl_sim.world.network.topology import topology
from rdpfl_sim.world.network.transport import Transport, transport
from rdpfl_sim.world.staleness import Staleness, staleness
from rdpfl_sim.world.waiting import Wait, wait

__all__ = [
    "Absence",
    "Bandwidth",
    "ClientSet",
    "ClientView",
    "Condition",
    "Count",
    "Crash",
    "Dataset",
    "Diagnostics",
    "Doc",
    "End",
    "Executor",
    "Fault",
    "FaultContext",
    "FaultTarget",
    "Fraction",
    "Gossip",
    "Inbox",
    "Kernel",
    "Layer",
    "Leave",
    "Link",
    "LinkOutage",
    "MessageStats",
    "Method",
    "ModelExchange",
    "NonNegative",
    "NonNegativeInt",
    "OptionError",
    "Outgoing",
    "Partition",
    "Payload",
    "Positive",
    "PositiveFraction",
    "Probability",
    "RunInfo",
    "ScheduleView",
    "ScheduledMessage",
    "SlowDown",
    "Staleness",
    "Start",
    "State",
    "Streams",
    "TimingView",
    "TopologyChange",
    "Trained",
    "TrainingTask",
    "Transport",
    "View",
    "Wait",
    "aggregator",
    "attack",
    "attack_schedule",
    "bandwidth",
    "client_ids",
    "compute",
    "data",
    "distances",
    "equivocation",
    "executor",
    "fault",
    "geography",
    "latency",
    "learning_rate_schedule",
    "loss",
    "method",
    "model",
    "partition",
    "placement",
    "pre_aggregator",
    "square_root",
    "staleness",
    "timing_attack",
    "topology",
    "transport",
    "wait",
    "weighting_aggregator",
    "weighting_pre_aggregator",
]
