"""rdpfl-sim schema: what a scenario may say, for editors."""

from __future__ import annotations

import argparse
import json

HELP = "print the JSON schema of scenarios, for editors"
EXAMPLES = """\
examples:
  rdpfl-sim schema > scenario.schema.json

An editor that knows Taplo or Even Better TOML then completes scenarios that
begin with the line  #:schema scenario.schema.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None."""


def execute(options: argparse.Namespace) -> int:
    """Print the JSON schema of scenarios, for editors that complete TOML."""
    from rdpfl_sim.scenario.scenario import Scenario

    print(json.dumps(Scenario.model_json_schema(), indent=2))  # noqa: T201  # the command's output
    return 0
