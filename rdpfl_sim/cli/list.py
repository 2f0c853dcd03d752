"""rdpfl-sim list: what is built in."""

from __future__ import annotations

import argparse
import sys

from rdpfl_sim.cli.common import BAD_INPUT, make_console

HELP = "list what is built in; of one kind with all options"
EXAMPLES = """\
examples:
  rdpfl-sim list                                  # all names
  rdpfl-sim list attack                           # of one kind, everything
  rdpfl-sim list all                              # of every kind
  rdpfl-sim list methods --markdown
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One kind, or all."""
    parser.add_argument(
        "kind",
        nargs="?",
        metavar="KIND",
        help="everything about this kind, such as attack or method, or about all",
    )
    parser.add_argument("--markdown", action="store_true", help="as a Markdown table")


def execute(options: argparse.Namespace) -> int:
    """List components with their options."""
    from rdpfl_sim.components.registry import suggest
    from rdpfl_sim.scenario.component_list import (
        broken_plugins,
        details,
        list_components,
        markdown_table,
        overview,
    )

    kinds = list_components()
    if options.kind not in (None, "all"):
        name = options.kind if options.kind in kinds else options.kind.removesuffix("s")
        if name not in kinds:
            sys.stderr.write(
                f"rdpfl-sim list: no kind is called {options.kind!r}{suggest(options.kind, kinds)}\n"
            )
            return BAD_INPUT
        kinds = {name: kinds[name]}
    if options.markdown:
        print(markdown_table(kinds))  # noqa: T201  # the command's output
        return 0
    console = make_console()
    if options.kind is not None:
        console.print(details(kinds))
    else:
        console.print(overview(kinds))
    for sentence in broken_plugins(kinds):
        console.print(f"broken: {sentence}", style="red", markup=False, highlight=False)
    if options.kind is not None:
        return 0
    console.print("\nrdpfl-sim list KIND tells what they do, and their options.", highlight=False)
    return 0
