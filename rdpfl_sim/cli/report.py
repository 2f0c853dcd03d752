"""rdpfl-sim report: write an HTML report of a run or a sweep."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rdpfl_sim.cli.common import UsageError, make_console, print_plain, report_damage
from rdpfl_sim.errors import RunError

if TYPE_CHECKING:
    from rdpfl_sim.results import Run, Sweep

HELP = "write HTML reports of runs or sweeps"
EXAMPLES = """\
examples:
  rdpfl-sim report runs/ring_30pct-20260101-120000 --open
  rdpfl-sim report sweeps/rivals --output rivals.html
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the folder, the output file and opening the report."""
    parser.add_argument(
        "folders", type=Path, nargs="+", metavar="RUN|SWEEP", help="run folders or sweep folders"
    )
    parser.add_argument(
        "--output",
        "-o",
        type=Path,
        metavar="FILE",
        help="output file, for a single folder (default: report.html in each folder)",
    )
    parser.add_argument("--open", action="store_true", help="open the report in a browser")


def execute(options: argparse.Namespace) -> int:
    """Write a report per folder and print their paths."""
    if options.output is not None and len(options.folders) > 1:
        raise UsageError(f"--output {options.output}: give one folder, not {len(options.folders)}")
    for folder in options.folders:
        _write_report(folder, options.output or folder / "report.html", options.open)
    return 0


def _write_report(folder: Path, path: Path, in_browser: bool) -> None:
    with make_console(stderr=True).status("reading the records"):
        from rdpfl_sim.files import write_atomically

        try:
            source = _open_folder(folder)
        except RunError as error:
            raise UsageError(str(error)) from error
        with report_damage(folder):
            page = _render(source)
        write_atomically(path, page.encode(errors="replace"))
    print_plain(path)
    if in_browser:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())


def _open_folder(folder: Path) -> Run | Sweep:
    """Open a folder as a run if it contains a scenario, otherwise as a sweep."""
    from rdpfl_sim.records.files import SCENARIO
    from rdpfl_sim.results import Run, Sweep

    return Run(folder) if (folder / SCENARIO).is_file() else Sweep(folder)


def _render(source: Run | Sweep) -> str:
    from polars.exceptions import PolarsError

    from rdpfl_sim.reports.html.page import render
    from rdpfl_sim.reports.html.run_page import run_page
    from rdpfl_sim.reports.html.sweep_page import sweep_page
    from rdpfl_sim.results import Run

    try:
        return render(run_page(source) if isinstance(source, Run) else sweep_page(source))
    except PolarsError as error:
        reason = str(error).partition("\n")[0]
        raise RunError(
            f"{source.folder}: damaged records ({reason}); see rdpfl-sim verify for details"
        ) from error
