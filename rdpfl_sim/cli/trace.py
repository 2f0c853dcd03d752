"""rdpfl-sim trace: export a run as a trace for Perfetto or Chrome."""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from rdpfl_sim.cli.common import make_console, print_plain, report_damage, require_run_folders

HELP = "export a run as a Perfetto trace, with messages as arrows"
EXAMPLES = """\
examples:
  rdpfl-sim trace runs/ring_30pct-20260101-120000
  rdpfl-sim trace runs/ring_30pct-20260101-120000 -o ring.json.gz

Open the file at https://ui.perfetto.dev or in chrome://tracing.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the run folder and the output file."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument(
        "--output",
        "-o",
        type=Path,
        metavar="FILE",
        help="output file (default: trace.json in the run folder); compressed if the name ends in .gz",
    )
    parser.add_argument("--quiet", "-q", action="store_true", help="print only the path of the trace")


def execute(options: argparse.Namespace) -> int:
    """Write the trace and print how to view it."""
    from rdpfl_sim.records.metrics import headline_moment
    from rdpfl_sim.records.reader import RunReader
    from rdpfl_sim.reports.trace import write_trace

    run: Path = options.run
    require_run_folders(run)
    RunReader(run).record_lines()  # fail before anything is written
    messages = make_console(options.quiet, stderr=True)
    output: Path = options.output or run / "trace.json"
    with messages.status(f"reading {run}") as status, _open_output(output) as file, report_damage(run):
        num_arrows = write_trace(
            RunReader(run).record_lines,
            RunReader(run).read_topology(),
            run.resolve().name,
            file,
            lambda num: status.update(f"reading {run}: {num:,} records"),
            headline_moment(RunReader(run).read_scenario()),
        )
    if num_arrows == 0:
        messages.print("the trace has no arrows: no delivered message was recorded (output.message_events)")
    messages.print(
        "Open it in chrome://tracing or at https://ui.perfetto.dev, which does not upload the file."
    )
    print_plain(output)
    return 0


@contextmanager
def _open_output(path: Path) -> Iterator[BinaryIO]:
    """Open a file that appears only when it is complete; compress it if its name ends in .gz."""
    from rdpfl_sim.files import open_atomic

    with open_atomic(path) as file:
        if path.suffix != ".gz":
            yield file
            return
        with gzip.GzipFile(path.name, "wb", fileobj=file) as compressed:
            yield cast("BinaryIO", compressed)
