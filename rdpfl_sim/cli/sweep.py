"""rdpfl-sim sweep: many scenarios, and their tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from rdpfl_sim.cli.common import FAILED, INTERRUPTED, add_overrides, make_console, print_warnings
from rdpfl_sim.cli.runner_options import add_runner, check_data_here, make_runner, print_repeated

if TYPE_CHECKING:
    from rich.console import Console

    from rdpfl_sim.sweeps.plan import PlannedRun, SweepSpec

HELP = "run what is missing of a sweep, and print its tables"
EXAMPLES = """\
examples:
  rdpfl-sim sweep scenarios/sweeps/lambda.toml
  rdpfl-sim sweep scenarios/sweeps/lambda.toml --profile minutes --workers 4
  rdpfl-sim sweep scenarios/sweeps/lambda.toml --set rounds=10 --output trial
  rdpfl-sim sweep scenarios/rivals.toml --engine ray --address auto

Started again, it runs only what is missing.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A sweep, its scale, and how to run it."""
    parser.add_argument("file", type=Path, metavar="FILE", help="a sweep, in TOML")
    add_overrides(parser, "change a key of the base scenario; can be given again")
    parser.add_argument("--profile", metavar="NAME", help="a scaled-down version that the file defines")
    add_runner(parser)
    parser.add_argument(
        "--output", type=Path, default=Path("sweeps"), metavar="FOLDER", help="where to (default: sweeps)"
    )
    parser.add_argument("--quiet", "-q", action="store_true", help="print only the sweep's folder")


def execute(options: argparse.Namespace) -> int:
    """Run what is missing, then write results.csv and the tables."""
    console = make_console(quiet=options.quiet)
    with closing(make_runner(options)) as engine:
        with console.status("building the sweep"):
            engine.prepare()
            from rdpfl_sim.reports.sweep_progress import SweepProgress
            from rdpfl_sim.sweeps.checks import check_metrics
            from rdpfl_sim.sweeps.plan import SweepSpec
            from rdpfl_sim.sweeps.results import write_plan
            from rdpfl_sim.sweeps.runner import missing

            planned = SweepSpec.load(options.file, options.set)
            check_metrics(planned)
            runs = planned.runs(options.profile)
            name = "-".join(filter(None, (planned.name, options.profile)))
            output = options.output / name
            todo = missing(runs, output)
            check_data_here(options, todo)
        print_warnings([run.scenario for run in runs], [], console)
        write_plan(output / "sweep.json", planned, name, runs)
        print_repeated(todo, output, console)
        interrupted = False
        with SweepProgress(console, len(runs), len(runs) - len(todo)) as progress:
            try:
                if todo:
                    engine.run(todo, output, progress)
            except KeyboardInterrupt:
                interrupted = True
    _report(planned, runs, output, console)
    if options.quiet:  # then they have not been told yet
        sys.stderr.writelines(f"failed: {failure}\n" for failure in progress.failures)
    if interrupted or progress.failures:
        reason = "interrupted" if interrupted else f"failed: {len(progress.failures)}"
        num_missing = len(missing(runs, output))
        console.print(
            f"{reason}; {num_missing} of {len(runs)} runs are missing: the same command runs only those"
        )
    print(output)  # noqa: T201  # also with --quiet: scripts read it
    return INTERRUPTED if interrupted else FAILED if progress.failures else 0


def _report(planned: SweepSpec, runs: Sequence[PlannedRun], output: Path, console: Console) -> None:
    """Write and print what is known by now."""
    from rdpfl_sim.records.run_folder import write_atomically
    from rdpfl_sim.reports.heatmap import draw_table
    from rdpfl_sim.reports.sweep_table import sweep_table
    from rdpfl_sim.sweeps import results, tables

    found = results.read(runs, output)
    if not found:
        return
    results.write_csv(output / "results.csv", found)
    shown = tables.tables(planned, found)
    write_atomically(output / "tables.md", tables.markdown_page(shown).encode())
    write_atomically(output / "tables.tex", tables.latex_page(shown).encode())
    with console.status("drawing the tables"):
        for number, table in enumerate(shown, start=1):
            draw_table(table, output / f"table-{number}.png")
    for table in shown:
        console.print(sweep_table(table, console.width))
