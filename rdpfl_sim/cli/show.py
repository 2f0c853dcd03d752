"""rdpfl-sim show: print the results and the provenance of a run."""

from __future__ import annotations

import argparse
from pathlib import Path

from rdpfl_sim.cli.common import make_console, report_damage, require_run_folders

HELP = "print the results and the provenance of a run"
EXAMPLES = """\
examples:
  rdpfl-sim show runs/ring_30pct-20260101-120000
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the run folder."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")


def execute(options: argparse.Namespace) -> int:
    """Print the summary, or the progress of an unfinished run, and the provenance."""
    from rdpfl_sim.records.reader import RunReader
    from rdpfl_sim.reports.run_summary import provenance_table, summary_table, unfinished_lines
    from rdpfl_sim.reports.text import warning_lines

    run: Path = options.run
    require_run_folders(run)
    with report_damage(run):
        reader, console = RunReader(run), make_console()
        summary = reader.read_summary()
        if summary is None or "accuracy" not in summary:
            console.print(unfinished_lines(reader.read_scenario(), summary, reader.last_record()))
        else:
            console.print(summary_table(summary))
            console.print(warning_lines(summary["warnings"]))
        console.print()
        console.print(provenance_table(reader.read_provenance(), (summary or {}).get("digest")))
    return 0
