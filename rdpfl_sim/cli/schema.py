"""rdpfl-sim schema: print the JSON schema of scenario files."""

from __future__ import annotations

import argparse
import json

from rdpfl_sim.cli.common import print_plain

HELP = "print the JSON schema of scenarios, for editors"
EXAMPLES = """\
examples:
  rdpfl-sim schema > scenario.schema.json

Editors with Taplo or Even Better TOML use this file to complete scenarios that
start with the line  #:schema scenario.schema.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no arguments."""


def execute(options: argparse.Namespace) -> int:
    """Print the schema."""
    from rdpfl_sim.scenario.scenario import Scenario

    print_plain(json.dumps(Scenario.model_json_schema(), indent=2))
    return 0
