"""Where the runs of a sweep happen, as a user says it."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from rdpfl_sim.cli.common import parse_count
from rdpfl_sim.errors import Problem, ScenarioError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

    from rdpfl_sim.sweeps.plan import PlannedRun
    from rdpfl_sim.sweeps.runner import Runner


def add_runner(parser: argparse.ArgumentParser) -> None:
    """The arguments that choose an engine."""
    parser.add_argument(
        "--engine",
        choices=["processes", "ray"],
        default="processes",
        help="run in processes of this machine (default), or on a Ray cluster",
    )
    parser.add_argument(
        "--workers",
        type=parse_count,
        metavar="NUMBER",
        help="runs at a time (default: one per core, or what the cluster can take)",
    )
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="a running Ray cluster, as ray.init takes it (default: one is started here)",
    )
    parser.add_argument(
        "--gpus-per-run",
        type=share,
        metavar="SHARE",
        help="of a GPU, with --engine ray, for runs that can use one (default: 1)",
    )


def share(text: str) -> float:
    """A number above 0, up to 1."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"must be above 0 and at most 1, not {text!r}")
    return value


def make_runner(options: argparse.Namespace) -> Runner:
    """The engine that the arguments name."""
    if options.engine == "ray":
        from rdpfl_sim.sweeps.ray_runner import RayRunner

        return RayRunner(options.workers, options.address, options.gpus_per_run or 1.0)
    for option, value in (("--address", options.address), ("--gpus-per-run", options.gpus_per_run)):
        if value is not None:
            raise ScenarioError([Problem(option, "belongs to --engine ray", value)])
    from rdpfl_sim.sweeps.process_runner import ProcessRunner

    return ProcessRunner(options.workers or os.cpu_count() or 1)


def check_data_here(options: argparse.Namespace, runs: Sequence[PlannedRun]) -> None:
    """Check that this machine has the data sets of these runs, unless they run on other machines."""
    from rdpfl_sim.sweeps.checks import check_data

    if options.address is None:
        check_data(runs)


def print_repeated(missing_runs: Sequence[PlannedRun], output: Path, console: Console) -> None:
    """Print which of the missing runs were complete once."""
    from rdpfl_sim.sweeps.runner import damaged

    for folder in damaged(missing_runs, output):
        console.print(f"{folder}: summary.json is missing or damaged; this run is repeated", soft_wrap=True)
