"""rdpfl-sim compare: compare runs, paired by seed."""

from __future__ import annotations

import argparse
from pathlib import Path

from rdpfl_sim.cli.common import UsageError, make_console, print_plain, report_damage
from rdpfl_sim.errors import ScenarioError

HELP = "compare runs, paired by seed"
EXAMPLES = """\
examples:
  rdpfl-sim compare runs/first runs/second
  rdpfl-sim compare sweeps/lambda --baseline method=Mean
  rdpfl-sim compare runs/first runs/second --metric telemetry.delay_s.mean
  rdpfl-sim compare sweeps/lambda --markdown > table.md

Without --baseline, the baseline is the first RUN, or the oldest run in it if
it is a folder of runs. In a sweep, the cases of one axis are compared within
the cases of the other axes: the axis of methods, or the last one. Its
baseline is local training, or the first case.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the runs, the baseline and the metrics."""
    parser.add_argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="a run folder, or a folder that contains run folders",
    )
    parser.add_argument(
        "--baseline",
        metavar="WHICH",
        help="the group to compare with: a label from the output, a run folder, or a setting such as "
        "method.name=local (default: the oldest run of the first RUN); in a sweep, a case such as "
        "method=local",
    )
    parser.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="PATH",
        help="also compare this number in summary.json, such as telemetry.delay_s.mean, or 'all' numbers",
    )
    parser.add_argument(
        "--by-argument",
        action="store_true",
        help="group runs by RUN argument instead of by scenario, to compare two sets of results for one "
        "scenario",
    )
    parser.add_argument("--markdown", action="store_true", help="print Markdown")


def execute(options: argparse.Namespace) -> int:
    """Group the runs, pair them by seed, and print the differences."""
    from rdpfl_sim.reports.comparison import comparison_page, sweep_comparison_page
    from rdpfl_sim.results.compare import (
        ComparisonError,
        baseline_first,
        compare,
        compare_sweep,
        find_runs,
        group_runs,
        ignored_note,
        is_planned,
    )
    from rdpfl_sim.results.sweep import Sweep

    try:
        with report_damage(", ".join(map(str, options.runs))):
            first: Path = options.runs[0]
            for note in [note for folder in options.runs for note in ignored_note(folder)]:
                make_console(stderr=True).print(note, markup=False)
            if len(options.runs) == 1 and not options.by_argument and is_planned(first):
                found = compare_sweep(Sweep(first), options.baseline, options.metric)
                page = sweep_comparison_page(found)
            else:
                groups = group_runs(find_runs(options.runs), options.by_argument)
                if options.baseline is not None:
                    groups = baseline_first(groups, options.baseline)
                page = comparison_page(compare(groups, options.metric))
            if options.markdown:
                print_plain(page.markdown())
            else:
                make_console().print(page.terminal())
    except (ComparisonError, ScenarioError) as error:
        raise UsageError(str(error)) from error
    return 0
