"""A package `odds` with a component `odd` of any kind, and a scenario that uses it."""

from __future__ import annotations

from typing import Any

HEAD = """
from __future__ import annotations
import itertools
import random
import networkx as nx
import numpy as np
import torch
from torch import nn
from rdpfl_sim.plugins import *
from rdpfl_sim.world.kernel import Call
calls = []
counter = itertools.count(1)
"""

ADVERSARY = {"fraction": 0.2}


def using(kind: str) -> dict[str, Any]:
    """Return a scenario that uses the component `odd` of this kind."""
    match kind:
        case "aggregator":
            return {"method": {"name": "direct", "aggregator": "odd"}}
        case "pre_aggregator":
            return {"method": {"name": "direct", "pre_aggregators": ["odd"]}}
        case "attack" | "equivocation":
            return {"adversary": {**ADVERSARY, "attack": "sign_flip", kind: "odd"}}
        case "timing_attack":
            return {"adversary": {**ADVERSARY, "timing": "odd"}}
        case "attack_schedule":
            return {"adversary": {**ADVERSARY, "attack": "sign_flip", "schedule": "odd"}}
        case "placement":
            return {"adversary": {**ADVERSARY, "attack": "sign_flip", "placement": "odd"}}
        case "latency" | "loss" | "geography" | "bandwidth" | "transport":
            return {"network": {kind: "odd"}, "timing": {"wait": {"name": "all", "timeout_s": 9.0}}}
        case "compute" | "wait" | "staleness":
            return {"timing": {kind: "odd"}}
        case "learning_rate_schedule":
            return {"training": {"schedule": "odd"}}
        case "fault":
            return {"faults": ["odd"], "timing": {"wait": {"name": "all", "timeout_s": 9.0}}}
        case "executor":
            return {"execution": {"executor": "odd"}}
        case _:
            return {kind: "odd"}


PATHS = {
    **{kind: f"network.{kind}" for kind in ("latency", "loss", "geography", "bandwidth", "transport")},
    **{kind: f"timing.{kind}" for kind in ("compute", "wait", "staleness")},
    **{kind: f"adversary.{kind}" for kind in ("attack", "equivocation", "placement")},
    "learning_rate_schedule": "training.schedule",
    "timing_attack": "adversary.timing",
    "attack_schedule": "adversary.schedule",
    "aggregator": "method.aggregator",
    "pre_aggregator": "method.pre_aggregators[0]",
    "fault": "faults[0]",
    "executor": "execution.executor",
}

METHOD = """
@method
class odd(Gossip):
    def __init__(self, run): pass
    def shares(self, x, inbox, clients): return inbox.weights / (inbox.num_messages + 1)
"""
