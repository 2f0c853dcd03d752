"""The options that choose where many runs are executed, and their execution with a progress display."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rdpfl_sim.cli.common import number_parser, parse_count
from rdpfl_sim.errors import Problem, ScenarioError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from rdpfl_sim.sweeps.runner import Runner
    from rdpfl_sim.sweeps.strategies import Strategy


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
        type=number_parser("above 0 and at most 1", lambda share: 0 < share <= 1),
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


def make_runner(options: argparse.Namespace) -> Runner:
    """Return the runner selected by the arguments."""
    if options.engine == "ray":
        from rdpfl_sim.sweeps.ray_runner import RayRunner

        return RayRunner(options.workers, options.address, options.gpus_per_run or 1.0)
    for option, value in (("--address", options.address), ("--gpus-per-run", options.gpus_per_run)):
        if value is not None:
            raise ScenarioError([Problem(option, "requires --engine ray", value)])
    from rdpfl_sim.sweeps.process_runner import ProcessRunner

    return ProcessRunner(options.workers or os.cpu_count() or 1)


def check_local_data(options: argparse.Namespace, strategy: Strategy, output: Path) -> None:
    """Check that the data sets of the first runs are on this machine, unless a cluster executes them."""
    from rdpfl_sim.sweeps.plan import check_data, missing_runs

    if options.address is None:
        check_data(missing_runs(strategy.next_runs(), output))


def execute_runs(
    strategy: Strategy, runner: Runner, output: Path, messages: Console
) -> tuple[list[str], bool]:
    """Execute the missing runs of a strategy; return the failures, and whether interrupted."""
    from rdpfl_sim.reports.progress import SweepProgress
    from rdpfl_sim.sweeps.strategies import run_strategy

    progress, interrupted = SweepProgress(messages), False
    try:
        with progress:
            run_strategy(strategy, runner, output, progress)
    except KeyboardInterrupt:
        interrupted = True
    return progress.failures, interrupted


def print_failures(failures: Sequence[str], quiet: bool) -> None:
    """Print the failures of runs that a quiet progress display has not printed."""
    if quiet:
        sys.stderr.writelines(f"failed: {failure}\n" for failure in failures)
