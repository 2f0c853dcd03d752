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
  rdpfl-sim compare sweeps/lambda --baseline method.name=local
  rdpfl-sim compare runs/first runs/second --metric telemetry.delay_s.mean
  rdpfl-sim compare sweeps/lambda --markdown > table.md
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
        "method.name=local (default: the first)",
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
    from rdpfl_sim.reports.comparison import comparison_markdown, comparison_table
    from rdpfl_sim.sweeps.comparison.compare import compare
    from rdpfl_sim.sweeps.comparison.groups import ComparisonError, baseline_first, find_runs, group_runs

    try:
        with report_damage(", ".join(map(str, options.runs))):
            groups = group_runs(find_runs(options.runs), options.by_argument)
            if options.baseline is not None:
                groups = baseline_first(groups, options.baseline)
            comparison = compare(groups, options.metric)
            if options.markdown:
                print_plain(comparison_markdown(comparison))
            else:
                make_console().print(comparison_table(comparison))
    except (ComparisonError, ScenarioError) as error:
        raise UsageError(str(error)) from error
    return 0
