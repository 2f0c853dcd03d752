"""rdpfl-sim run: run a scenario."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rdpfl_sim.cli.common import (
    FAILED,
    INTERRUPTED,
    add_scenario,
    error_text,
    gc_frozen,
    load_scenario,
    make_console,
    print_plain,
    print_warnings,
    report_damage,
)

if TYPE_CHECKING:
    from rich.console import Console

    from rdpfl_sim.simulation.experiment import Experiment
    from rdpfl_sim.simulation.simulation import Result

HELP = "run a scenario (the default: rdpfl-sim FILE)"
EXAMPLES = """\
examples:
  rdpfl-sim mine.toml                             # short for run
  rdpfl-sim ring_30pct                            # a bundled scenario
  rdpfl-sim run ring_30pct --live                 # with a dashboard
  rdpfl-sim run ring_30pct --seed 7 --set method.lambda=0.3
  rdpfl-sim run ring_30pct --set adversary.attack=sign_flip
  rdpfl-sim run ring_30pct --set "method={name = 'balance'}"
  rdpfl-sim run lossy_links -q                    # print only the run folder
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the scenario, the output folder and the display."""
    add_scenario(parser)
    parser.add_argument("--quiet", "-q", action="store_true", help="print only the run folder")
    parser.add_argument(
        "--output",
        "-o",
        type=Path,
        metavar="FOLDER",
        help="parent of the run folder (default: output.folder)",
    )
    add_live(parser)


def add_live(parser: argparse.ArgumentParser) -> None:
    """Add the argument for the dashboard."""
    parser.add_argument(
        "--live", action="store_true", help="show a dashboard during the run (only in a terminal)"
    )


def execute(options: argparse.Namespace) -> int:
    """Run the scenario, draw figures and print a table."""
    messages = make_console(options.quiet, stderr=True)
    with messages.status("building the scenario"), gc_frozen():
        from rdpfl_sim.cli.live import LiveDashboard, make_run_progress
        from rdpfl_sim.scenario.overrides import parse_override, reject_overrides
        from rdpfl_sim.simulation.experiment import Experiment
        from rdpfl_sim.simulation.simulation import simulate

        scenario = load_scenario(options)
        if options.output is not None:
            overrides = dict(map(parse_override, options.overrides))
            reject_overrides(overrides, {"output.folder": "--output replaces it"})
        experiment = Experiment(scenario)
    print_warnings([scenario], experiment.warnings, options.quiet)
    folder = options.output or scenario.output.folder
    with make_run_progress(options, scenario, messages) as progress:
        on_folder = progress.follow if isinstance(progress, LiveDashboard) else None
        result = simulate(experiment, folder, progress, on_folder)
    return show_result(result, experiment, options.quiet)


def show_result(result: Result, experiment: Experiment, quiet: bool) -> int:
    """Draw figures, print a table and return the exit code."""
    from rdpfl_sim.records.status import RunStatus
    from rdpfl_sim.reports.run_summary import summary_table
    from rdpfl_sim.reports.text import warning_lines

    assert result.folder is not None
    summary, messages = result.summary, make_console(quiet, stderr=True)
    drawn = not experiment.scenario.output.figures or draw_figures(result.folder, messages)
    make_console(quiet).print(summary_table(summary))
    messages.print(warning_lines([text for text in summary["warnings"] if text not in experiment.warnings]))
    if summary["status"] == RunStatus.INTERRUPTED:
        messages.print(f"resume with: rdpfl-sim resume {shlex.quote(str(result.folder))}", markup=False)
    else:
        report = f"rdpfl-sim report {shlex.quote(str(result.folder))} --open"
        messages.print(f"figures: curves.png, topology.png; interactive report: {report}", markup=False)
    print_plain(result.folder)
    if summary["status"] == RunStatus.INTERRUPTED:
        return INTERRUPTED
    return 0 if drawn else FAILED


def draw_figures(folder: Path, messages: Console) -> bool:
    """Draw the figures of a run; print a message and return False if that fails."""
    from rdpfl_sim.reports.figures import draw

    with messages.status("drawing figures"):
        try:
            with report_damage(folder):
                draw(folder)
        except KeyboardInterrupt:
            messages.print("interrupted: no figures were drawn")
        except OSError as error:
            sys.stderr.write(f"the run is complete, but drawing its figures failed: {error_text(error)}\n")
            return False
    return True
