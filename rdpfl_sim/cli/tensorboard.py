"""rdpfl-sim tensorboard: export runs to TensorBoard."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path

from rdpfl_sim.cli.common import make_console, print_plain, report_damage, require_run_folders
from rdpfl_sim.errors import RunError

HELP = "export the metrics of runs to TensorBoard"
EXAMPLES = """\
examples:
  rdpfl-sim tensorboard runs/first runs/second
  rdpfl-sim tensorboard runs/first -o board

Then start: tensorboard --logdir tensorboard
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the run folders and the output folder."""
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument(
        "--output",
        "-o",
        type=Path,
        default=Path("tensorboard"),
        metavar="FOLDER",
        help="output folder, with one folder per run (default: tensorboard)",
    )
    parser.add_argument("--quiet", "-q", action="store_true", help="print only the output folder")


def execute(options: argparse.Namespace) -> int:
    """Write the time series of each run and print how to view them."""
    if find_spec("tensorboard") is None:
        raise RunError("TensorBoard is not installed: pip install 'rdpfl-sim[tensorboard]'")
    from rdpfl_sim.records.reader import RunReader
    from rdpfl_sim.reports.tensorboard import read_series, write_series

    require_run_folders(*options.runs)
    messages = make_console(options.quiet, stderr=True)
    for run in options.runs:
        folder = options.output / run.resolve().name
        with messages.status(f"reading {run}") as status, report_damage(run):
            reader = RunReader(run)
            series = read_series(reader.record_lines(), reader.read_topology())
            status.update(f"writing {folder}")
            options.output.mkdir(parents=True, exist_ok=True)
            write_series(series, folder)
    messages.print(f"view with: tensorboard --logdir {options.output}", markup=False, highlight=False)
    print_plain(options.output)
    return 0
