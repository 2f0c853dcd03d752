"""rdpfl-sim report: one HTML file that shows a run or a sweep."""

from __future__ import annotations

import argparse
from pathlib import Path

from rdpfl_sim.commands.common import make_console

HELP = "make one HTML file that shows a run or a sweep"
EXAMPLES = """\
examples:
  rdpfl-sim report runs/ring_30pct-20260101-120000 --open
  rdpfl-sim report sweeps/rivals --output rivals.html
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Of what, and where to."""
    parser.add_argument("folder", type=Path, metavar="RUN|SWEEP", help="the folder of a run or of a sweep")
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="where to (default: report.html in that folder)"
    )
    parser.add_argument("--open", action="store_true", help="show it in a browser")


def execute(options: argparse.Namespace) -> int:
    """Write the page and print where it is."""
    with make_console(stderr=True).status("reading the records"):
        from rdpfl_sim.analysis import Run, Sweep
        from rdpfl_sim.records.folder import SCENARIO, write_atomically
        from rdpfl_sim.report.html.page import render
        from rdpfl_sim.report.html.run_page import run_page
        from rdpfl_sim.report.html.sweep_page import sweep_page

        folder: Path = options.folder
        is_run = (folder / SCENARIO).is_file()
        page = run_page(Run(folder)) if is_run else sweep_page(Sweep(folder))
        path: Path = options.output or folder / "report.html"
        write_atomically(path, render(page).encode())
    print(path)  # noqa: T201  # scripts read it
    if options.open:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())
    return 0
