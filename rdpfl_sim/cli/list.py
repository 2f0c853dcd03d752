"""rdpfl-sim list: show the available components."""

from __future__ import annotations

import argparse

from rdpfl_sim.cli.common import UsageError, make_console, print_plain

HELP = "list components: attacks, methods, topologies and others"
EXAMPLES = """\
examples:
  rdpfl-sim list                                  # the names of all components
  rdpfl-sim list attack                           # one kind, with all options
  rdpfl-sim list all                              # every kind, with all options
  rdpfl-sim list methods --markdown
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the KIND argument and the --markdown option."""
    parser.add_argument(
        "kind",
        nargs="?",
        metavar="KIND",
        help="show the options of one kind, such as attack or method, or of every kind with 'all'",
    )
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")


def execute(options: argparse.Namespace) -> int:
    """Print an overview of all components, or the details of the given kind."""
    from rdpfl_sim.components.table import suggest
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
            raise UsageError(f"unknown kind {options.kind!r}{suggest(options.kind, kinds)}")
        kinds = {name: kinds[name]}
    if options.markdown:
        print_plain(markdown_table(kinds))
        return 0
    console = make_console()
    console.print(overview(kinds) if options.kind is None else details(kinds))
    for sentence in broken_plugins(kinds):
        console.print(f"broken plug-in: {sentence}", style="red", markup=False, highlight=False)
    if options.kind is None:
        console.print("\nFor descriptions and options: rdpfl-sim list KIND", highlight=False)
    return 0
