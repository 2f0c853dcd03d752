"""Run all benchmarks and print one table: `make bench`, or `python benchmarks/bench.py [NAME...]`.

Each benchmark runs in its own process, one after the other. The rows are written to results.json and to
docs/scale/speed.md, where rows that miss their target are marked. With names, only those benchmarks run and
nothing is written.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

from table import Row, markdown, show

HERE = Path(__file__).parent
NAMES = (
    "startup",
    "kernel",
    "aggregators",
    "training",
    "layout",
    "arithmetic",
    "overhead",
    "executors",
    "small_clients",
    "scale",
    "verify",
    "checkpoint",
)
PAGE = HERE.parent / "docs" / "scale" / "speed.md"
MARK = "<!-- make bench writes the rest of this page -->\n"
RESULTS = """
## Results

- Machine: {machine}
- Versions: Python {python}, torch {torch}
- Date: {date}
- Load before the run: {load}

{table}
"""


def rows_of(name: str) -> list[Row]:
    """Run a benchmark in this process; return its rows."""
    if name == "scale":
        return list(import_module("scale").rows(plot=HERE.parent / "docs" / "images" / "scale.png"))
    return list(import_module(name).rows())


def run_in_process(name: str) -> list[Row]:
    """Run a benchmark in its own process; return its rows."""
    began = time.perf_counter()
    sys.stderr.write(f"{name} ... ")
    sys.stderr.flush()
    done = subprocess.run(
        [sys.executable, __file__, "--rows", name], check=False, stdout=subprocess.PIPE, text=True
    )
    sys.stderr.write(f"{time.perf_counter() - began:.0f} s\n")
    if done.returncode:
        raise SystemExit(f"{name} failed; nothing was written")
    return [Row(**row) for row in json.loads(done.stdout.splitlines()[-1])]


def write(found: dict[str, list[Row]], load: float) -> None:
    """Write the rows to results.json and docs/scale/speed.md."""
    import torch

    content = {name: [asdict(row) | {"reached": row.reached} for row in rows] for name, rows in found.items()}
    (HERE / "results.json").write_text(json.dumps(content, indent=1) + "\n")
    text = RESULTS.format(
        machine=f"{os.cpu_count()} cores ({platform.machine()})",
        python=platform.python_version(),
        torch=torch.__version__,
        date=datetime.now(UTC).date(),
        load=f"{load:.1f}",
        table=markdown(found),
    )
    PAGE.write_text(PAGE.read_text().partition(MARK)[0] + MARK + text)


def main() -> None:
    """Run the benchmarks, print one table, and write the results if all ran."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", choices=[[], *NAMES], metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--rows", choices=NAMES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rows:
        print(json.dumps([asdict(row) for row in rows_of(options.rows)]))
        return
    load = os.getloadavg()[0]
    found = {name: run_in_process(name) for name in options.names or NAMES}
    show([row for rows in found.values() for row in rows])
    if not options.names:
        write(found, load)


if __name__ == "__main__":
    main()
