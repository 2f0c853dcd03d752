"""Where the runs of a sweep happen, as a user says it."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from rdpfl_sim.commands.common import count
from rdpfl_sim.errors import Problem, ScenarioError

if TYPE_CHECKING:
    from rdpfl_sim.sweeps.engine import Engine


def add_engine(parser: argparse.ArgumentParser) -> None:
    """The arguments that choose an engine."""
    parser.add_argument(
        "--engine",
        choices=["processes", "ray"],
        default="processes",
        help="run in processes of this machine (default), or on a Ray cluster",
    )
    parser.add_argument(
        "--workers",
        type=count,
        metavar="NUMBER",
        help="runs at a time (default: one per core, or what the cluster can take)",
    )
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="a running Ray cluster, as ray.init takes it (default: one is started here)",
    )


def make_engine(options: argparse.Namespace) -> Engine:
    """The engine that the arguments name."""
    if options.engine == "ray":
        from rdpfl_sim.sweeps.ray_cluster import RayCluster

        return RayCluster(options.workers, options.address)
    if options.address is not None:
        raise ScenarioError([Problem("--address", "belongs to --engine ray", options.address)])
    from rdpfl_sim.sweeps.processes import Processes

    return Processes(options.workers or os.cpu_count() or 1)
