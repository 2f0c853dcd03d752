"""rdpfl-sim validate: what is wrong with a scenario, or with a sweep."""

from __future__ import annotations

import argparse

from rdpfl_sim.commands.common import add_scenario, load_scenario, make_console

HELP = "list everything that is wrong with a scenario or a sweep"
EXAMPLES = """\
examples:
  rdpfl-sim validate scenarios/ring_30pct.toml
  rdpfl-sim validate scenarios/sweeps/lambda.toml
  rdpfl-sim validate scenarios/ring_30pct.toml --set clients.count=20
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A scenario."""
    add_scenario(parser)


def execute(options: argparse.Namespace) -> int:
    """Check that it can be built, or that all runs of a sweep are possible; write nothing."""
    from rdpfl_sim.blueprint import Blueprint
    from rdpfl_sim.overrides import read_toml
    from rdpfl_sim.report.terminal import warning_lines
    from rdpfl_sim.sweeps.plan import Sweep

    console = make_console()
    if "base" in read_toml(options.file):
        sweep = Sweep.load(options.file, options.set)
        for profile in (None, *sweep.profiles):
            num_runs = len(sweep.runs(profile))
            console.print(f"{profile or 'all of it'}: {num_runs} runs", markup=False, highlight=False)
    else:
        console.print(warning_lines(Blueprint(load_scenario(options)).warnings))
    console.print(f"{options.file}: valid", markup=False, highlight=False)
    return 0
