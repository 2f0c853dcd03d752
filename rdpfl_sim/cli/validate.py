"""rdpfl-sim validate: check a scenario or a sweep without running it."""

from __future__ import annotations

import argparse

from rdpfl_sim.cli.common import add_scenario, load_scenario, make_console, print_warnings
from rdpfl_sim.errors import Problem, ScenarioError

HELP = "check a scenario or a sweep and list all problems"
EXAMPLES = """\
examples:
  rdpfl-sim validate ring_30pct
  rdpfl-sim validate sweeps/lambda
  rdpfl-sim validate ring_30pct --set clients.count=20
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the scenario and its overrides."""
    add_scenario(parser, "a scenario or a sweep: a TOML file, or a bundled name")


def execute(options: argparse.Namespace) -> int:
    """Build the scenario, or all runs of the sweep, without writing anything."""
    from rdpfl_sim.reports.text import quantity
    from rdpfl_sim.scenario.bundled import find_scenario
    from rdpfl_sim.simulation.experiment import Experiment
    from rdpfl_sim.sweeps.spec import SweepSpec
    from rdpfl_sim.sweeps.strategies.grid import overrides_replaced_by, plan_runs
    from rdpfl_sim.toml import is_sweep, read_toml

    console = make_console()
    if is_sweep(read_toml(find_scenario(options.file))):
        if options.seed is not None:
            raise ScenarioError([Problem("--seed", "has no effect: a sweep has its own seeds", options.seed)])
        sweep = SweepSpec.load(options.file, options.overrides)
        for profile in (None, *sweep.profiles):
            lost = [] if profile is None else overrides_replaced_by(sweep, profile)
            if lost:
                result = f"cannot be combined with --set {lost[0]}, which the profile replaces"
            else:
                runs = plan_runs(sweep, profile)
                print_warnings([run.scenario for run in runs], [] if profile else sweep.warnings())
                result = quantity(len(runs), "run")
            label = f"profile {profile}" if profile else "without a profile"
            console.print(f"{label}: {result}", markup=False, highlight=False)
    else:
        scenario = load_scenario(options)
        print_warnings([scenario], Experiment(scenario).warnings)
    console.print(f"{options.file}: valid", markup=False, highlight=False)
    return 0
