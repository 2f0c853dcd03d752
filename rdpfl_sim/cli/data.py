"""rdpfl-sim data: fetch a data set."""

from __future__ import annotations

import argparse
import sys

from rdpfl_sim.cli.common import BAD_INPUT, make_console

HELP = "fetch a data set, such as cifar10, into a cache"
EXAMPLES = """\
examples:
  rdpfl-sim data cifar10
  rdpfl-sim data mnist --folder /data/images

A scenario names another folder with data.folder.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which, and where to."""
    parser.add_argument("name", metavar="NAME", help="cifar10, cifar100, mnist or fashion_mnist")
    parser.add_argument(
        "--folder", metavar="FOLDER", help="where to (default: $RDPFL_SIM_DATA, or ~/.cache/rdpfl-sim)"
    )


def execute(options: argparse.Namespace) -> int:
    """Fetch it, unless it is there already."""
    with make_console(stderr=True).status("looking for the data set") as status:
        from rdpfl_sim.learning.datasets.download import DataError, data_folder, fetch

        def show(done: int, total: int | None, what: str) -> None:
            size = f"{done / 1e6:.0f} MB" if total is None else f"{done / 1e6:.0f} of {total / 1e6:.0f} MB"
            status.update(f"fetching {what}" + (f": {size}" if done else ""))

        try:
            path = fetch(options.name, data_folder(options.folder), show)
        except DataError as error:
            sys.stderr.write(f"rdpfl-sim data: {error}\n")
            return BAD_INPUT
    print(path)  # noqa: T201  # the command's output
    return 0
