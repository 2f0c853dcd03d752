"""rdpfl-sim sweep: run many scenarios and print their tables."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from rdpfl_sim.cli.common import (
    FAILED,
    INTERRUPTED,
    add_overrides,
    make_console,
    print_plain,
    print_precedence,
    print_warnings,
)
from rdpfl_sim.cli.runner_options import (
    add_runner,
    check_local_data,
    execute_runs,
    make_runner,
    print_failures,
)

if TYPE_CHECKING:
    from rdpfl_sim.sweeps.plan import PlannedRun
    from rdpfl_sim.sweeps.spec import SweepSpec

HELP = "execute the missing runs of a sweep and print its tables"
EXAMPLES = """\
examples:
  rdpfl-sim sweep sweeps/lambda
  rdpfl-sim sweep sweeps/lambda --profile minutes --workers 4
  rdpfl-sim sweep sweeps/lambda --set rounds=10 --output trial
  rdpfl-sim sweep rivals --engine ray --address auto

Run the command again to execute only the missing runs. The file of a sweep:

  base = "mine.toml"                      # a scenario, relative to this file
  seeds = [1, 2, 3]

  [grid]                                  # all combinations of these values
  "network.loss.probability" = [0.0, 0.2, 0.4]

  [[axis]]                                # cases that set several keys
  name = "method"
  cases = [
    { label = "R-DPFL" },
    { label = "no clipping", set = { "method.clip" = false } },
  ]
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the sweep, its profile, its runner and its output."""
    parser.add_argument("file", type=Path, metavar="FILE", help="a sweep: a TOML file, or a bundled name")
    add_overrides(parser, "change a key of the base scenario; may be repeated")
    parser.add_argument("--profile", metavar="NAME", help="run a scaled-down version defined in the file")
    parser.add_argument(
        "--all-columns",
        action="store_true",
        help="write every key of scenarios and summaries to results.csv (default: at most 60 columns)",
    )
    add_runner(parser, output="sweeps")


def execute(options: argparse.Namespace) -> int:
    """Execute the missing runs, then write results.csv and the tables."""
    messages = make_console(options.quiet, stderr=True)
    with closing(make_runner(options)) as runner:
        with messages.status("building the sweep"):
            runner.prepare()
            from rdpfl_sim.results.compare import ignored_note
            from rdpfl_sim.sweeps.plan import missing_runs, write_plan
            from rdpfl_sim.sweeps.spec import SweepSpec
            from rdpfl_sim.sweeps.strategies.grid import Grid, plan_runs

            print_precedence(options.file)
            sweep = SweepSpec.load(options.file, options.overrides)
            runs = plan_runs(sweep, options.profile)
            grid = Grid(runs)
            name = "-".join(filter(None, (sweep.name, options.profile)))
            output = options.output / name
            check_local_data(options, grid, output)
        print_warnings([run.scenario for run in runs], sweep.warnings(options.profile), options.quiet)
        write_plan(output, sweep, name, runs)
        failures, interrupted = execute_runs(grid, runner, output, messages)
    hints = _write_results(sweep, runs, output, options)
    print_failures(failures, options.quiet)
    if interrupted or failures:
        reason = "interrupted" if interrupted else f"failed: {len(failures)}"
        num_missing = len(missing_runs(runs, output))
        messages.print(
            f"{reason}; {num_missing} of {len(runs)} runs are missing; run the same command again to continue"
        )
    for note in ignored_note(output):
        messages.print(note, markup=False)
    for hint in hints:
        messages.print(hint, markup=False)
    print_plain(output)
    return INTERRUPTED if interrupted else FAILED if failures else 0


def _write_results(
    sweep: SweepSpec, runs: Sequence[PlannedRun], output: Path, options: argparse.Namespace
) -> list[str]:
    """Write and print the results of complete runs; return the names of the written files in sentences."""
    from rdpfl_sim.files import write_atomically
    from rdpfl_sim.reports.chart_figure import variable_label
    from rdpfl_sim.reports.sweep_figures import draw_sweep_figures, sweep_tables
    from rdpfl_sim.reports.text import sweep_warnings, warning_lines
    from rdpfl_sim.results import Sweep
    from rdpfl_sim.results.charts import Kind, Variable
    from rdpfl_sim.results.tables import latex_page, markdown_page, write_csv

    found = Sweep(output)
    complete = [run for run in found.runs if run.summary]
    if not complete:
        return []
    metrics = [path for layout in sweep.table for path in layout.metrics.values()]
    num_columns, num_omitted = write_csv(
        output / "results.csv", complete, None if options.all_columns else metrics
    )
    tables = found.tables()
    write_atomically(output / "tables.md", markdown_page(tables).encode())
    words = {axis: variable_label(found, Variable(axis, Kind.AXIS)) for axis in found.axes}
    write_atomically(output / "tables.tex", latex_page(tables, words).encode())
    with make_console(options.quiet, stderr=True).status("drawing the figures"):
        draw_sweep_figures(found)
    console = make_console(options.quiet)
    console.print(sweep_tables(tables, console.width))
    shown = {note for run in runs for note in run.scenario.notes}  # printed before the first run
    warnings = sweep_warnings([run.summary for run in complete], shown)
    make_console(stderr=True).print(warning_lines(warnings))
    columns = f" ({num_columns} columns; {num_omitted} more with --all-columns)" if num_omitted else ""
    return [
        f"results: tables.md, tables.tex, results.csv{columns}",
        f"figures: table-*.png, table-*.pdf; others: rdpfl-sim plot {output} --x NAME",
    ]
