"""rdpfl-sim list: show the available components."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rdpfl_sim.cli.common import UsageError, make_console, print_plain

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rdpfl_sim.scenario.component_list import Entry

HELP = "list components (attacks, methods, ...) or bundled scenarios"
EXAMPLES = """\
examples:
  rdpfl-sim list                                  # the names of all components
  rdpfl-sim list attack                           # one kind, with all options
  rdpfl-sim list trimmed_mean                     # one component
  rdpfl-sim list all                              # every kind, with all options
  rdpfl-sim list methods --markdown
  rdpfl-sim list scenarios                        # the bundled scenarios
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the KIND argument and the --markdown option."""
    parser.add_argument(
        "kind",
        nargs="?",
        metavar="KIND",
        help="show the options of one kind, such as attack or method, of one component, such as krum, or of "
        "every kind with 'all'; 'scenarios' shows the bundled scenarios and sweeps",
    )
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")


def execute(options: argparse.Namespace) -> int:
    """Print an overview of all components, or the details of the given kind."""
    if options.kind in ("scenario", "scenarios"):
        return _list_scenarios(options.markdown)
    from rdpfl_sim.components.schema import suggest
    from rdpfl_sim.scenario.component_list import broken_plugins, list_components

    kinds = list_components()
    if options.kind not in (None, "all"):
        name = options.kind if options.kind in kinds else options.kind.removesuffix("s")
        named = {
            kind: found
            for kind, entries in kinds.items()
            if (found := [entry for entry in entries if entry.name == options.kind])
        }
        if name not in kinds and not named:
            choices = [*kinds, "scenarios", "the name of a component"]
            raise UsageError(f"unknown kind or component {options.kind!r}{suggest(options.kind, choices)}")
        kinds = {name: kinds[name]} if name in kinds else named
    if options.markdown:
        print_plain(_markdown_table(kinds))
        return 0
    console = make_console()
    console.print(_overview(kinds) if options.kind is None else _details(kinds))
    messages = make_console(stderr=True)
    for sentence in broken_plugins(kinds):
        messages.print(f"broken plug-in: {sentence}", style="red", markup=False, highlight=False)
    if options.kind is None:
        console.print("\nFor descriptions and options: rdpfl-sim list KIND", highlight=False)
        console.print("For bundled scenarios: rdpfl-sim list scenarios", highlight=False)
    return 0


def _markdown_table(kinds: Mapping[str, Sequence[Entry]]) -> str:
    """Return a Markdown table with one row per kind."""
    rows = [
        f"| {kind} | {', '.join(f'`{entry.name}`' for entry in entries)} |" for kind, entries in kinds.items()
    ]
    return "\n".join(["| kind | built in |", "|---|---|", *rows])


def _overview(kinds: Mapping[str, Sequence[Entry]]) -> RenderableType:
    """Return a table with the names of all components, one row per kind."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    for kind, entries in kinds.items():
        table.add_row(Text(kind, style="bold"), Text(", ".join(entry.name for entry in entries)))
    return table


def _details(kinds: Mapping[str, Sequence[Entry]]) -> RenderableType:
    """Return text with the summary and the options of every component."""
    from rich.console import Group
    from rich.text import Text

    from rdpfl_sim.reports.text import HangingIndent

    lines: list[RenderableType] = []
    for kind, entries in kinds.items():
        lines.append(Text(kind, style="bold"))
        for entry in entries:
            lines.append(HangingIndent(Text.assemble((entry.name, "cyan"), f": {entry.summary}"), 2))
            lines += [HangingIndent(Text(option, style="dim"), 6) for option in entry.options]
    return Group(*lines)


def _list_scenarios(markdown: bool) -> int:
    """Print the name and the description of every bundled scenario and sweep."""
    from rich.text import Text

    from rdpfl_sim.reports.text import HangingIndent
    from rdpfl_sim.scenario.bundled import bundled_scenarios, describe_file
    from rdpfl_sim.toml import is_sweep, read_toml

    console = make_console()
    if markdown:
        print_plain("| scenario | command | description |\n|---|---|---|")
    for name, path in bundled_scenarios().items():
        command = "sweep" if is_sweep(read_toml(path)) else "run"
        if markdown:
            print_plain(f"| `{name}` | `{command}` | {describe_file(path)} |")
        else:
            text = Text.assemble((name, "cyan"), f" ({command}): {describe_file(path)}")
            console.print(HangingIndent(text, 0))
    if not markdown:
        console.print(
            "\nTo run one: rdpfl-sim run NAME, or rdpfl-sim sweep NAME for a sweep. "
            "To copy one: rdpfl-sim new --example NAME",
            highlight=False,
        )
    return 0
