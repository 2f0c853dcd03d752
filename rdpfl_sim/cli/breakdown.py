"""rdpfl-sim breakdown: from which value on clients had better train alone."""

from __future__ import annotations

import argparse
import re
import sys
from contextlib import closing
from math import isfinite
from pathlib import Path

from rdpfl_sim.cli.common import FAILED, INTERRUPTED, add_overrides, make_console, print_warnings
from rdpfl_sim.cli.runner_options import add_runner, check_data_here, make_runner, print_repeated

MAX_SEEDS = 10_000
HELP = "find the value from which on clients had better train alone"
EXAMPLES = """\
examples:
  rdpfl-sim breakdown scenarios/ring_30pct.toml --vary adversary.fraction
  rdpfl-sim breakdown scenarios/ring_30pct.toml --vary network.loss.probability
  rdpfl-sim breakdown scenarios/ring_30pct.toml --vary adversary.attack.sigma \\
      --from 0.5 --to 50 --seeds 1,2,3 --margin 0.01
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A scenario, what to vary, how finely, and over which seeds."""
    parser.add_argument("file", type=Path, metavar="FILE", help="a scenario, in TOML")
    parser.add_argument(
        "--vary", required=True, metavar="PATH", help="a number of the scenario, such as adversary.fraction"
    )
    parser.add_argument(
        "--from",
        dest="start",
        type=_number,
        metavar="VALUE",
        help="where it should hold (default: 0 for fractions of attackers and probabilities, else its value)",
    )
    parser.add_argument(
        "--to",
        dest="end",
        type=_number,
        metavar="VALUE",
        help="where not (default: 0.5 for fractions of attackers, 0.9 for probabilities, else ten times it)",
    )
    parser.add_argument(
        "--tolerance",
        type=_positive,
        metavar="WIDTH",
        help="how exactly to find it (default: 1/32 of the range; whole clients and whole numbers exactly)",
    )
    parser.add_argument(
        "--seeds",
        type=_seeds,
        default=[1, 2, 3, 4, 5],
        metavar="LIST",
        help="how many, or which: 5, or 1,2,3 (default: 5)",
    )
    parser.add_argument(
        "--margin",
        type=_positive,
        default=0.0,
        metavar="ACCURACY",
        help="how far below local training counts (default: 0)",
    )
    parser.add_argument(
        "--metric",
        default="accuracy.honest.personal.mean",
        metavar="PATH",
        help="another accuracy of honest clients in summary.json (default: accuracy.honest.personal.mean)",
    )
    add_overrides(parser, "change a key; can be given again")
    add_runner(parser)
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("breakdowns"),
        metavar="FOLDER",
        help="where to (default: breakdowns)",
    )
    parser.add_argument("--quiet", "-q", action="store_true", help="print only the folder")


def execute(options: argparse.Namespace) -> int:
    """Bisect all seeds at once, running what is missing; then a table, a picture and the answer."""
    console = make_console(quiet=options.quiet)
    engine = make_runner(options)
    with console.status("building the scenario"):
        engine.prepare()
        from rdpfl_sim.reports.breakdown import conclusion, points_table, search_header
        from rdpfl_sim.reports.breakdown_figure import draw_breakdown
        from rdpfl_sim.reports.sweep_progress import BreakdownProgress
        from rdpfl_sim.scenario.scenario import Scenario
        from rdpfl_sim.sweeps.breakdown import Search, ask, conclude, write
        from rdpfl_sim.sweeps.parameter_range import reject_lost_overrides
        from rdpfl_sim.sweeps.runner import missing

        reject_lost_overrides(options.file, options.set, options.vary, options.start, options.end)
        spec = ask(
            Scenario.load(options.file, options.set),
            options.vary,
            options.start,
            options.end,
            options.seeds,
            options.tolerance,
            options.margin,
            options.metric,
        )
        output = options.output / f"{spec.base.name}-{spec.path}"
        search = Search(spec, output)
        check_data_here(options, missing(search.wanted(), output))
    print_warnings([spec.base], [], console)
    console.print(search_header(spec))
    try:
        with closing(engine), BreakdownProgress(console) as progress:
            while wanted := search.wanted():
                todo = missing(wanted, output)
                print_repeated(todo, output, console)
                progress.expect(len(wanted) - len(todo), len(todo), search.num_later())
                engine.run(todo, output, progress)
                search.learn()
            progress.expect(0, 0, 0)
    except KeyboardInterrupt:
        sys.stderr.write(f"interrupted; what is complete is kept in {output}: start again to continue\n")
        return INTERRUPTED
    breakdown = conclude(search)
    write(breakdown, output)
    if breakdown.crossings:
        draw_breakdown(breakdown, output / "breakdown.png")
        console.print(points_table(breakdown))
    console.print(conclusion(breakdown))
    print(output)  # noqa: T201  # also with --quiet: scripts read it
    return FAILED if progress.failures else 0


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise argparse.ArgumentTypeError(f"must be a number, not {text!r}")
    return value


def _positive(text: str) -> float:
    value = _number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"must be above 0, not {text!r}")
    return value


def _seeds(text: str) -> list[int]:
    """A number of seeds, or a list of them."""
    words = [word.strip() for word in text.removesuffix(",").split(",")]
    if not all(re.fullmatch("[0-9]{1,18}", word) for word in words) or text.strip() == "0":
        raise argparse.ArgumentTypeError(f"must be a number of seeds, or seeds such as 1,2,3, not {text!r}")
    seeds = [int(word) for word in words]
    if "," not in text and seeds[0] > MAX_SEEDS:
        raise argparse.ArgumentTypeError(f"must be at most {MAX_SEEDS:,} seeds, not {text!r}")
    if len(set(seeds)) < len(seeds):
        raise argparse.ArgumentTypeError(f"a seed occurs twice in {text!r}")
    return seeds if "," in text else [*range(1, seeds[0] + 1)]
