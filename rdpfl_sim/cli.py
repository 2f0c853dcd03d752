"""The command line. Heavy imports happen inside the commands, so that `--help` answers at once."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rdpfl_sim import __version__
from rdpfl_sim.errors import ScenarioError

if TYPE_CHECKING:
    from rdpfl_sim.scenario import Scenario

BAD_INPUT = 2
INTERRUPTED = 130

EXAMPLES = """\
examples:
  rdpfl-sim scenarios/ring_30pct.toml
  rdpfl-sim scenarios/ring_30pct.toml --seed 7 --set method.lambda=0.1 --set adversary.attack=noise
  rdpfl-sim validate my.toml
  rdpfl-sim list attack
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = _parser()
    if words and not words[0].startswith("-") and words[0] not in COMMANDS:
        words.insert(0, "run")
    options = parser.parse_args(words)
    try:
        return COMMANDS[options.command](options)
    except ScenarioError as error:
        _print_problems(error, options.file)
        return BAD_INPUT
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        sys.stderr.close()
        return 0


def run(options: argparse.Namespace) -> int:
    """Run one scenario."""
    from rich.console import Console

    console = Console(quiet=options.quiet)
    with console.status("building the scenario"):
        from rdpfl_sim.blueprint import Blueprint
        from rdpfl_sim.report.figures import draw
        from rdpfl_sim.report.terminal import make_progress, summary_table, warning_lines
        from rdpfl_sim.simulation import simulate

        scenario = _scenario(options)
        blueprint = Blueprint(scenario)
    console.print(warning_lines(blueprint.neighbourhoods.warnings))
    with make_progress(options.quiet, scenario.rounds * scenario.clients.count, console) as progress:
        result = simulate(blueprint, options.output or scenario.output.folder, progress)
    assert result.folder is not None
    if scenario.output.figures:
        with console.status("drawing pictures"):
            draw(result.folder)
    console.print(summary_table(result.summary))
    print(result.folder)  # noqa: T201  # also with --quiet: scripts read it
    return INTERRUPTED if result.summary["status"] == "interrupted" else 0


def validate(options: argparse.Namespace) -> int:
    """Check a scenario, and that its graph, data and models can be built; write nothing."""
    from rich.console import Console

    from rdpfl_sim.blueprint import Blueprint
    from rdpfl_sim.report.terminal import warning_lines

    blueprint = Blueprint(_scenario(options))
    console = Console()
    console.print(warning_lines(blueprint.neighbourhoods.warnings))
    console.print(f"{options.file}: valid", markup=False, highlight=False)
    return 0


def schema(options: argparse.Namespace) -> int:
    """Print the JSON schema of scenarios, for editors that complete TOML."""
    from rdpfl_sim.scenario import Scenario

    print(json.dumps(Scenario.model_json_schema(), indent=2))  # noqa: T201  # the command's output
    return 0


def list_components(options: argparse.Namespace) -> int:
    """List what is built in, with all options."""
    from rich.console import Console

    from rdpfl_sim.registry import suggest
    from rdpfl_sim.report.catalogue import catalogue, listing, markdown

    kinds = catalogue()
    if options.kind is not None:
        name = options.kind if options.kind in kinds else options.kind.removesuffix("s")
        if name not in kinds:
            sys.stderr.write(
                f"rdpfl-sim list: no kind is called {options.kind!r}{suggest(options.kind, kinds)}\n"
            )
            return BAD_INPUT
        kinds = {name: kinds[name]}
    if options.markdown:
        print(markdown(kinds))  # noqa: T201  # the command's output
        return 0
    Console().print(listing(kinds))
    return 0


COMMANDS = {"run": run, "validate": validate, "schema": schema, "list": list_components}


def _scenario(options: argparse.Namespace) -> Scenario:
    from rdpfl_sim.scenario import Scenario

    return Scenario.load(options.file, options.set, options.seed)


def _print_problems(error: ScenarioError, file: str) -> None:
    from rich.console import Console

    from rdpfl_sim.report.terminal import problems

    Console(stderr=True).print(problems([str(problem) for problem in error.problems], str(file)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rdpfl-sim",
        description="Simulate robust decentralised personalised learning: one TOML file, one experiment.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"rdpfl-sim {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    scenario = argparse.ArgumentParser(add_help=False)
    scenario.add_argument("file", type=Path, help="a scenario, in TOML")
    scenario.add_argument(
        "--set", action="append", default=[], metavar="PATH.TO.KEY=VALUE", help="override any key"
    )
    scenario.add_argument("--seed", type=int, help="override the seed")

    command = commands.add_parser(
        "run", parents=[scenario], help="run a scenario (the default: rdpfl-sim FILE)"
    )
    command.add_argument("--quiet", "-q", action="store_true", help="print only the run folder")
    command.add_argument(
        "--output", type=Path, metavar="FOLDER", help="where run folders go (default: output.folder)"
    )
    commands.add_parser("validate", parents=[scenario], help="list everything that is wrong with a scenario")
    commands.add_parser("schema", help="print the JSON schema of scenarios, for editors")
    command = commands.add_parser("list", help="list what is built in, with all options")
    command.add_argument("kind", nargs="?", help="only this kind, such as attack or method")
    command.add_argument("--markdown", action="store_true", help="as a Markdown table")
    return parser
