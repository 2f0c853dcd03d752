"""rdpfl-sim plot: draw a metric of a sweep over an axis, as a figure for a paper."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from rdpfl_sim.cli.common import UsageError, make_console, number_parser, print_plain, report_damage
from rdpfl_sim.errors import RunError

WIDTHS = (3.4, 7.0)
HELP = "draw a metric of a sweep over an axis, as PNG and PDF"
EXAMPLES = """\
examples:
  rdpfl-sim plot sweeps/lambda --x method.lambda --by method
  rdpfl-sim plot sweeps/loss --x network.loss.probability -o loss.pdf
  rdpfl-sim plot sweeps/attacks --x attack --by method --where rounds=50

Lines and bands are means and 95 % intervals over seeds (Student's t). A scale
is logarithmic if its values are positive and span two decades or more.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the sweep, its variables and the output."""
    parser.add_argument(
        "folder", type=Path, metavar="SWEEP", help="a sweep folder, or a folder that contains run folders"
    )
    parser.add_argument(
        "--x",
        required=True,
        metavar="NAME",
        help="horizontal axis: an axis of the sweep, a path in the scenario such as "
        "network.loss.probability, or a number in summary.json",
    )
    parser.add_argument(
        "--y",
        metavar="PATH",
        help="vertical axis: a number in summary.json (default: mean personal accuracy of honest clients)",
    )
    parser.add_argument("--by", metavar="NAME", help="draw one line per value of this axis or path")
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="use only runs with this label of an axis or this value of a path; may be repeated",
    )
    parser.add_argument(
        "--width",
        type=number_parser(
            "from {:g} to {:g}".format(*WIDTHS), lambda width: WIDTHS[0] <= width <= WIDTHS[1]
        ),
        default=WIDTHS[0],
        metavar="INCHES",
        help="width of the figure, from {:g} (a column, default) to {:g} (a page)".format(*WIDTHS),
    )
    parser.add_argument(
        "--output",
        "-o",
        type=Path,
        metavar="FILE",
        help="output file, ending in .png or .pdf; without an ending, both (default: both, in the sweep "
        "folder)",
    )


def execute(options: argparse.Namespace) -> int:
    """Draw the figure and print the paths of its files."""
    console = make_console(stderr=True)
    with console.status("reading the sweep"):
        from rdpfl_sim.reports.chart_figure import FORMATS, chart_figure, save_chart
        from rdpfl_sim.reports.text import count_range
        from rdpfl_sim.results import Sweep
        from rdpfl_sim.results.charts import (
            SelectionError,
            check_varies,
            find_metric,
            find_variable,
            make_chart,
            select_runs,
        )
        from rdpfl_sim.results.sweep import HEADLINE

        output: Path | None = options.output
        if output is not None and output.suffix not in ("", *FORMATS):
            raise UsageError(f"--output {output}: must end in {' or '.join(FORMATS)}, or have no ending")
        try:
            sweep = Sweep(options.folder)
        except RunError as error:
            raise UsageError(str(error)) from error
        with report_damage(options.folder):
            try:
                y = find_metric(sweep, "y", options.y or HEADLINE)
                x = find_variable(sweep, "x", options.x)
                by = None if options.by is None else find_variable(sweep, "by", options.by)
                runs = select_runs(sweep, options.where)
                for argument, variable in (("x", x), ("by", by)):
                    if variable is not None:
                        check_varies(argument, variable, runs)
                chart = make_chart(sweep, runs, x, y, by)
            except SelectionError as error:
                raise UsageError(str(error)) from error
            figure = chart_figure(sweep, {"": chart}, options.width)
        name = _file_name(y, x.name, options.by, options.where)
        paths = save_chart(figure, output or options.folder / name)
    low, high = chart.nums_of_seeds
    interval = "95 % intervals (Student's t)" if high > 1 else "no intervals"
    console.print(f"means over {count_range(low, high)} {'seeds' if high > 1 else 'seed'}; {interval}")
    if chart.num_omitted:
        console.print(f"{chart.num_omitted} of {len(runs)} runs omitted: no number {y}")
    for path in paths:
        print_plain(path)
    return 0


def _file_name(y: str, x: str, by: str | None, where: Sequence[str]) -> str:
    """Return a file name without an ending that states what the figure shows.

    >>> _file_name("simulated_s", "network.loss.probability", "method", ["attack=sign flip"])
    'simulated_s-network_loss_probability-method-attack_sign_flip'
    """
    parts = [y, x, *([] if by is None else [by]), *where]
    return "-".join(re.sub(r"\W+", "_", part).strip("_") for part in parts)[:200]
