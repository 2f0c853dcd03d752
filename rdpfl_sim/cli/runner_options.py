"""Command-line options that choose where the runs of a sweep are executed."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rdpfl_sim.cli.common import parse_count
from rdpfl_sim.errors import Problem, ScenarioError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from rdpfl_sim.sweeps.plan import PlannedRun
    from rdpfl_sim.sweeps.runners.runner import Runner


def add_runner(parser: argparse.ArgumentParser, output: str) -> None:
    """Add the arguments for the runner and the output folder, which defaults to `output`."""
    parser.add_argument(
        "--engine",
        choices=["processes", "ray"],
        default="processes",
        help="where to run: in processes on this machine (default) or on a Ray cluster",
    )
    parser.add_argument(
        "--workers",
        type=parse_count,
        metavar="NUMBER",
        help="number of parallel runs (default: one per core, or as many as the cluster can run)",
    )
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="address of a running Ray cluster, as for ray.init (default: start one on this machine)",
    )
    parser.add_argument(
        "--gpus-per-run",
        type=_share,
        metavar="SHARE",
        help="fraction of a GPU reserved for each run that can use a GPU; requires --engine ray (default: 1)",
    )
    parser.add_argument(
        "--output",
        "-o",
        type=Path,
        default=Path(output),
        metavar="FOLDER",
        help=f"output folder (default: {output})",
    )
    parser.add_argument("--quiet", "-q", action="store_true", help="print only the results folder")


def _share(text: str) -> float:
    """Parse a number above 0 and at most 1."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"must be above 0 and at most 1, not {text!r}")
    return value


def make_runner(options: argparse.Namespace) -> Runner:
    """Return the runner selected by the arguments."""
    if options.engine == "ray":
        from rdpfl_sim.sweeps.runners.ray_runner import RayRunner

        return RayRunner(options.workers, options.address, options.gpus_per_run or 1.0)
    for option, value in (("--address", options.address), ("--gpus-per-run", options.gpus_per_run)):
        if value is not None:
            raise ScenarioError([Problem(option, "requires --engine ray", value)])
    from rdpfl_sim.sweeps.runners.process_runner import ProcessRunner

    return ProcessRunner(options.workers or os.cpu_count() or 1)


def check_local_data(options: argparse.Namespace, runs: Sequence[PlannedRun]) -> None:
    """Check that the data sets of these runs are on this machine, unless a cluster executes them."""
    from rdpfl_sim.sweeps.checks import check_data

    if options.address is None:
        check_data(runs)


def print_repeated(missing: Sequence[PlannedRun], output: Path, messages: Console) -> None:
    """Print the runs that are repeated because their results are missing or damaged."""
    from rdpfl_sim.sweeps.plan import damaged_folders

    for folder in damaged_folders(missing, output):
        messages.print(f"{folder}: summary.json is missing or damaged; repeating the run", soft_wrap=True)
