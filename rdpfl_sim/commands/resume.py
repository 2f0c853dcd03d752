"""rdpfl-sim resume: go on with a run that was interrupted, killed or has crashed."""

from __future__ import annotations

import argparse
from pathlib import Path

from rdpfl_sim.commands.common import make_console, uncollected
from rdpfl_sim.commands.run import show

HELP = "go on with a run that was interrupted or killed"
EXAMPLES = """\
examples:
  rdpfl-sim resume runs/ring_30pct-20260101-120000
  rdpfl-sim resume -q runs/ring_30pct-20260101-120000
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A run folder."""
    parser.add_argument("file", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument("--quiet", "-q", action="store_true", help="print only the run folder")


def execute(options: argparse.Namespace) -> int:
    """Go on with it from its last checkpoint, draw pictures, print a table."""
    console = make_console(quiet=options.quiet)
    with console.status("building the scenario"), uncollected():
        from rdpfl_sim.blueprint import Blueprint
        from rdpfl_sim.records.folder import is_complete
        from rdpfl_sim.report.terminal import make_progress, warning_lines
        from rdpfl_sim.resuming import resume, scenario_of

        folder: Path = options.file
        scenario = scenario_of(folder)
        if is_complete(folder):
            console.print("this run has come to its end; there is nothing to resume")
            print(folder)  # noqa: T201  # also with --quiet, as after a run
            return 0
        blueprint = Blueprint(scenario)
    console.print(warning_lines(blueprint.warnings))
    with make_progress(options.quiet, scenario.rounds * scenario.clients.count, console) as progress:
        result = resume(folder, progress, blueprint)
    return show(result, blueprint, console)
