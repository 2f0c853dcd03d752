"""The command line. Heavy imports happen inside the commands, so that `--help` answers at once."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from rdpfl_sim import __version__
from rdpfl_sim.errors import ScenarioError

if TYPE_CHECKING:
    from rich.console import Console

    from rdpfl_sim.scenario import Scenario

BAD_INPUT = 2
INTERRUPTED = 130
PIPE_WIDTH = 1000

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
    if not words:
        parser.print_help(sys.stderr)
        return BAD_INPUT
    if words[0] not in (*COMMANDS, "-h", "--help", "--version"):  # rdpfl-sim FILE is short for run
        _refuse_misspelt_command(parser, words[0])
        words.insert(0, "run")
    options = parser.parse_args(words)
    try:
        return COMMANDS[options.command](options)
    except ScenarioError as error:
        _print_problems(error, options.file)
        return BAD_INPUT
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # nothing more is flushed there at exit
        return 0


def run(options: argparse.Namespace) -> int:
    """Run one scenario."""
    console = _console(quiet=options.quiet)
    with console.status("building the scenario"):
        from rdpfl_sim.blueprint import Blueprint
        from rdpfl_sim.report.terminal import make_progress, summary_table, warning_lines
        from rdpfl_sim.simulation import simulate

        scenario = _scenario(options)
        blueprint = Blueprint(scenario)
    warnings = blueprint.warnings
    console.print(warning_lines(warnings))
    with make_progress(options.quiet, scenario.rounds * scenario.clients.count, console) as progress:
        result = simulate(blueprint, options.output or scenario.output.folder, progress)
    assert result.folder is not None
    if scenario.output.figures:
        _draw(result.folder, console)
    console.print(summary_table(result.summary))
    console.print(warning_lines([text for text in result.summary["warnings"] if text not in warnings]))
    print(result.folder)  # noqa: T201  # also with --quiet: scripts read it
    return INTERRUPTED if result.summary["status"] == "interrupted" else 0


def validate(options: argparse.Namespace) -> int:
    """Check a scenario, and that its graph, data and models can be built; write nothing."""
    from rdpfl_sim.blueprint import Blueprint
    from rdpfl_sim.report.terminal import warning_lines

    blueprint = Blueprint(_scenario(options))
    console = _console()
    console.print(warning_lines(blueprint.warnings))
    console.print(f"{options.file}: valid", markup=False, highlight=False)
    return 0


def schema(options: argparse.Namespace) -> int:
    """Print the JSON schema of scenarios, for editors that complete TOML."""
    from rdpfl_sim.scenario import Scenario

    print(json.dumps(Scenario.model_json_schema(), indent=2))  # noqa: T201  # the command's output
    return 0


def list_components(options: argparse.Namespace) -> int:
    """List what is built in, with all options."""
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
    _console().print(listing(kinds))
    return 0


def data(options: argparse.Namespace) -> int:
    """Fetch a data set, unless it is there already."""
    with _console(stderr=True).status("looking for the data set") as status:
        from rdpfl_sim.learning.fetching import DataError, data_folder, fetch

        def show(done: int, total: int | None, what: str) -> None:
            size = f"{done / 1e6:.0f} MB" if total is None else f"{done / 1e6:.0f} of {total / 1e6:.0f} MB"
            status.update(f"fetching {what}" + (f": {size}" if done else ""))

        try:
            path = fetch(options.name, data_folder(options.folder), show)
        except DataError as error:
            sys.stderr.write(f"rdpfl-sim data: {error}\n")
            return BAD_INPUT
    print(path)  # noqa: T201  # the command's output
    return 0


def sweep(options: argparse.Namespace) -> int:
    """Run what is missing of a sweep, and print its tables."""
    console = _console(quiet=options.quiet)
    with console.status("building the sweep"):
        from rdpfl_sim.report.sweeps import SweepProgress, sweep_table
        from rdpfl_sim.sweeps import results
        from rdpfl_sim.sweeps.engine import missing, run_in_processes
        from rdpfl_sim.sweeps.plan import Sweep

        planned = Sweep.load(options.file, options.set)
        runs = planned.runs(options.profile)
    output = options.output / "-".join(filter(None, (planned.name, options.profile)))
    todo = missing(runs, output)
    with SweepProgress(console, len(runs), len(runs) - len(todo)) as progress:
        run_in_processes(todo, output, options.workers, progress)
    found = results.read(runs, output)
    results.write_csv(output / "results.csv", found)
    tables = results.tables(planned, found)
    text = "\n\n".join(f"## {table.title}\n\n{results.markdown(table)}" for table in tables)
    (output / "tables.md").write_text(f"{text}\n", encoding="utf-8")
    (output / "tables.tex").write_text("\n\n".join(map(results.latex, tables)) + "\n", encoding="utf-8")
    for table in tables:
        console.print(sweep_table(table))
    print(output)  # noqa: T201  # also with --quiet: scripts read it
    return 1 if progress.failures else 0


COMMANDS = {
    "run": run,
    "validate": validate,
    "schema": schema,
    "list": list_components,
    "data": data,
    "sweep": sweep,
}


def _scenario(options: argparse.Namespace) -> Scenario:
    from rdpfl_sim.scenario import Scenario

    return Scenario.load(options.file, options.set, options.seed)


def _console(quiet: bool = False, stderr: bool = False) -> Console:
    """A terminal as wide as it is; in a pipe lines are not wrapped, so that they can be searched."""
    from rich.console import Console

    console = Console(quiet=quiet, stderr=stderr)
    return console if console.is_terminal else Console(quiet=quiet, stderr=stderr, width=PIPE_WIDTH)


def _draw(folder: Path, console: Console) -> None:
    from rdpfl_sim.report.figures import draw

    with console.status("drawing pictures"):
        try:
            draw(folder)
        except KeyboardInterrupt:
            console.print("no pictures: interrupted")


def _print_problems(error: ScenarioError, file: Path) -> None:
    from rdpfl_sim.report.terminal import problems

    _console(stderr=True).print(problems([str(problem) for problem in error.problems], str(file)))


def _refuse_misspelt_command(parser: argparse.ArgumentParser, word: str) -> None:
    """An error if the word is neither a file nor an option but nearly a command."""
    near = get_close_matches(word, COMMANDS, n=1)
    if near and not Path(word).exists():
        parser.error(f"no command or scenario is called {word!r}; did you mean {near[0]!r}?")


def _count(text: str) -> int:
    """A whole number of at least 1, or an error of the command line."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rdpfl-sim",
        description="Simulate robust decentralised personalised learning: one TOML file, one experiment.",
        usage="rdpfl-sim FILE [options]  or  rdpfl-sim COMMAND ...",
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
    command = commands.add_parser("data", help="fetch a data set, such as cifar10, into a cache")
    command.add_argument("name", help="cifar10, cifar100, mnist or fashion_mnist")
    command.add_argument("--folder", help="where to (default: $RDPFL_SIM_DATA, or ~/.cache/rdpfl-sim)")
    command = commands.add_parser("sweep", help="run what is missing of a sweep, and print its tables")
    command.add_argument("file", type=Path, help="a sweep, in TOML")
    command.add_argument(
        "--set", action="append", default=[], metavar="PATH.TO.KEY=VALUE", help="override the base scenario"
    )
    command.add_argument("--profile", help="a scaled-down version that the file defines")
    command.add_argument("--workers", type=_count, default=os.cpu_count() or 1, help="runs at a time")
    command.add_argument(
        "--output", type=Path, default=Path("sweeps"), metavar="FOLDER", help="where to (default: sweeps)"
    )
    command.add_argument("--quiet", "-q", action="store_true", help="print only the sweep's folder")
    command = commands.add_parser("list", help="list what is built in, with all options")
    command.add_argument("kind", nargs="?", help="only this kind, such as attack or method")
    command.add_argument("--markdown", action="store_true", help="as a Markdown table")
    return parser
