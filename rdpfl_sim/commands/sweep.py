"""rdpfl-sim sweep: many scenarios, and their tables."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from rdpfl_sim.commands.common import FAILED, add_overrides, count, make_console

HELP = "run what is missing of a sweep, and print its tables"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A sweep, its scale, and how to run it."""
    parser.add_argument("file", type=Path, help="a sweep, in TOML")
    add_overrides(parser, "override the base scenario")
    parser.add_argument("--profile", help="a scaled-down version that the file defines")
    parser.add_argument("--workers", type=count, default=os.cpu_count() or 1, help="runs at a time")
    parser.add_argument(
        "--output", type=Path, default=Path("sweeps"), metavar="FOLDER", help="where to (default: sweeps)"
    )
    parser.add_argument("--quiet", "-q", action="store_true", help="print only the sweep's folder")


def execute(options: argparse.Namespace) -> int:
    """Run what is missing, then write results.csv and the tables."""
    console = make_console(quiet=options.quiet)
    with console.status("building the sweep"):
        from rdpfl_sim.records.folder import write_atomically
        from rdpfl_sim.report.sweeps import SweepProgress, sweep_table
        from rdpfl_sim.sweeps import results, tables
        from rdpfl_sim.sweeps.engine import missing, run_in_processes
        from rdpfl_sim.sweeps.plan import Sweep

        planned = Sweep.load(options.file, options.set)
        runs = planned.runs(options.profile)
    output = options.output / "-".join(filter(None, (planned.name, options.profile)))
    todo = missing(runs, output)
    with SweepProgress(console, len(runs), len(runs) - len(todo)) as progress:
        run_in_processes(todo, output, options.workers, progress)
    found = results.read(runs, output)
    results.write_csv(output / "results.csv", found)
    shown = tables.tables(planned, found)
    write_atomically(output / "tables.md", tables.markdown_page(shown).encode())
    write_atomically(output / "tables.tex", tables.latex_page(shown).encode())
    for table in shown:
        console.print(sweep_table(table, console.width))
    print(output)  # noqa: T201  # also with --quiet: scripts read it
    return FAILED if progress.failures else 0
