"""rdpfl-sim validate: what is wrong with a scenario."""

from __future__ import annotations

import argparse

from rdpfl_sim.commands.common import add_scenario, load_scenario, make_console

HELP = "list everything that is wrong with a scenario"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A scenario."""
    add_scenario(parser)


def execute(options: argparse.Namespace) -> int:
    """Check that its graph, data and models can be built; write nothing."""
    from rdpfl_sim.blueprint import Blueprint
    from rdpfl_sim.report.terminal import warning_lines

    blueprint = Blueprint(load_scenario(options))
    console = make_console()
    console.print(warning_lines(blueprint.warnings))
    console.print(f"{options.file}: valid", markup=False, highlight=False)
    return 0
