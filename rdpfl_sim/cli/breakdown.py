"""rdpfl-sim breakdown: find the parameter value at which collaboration stops paying off."""

from __future__ import annotations

import argparse
import re
import sys
from contextlib import closing
from pathlib import Path

from rdpfl_sim.cli.common import (
    FAILED,
    INTERRUPTED,
    add_overrides,
    make_console,
    number_parser,
    print_plain,
    print_warnings,
)
from rdpfl_sim.cli.runner_options import (
    add_runner,
    check_local_data,
    execute_runs,
    make_runner,
    print_failures,
)

MAX_SEEDS = 10_000
HELP = "find the value at which collaboration stops paying off"
EXAMPLES = """\
examples:
  rdpfl-sim breakdown ring_30pct --vary adversary.fraction
  rdpfl-sim breakdown ring_30pct --vary network.loss.probability
  rdpfl-sim breakdown ring_30pct --vary adversary.attack.sigma \\
      --from 0.5 --to 50 --seeds 1,2,3 --margin 0.01
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the scenario, the parameter, its range, and the seeds."""
    parser.add_argument("file", type=Path, metavar="FILE", help="a scenario: a TOML file, or a bundled name")
    parser.add_argument(
        "--vary",
        dest="path",
        required=True,
        metavar="PATH",
        help="the number to vary, such as adversary.fraction",
    )
    parser.add_argument(
        "--from",
        dest="start",
        type=number_parser("a finite number"),
        metavar="VALUE",
        help="start of the range (default: 0 for attacker fractions and probabilities, otherwise the value "
        "in the scenario)",
    )
    parser.add_argument(
        "--to",
        dest="end",
        type=number_parser("a finite number"),
        metavar="VALUE",
        help="end of the range (default: 0.5 for attacker fractions, 0.9 for probabilities, otherwise "
        "ten times the value in the scenario)",
    )
    parser.add_argument(
        "--tolerance",
        type=number_parser("above 0", lambda value: value > 0),
        metavar="WIDTH",
        help="precision of the result (default: 1/32 of the range, or exact for attacker fractions and "
        "whole numbers)",
    )
    parser.add_argument(
        "--seeds",
        type=_seeds,
        default=[1, 2, 3, 4, 5],
        metavar="LIST",
        help="number of seeds, such as 5, or a list, such as 1,2,3 (default: 5)",
    )
    parser.add_argument(
        "--margin",
        type=number_parser("above 0", lambda value: value > 0),
        default=0.0,
        metavar="ACCURACY",
        help="how far accuracy must fall below local training to count as a breakdown (default: 0)",
    )
    parser.add_argument(
        "--metric",
        default="accuracy.honest.personal.mean",
        metavar="PATH",
        help="an accuracy of honest clients in summary.json (default: accuracy.honest.personal.mean)",
    )
    add_overrides(parser, "change a key; may be repeated")
    add_runner(parser, output="breakdowns")


def execute(options: argparse.Namespace) -> int:
    """Bisect for all seeds together, execute missing runs, then write and print the result."""
    console, messages = make_console(options.quiet), make_console(options.quiet, stderr=True)
    with closing(make_runner(options)) as runner:
        with messages.status("building the scenario"):
            runner.prepare()
            from rdpfl_sim.reports.breakdown import conclusion, draw_breakdown, points_table, search_header
            from rdpfl_sim.scenario.scenario import Scenario
            from rdpfl_sim.sweeps.strategies.bisection import (
                Bisection,
                make_spec,
                reject_lost_overrides,
                write_breakdown,
            )

            reject_lost_overrides(options.file, options.overrides, options.path, options.start, options.end)
            spec = make_spec(
                Scenario.load(options.file, options.overrides),
                options.path,
                options.start,
                options.end,
                options.seeds,
                options.tolerance,
                options.margin,
                options.metric,
            )
            bisection = Bisection(spec)
            output = options.output / f"{spec.base.name}-{spec.path}"
            check_local_data(options, bisection, output)
        print_warnings([spec.base], [])
        console.print(search_header(spec))
        failures, interrupted = execute_runs(bisection, runner, output, messages)
    print_failures(failures, options.quiet)
    if interrupted:
        sys.stderr.write(
            f"interrupted; complete runs are kept in {output}; run the same command again to continue\n"
        )
        return INTERRUPTED
    breakdown = bisection.result()
    write_breakdown(breakdown, output)
    if breakdown.crossings:
        draw_breakdown(breakdown, output / "breakdown.png")
        console.print(points_table(breakdown))
    console.print(conclusion(breakdown))
    print_plain(output)
    return FAILED if failures else 0


def _seeds(text: str) -> list[int]:
    """Parse a number of seeds, or a list of seeds."""
    words = [word.strip() for word in text.removesuffix(",").split(",")]
    if not all(re.fullmatch("[0-9]{1,18}", word) for word in words) or text.strip() == "0":
        raise argparse.ArgumentTypeError(f"must be a number of seeds, or a list such as 1,2,3, not {text!r}")
    seeds = [int(word) for word in words]
    if "," not in text and seeds[0] > MAX_SEEDS:
        raise argparse.ArgumentTypeError(f"must be at most {MAX_SEEDS:,} seeds, not {text!r}")
    if len(set(seeds)) < len(seeds):
        raise argparse.ArgumentTypeError(f"must contain each seed only once, not {text!r}")
    return seeds if "," in text else [*range(1, seeds[0] + 1)]
