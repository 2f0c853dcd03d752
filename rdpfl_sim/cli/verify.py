"""rdpfl-sim verify: check that the records of runs are consistent."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rdpfl_sim.cli.common import (
    FAILED,
    add_allow_cluster,
    make_console,
    print_plain,
    report_damage,
    require_run_folders,
)

if TYPE_CHECKING:
    from rich.console import Console

HELP = "check that the records of runs are consistent"
EXAMPLES = """\
examples:
  rdpfl-sim verify runs/ring_30pct-20260101-120000
  rdpfl-sim verify runs/first runs/second --json
  rdpfl-sim verify --replay runs/ring_30pct-20260101-120000

The exit code is 1 if any check fails.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the run folders, the replay and the output format."""
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument("--replay", action="store_true", help="also repeat the run and compare every file")
    add_allow_cluster(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")


def execute(options: argparse.Namespace) -> int:
    """Check each run; return 1 if any check fails."""
    with make_console(stderr=True).status("loading"):
        from rdpfl_sim.reports.text import verification_table
        from rdpfl_sim.scenario.scenario import arithmetic_of
        from rdpfl_sim.verification.replay import ONLY_BY_REPLAY
    console, results, violated = make_console(), [], False
    require_run_folders(*options.runs)
    for path in options.runs:
        if options.replay and arithmetic_of(path) != arithmetic_of(options.runs[0]):
            checks = _run_checks_in_new_process(path, options)
        else:
            checks = _run_checks(path, options, make_console(stderr=True))
        violated |= any(check["outcome"] == "violated" for check in checks)
        if options.json:
            not_checked = [] if options.replay else ONLY_BY_REPLAY
            results.append({"run": str(path), "checks": checks, "only_by_replay": not_checked})
        else:
            console.print(verification_table(str(path), checks))
    if not options.json and not options.replay:
        num_kinds = len(ONLY_BY_REPLAY)
        console.print(
            f"{num_kinds} kinds of changes are detected only by --replay; --json lists them", style="dim"
        )
    if options.json:
        print_plain(json.dumps(results, indent=2))
    return FAILED if violated else 0


def _run_checks(path: Path, options: argparse.Namespace, console: Console) -> list[dict[str, object]]:
    from rdpfl_sim.reports.progress import make_progress
    from rdpfl_sim.scenario.scenario import Scenario
    from rdpfl_sim.verification.replay import replay
    from rdpfl_sim.verification.verify import verify

    with console.status(f"reading {path}") as status, report_damage(path):
        checks = verify(path, lambda num: status.update(f"reading {path}: {num:,} records"))
    if options.replay:
        scenario = Scenario.of_run(path)
        with make_progress(False, scenario.rounds * scenario.clients.count, console) as progress:
            checks.append(replay(path, progress, options.allow_cluster))
    return [check.as_dict() for check in checks]


def _run_checks_in_new_process(path: Path, options: argparse.Namespace) -> list[dict[str, object]]:
    """Check a run whose arithmetic differs from the one of this process, which cannot change."""
    command = [sys.executable, "-m", "rdpfl_sim", "verify", "--replay", "--json", str(path)]
    command += ["--allow-cluster"] if options.allow_cluster else []
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, FAILED):
        raise SystemExit(done.returncode)  # the process has printed the error
    checks: list[dict[str, object]] = json.loads(done.stdout)[0]["checks"]
    return checks
