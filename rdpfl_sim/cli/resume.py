"""rdpfl-sim resume: continue a run that was interrupted or killed, or that crashed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rdpfl_sim.cli.common import (
    FAILED,
    add_allow_cluster,
    gc_frozen,
    make_console,
    print_plain,
    print_warnings,
    require_run_folders,
)
from rdpfl_sim.cli.run import add_live, draw_figures, show_result

if TYPE_CHECKING:
    from rich.console import Console

    from rdpfl_sim.scenario.scenario import Scenario

HELP = "continue a run that was interrupted or killed"
EXAMPLES = """\
examples:
  rdpfl-sim resume runs/ring_30pct-20260101-120000
  rdpfl-sim resume -q runs/ring_30pct-20260101-120000
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the RUN argument and the output options."""
    parser.add_argument("file", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument("--quiet", "-q", action="store_true", help="print only the run folder")
    add_allow_cluster(parser)
    add_live(parser)


def execute(options: argparse.Namespace) -> int:
    """Continue the run from its last checkpoint, draw figures and print a table."""
    messages = make_console(options.quiet, stderr=True)
    with messages.status("building the scenario"), gc_frozen():
        require_run_folders(options.file)
        from rdpfl_sim.cli.live import LiveDashboard, make_run_progress
        from rdpfl_sim.records.reader import RunReader
        from rdpfl_sim.scenario.scenario import reject_network_access
        from rdpfl_sim.simulation.experiment import Experiment
        from rdpfl_sim.simulation.resume import resume, scenario_of

        folder: Path = options.file
        reader = RunReader(folder)
        scenario = scenario_of(folder)
        if reader.is_complete():
            experiment = None
        else:
            reject_network_access(scenario, options.allow_cluster)
            experiment = Experiment(scenario)
    if experiment is None:
        return _finish_complete_run(folder, scenario, messages)
    print_warnings([scenario], experiment.warnings, options.quiet)
    with make_run_progress(options, scenario, messages) as progress:
        if isinstance(progress, LiveDashboard):
            progress.follow(folder)
        result = resume(folder, progress, experiment, allow_cluster=options.allow_cluster)
    return show_result(result, experiment, options.quiet)


def _finish_complete_run(folder: Path, scenario: Scenario, messages: Console) -> int:
    """Remove checkpoints and draw figures, in case the run was killed after writing its summary."""
    from rdpfl_sim.reports.figures import are_up_to_date
    from rdpfl_sim.simulation.resume import remove_checkpoints

    actions, drawn = [], True
    if remove_checkpoints(folder):
        actions.append("its checkpoints were removed")
    if scenario.output.figures and not are_up_to_date(folder):
        drawn = draw_figures(folder, messages)
        actions += ["its figures were drawn"] if are_up_to_date(folder) else []
    messages.print(f"this run is already complete; {' and '.join(actions) or 'there is nothing to resume'}")
    print_plain(folder)
    return 0 if drawn else FAILED
