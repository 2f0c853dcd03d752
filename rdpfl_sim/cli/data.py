"""rdpfl-sim data: download a data set."""

from __future__ import annotations

import argparse

from rdpfl_sim.cli.common import UsageError, make_console, print_plain

HELP = "download a data set, such as cifar10, into a cache"
EXAMPLES = """\
examples:
  rdpfl-sim data cifar10
  rdpfl-sim data mnist --folder /data/images

A scenario that sets data.folder reads from that folder instead.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the data set and the folder."""
    parser.add_argument("name", metavar="NAME", help="cifar10, cifar100, mnist or fashion_mnist")
    parser.add_argument(
        "--folder",
        "-o",
        metavar="FOLDER",
        help="target folder (default: ~/.cache/rdpfl-sim or the value of $RDPFL_SIM_DATA)",
    )


def execute(options: argparse.Namespace) -> int:
    """Download the data set unless it already exists; print its path."""
    with make_console(stderr=True).status("checking the data folder") as status:
        from rdpfl_sim.learning.datasets.dataset import DataError
        from rdpfl_sim.learning.datasets.download import data_folder, fetch

        def show_progress(done: int, total: int | None, what: str) -> None:
            size = f"{done / 1e6:.0f} MB" if total is None else f"{done / 1e6:.0f} of {total / 1e6:.0f} MB"
            status.update(f"downloading {what}" + (f": {size}" if done else ""))

        try:
            path = fetch(options.name, data_folder(options.folder), show_progress)
        except DataError as error:
            raise UsageError(str(error)) from error
    print_plain(path)
    return 0
