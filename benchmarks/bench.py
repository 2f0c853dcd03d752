"""Run all benchmarks and print one table: `make bench`, or `python benchmarks/bench.py [NAME...]`.

Each benchmark runs in a process of its own, one after the other. The rows are written to results.json, the
table to RESULTS.md and, as far as there is something to reach, to README.md. With names, only those run and
nothing is written.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
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
    "overhead",
    "executors",
    "small_clients",
    "scale",
    "verify",
    "checkpoint",
)
RESULTS = """\
# What was measured

Written by `make bench`; the numbers are of one run, on {machine}, Python {python}, torch {torch},
{date}, load {load} before it. Compare the ratios, not the times: all that is compared took turns in one run.
What exactly is done, and against what, is told at the head of each file. Times are processor times where one
thread does the work, and wall times otherwise; least times for aggregators, medians for the rest.

{table}

The picture is [scale.png](scale.png): time and memory from 10 to 100,000 clients.
"""


def rows_of(name: str) -> list[Row]:
    """The rows of a benchmark, measured here."""
    if name == "scale":
        return list(import_module("scale").rows(plot=HERE / "scale.png"))
    return list(import_module(name).rows())


def measured(name: str) -> list[Row]:
    """The rows of a benchmark, measured in a process of its own."""
    began = time.perf_counter()
    sys.stderr.write(f"{name} ... ")
    sys.stderr.flush()
    done = subprocess.run(
        [sys.executable, __file__, "--rows", name], check=False, stdout=subprocess.PIPE, text=True
    )
    sys.stderr.write(f"{time.perf_counter() - began:.0f} s\n")
    if done.returncode:
        return [Row(f"{name} has failed", "", "", None, "")]
    return [Row(**row) for row in json.loads(done.stdout.splitlines()[-1])]


def write(found: dict[str, list[Row]], load: float) -> None:
    """The rows to results.json, RESULTS.md and the README."""
    import torch

    everything = [row for rows in found.values() for row in rows]
    content = {name: [asdict(row) | {"reached": row.reached} for row in rows] for name, rows in found.items()}
    (HERE / "results.json").write_text(json.dumps(content, indent=1) + "\n")
    text = RESULTS.format(
        machine=f"{os.cpu_count()} cores ({platform.machine()})",
        python=platform.python_version(),
        torch=torch.__version__,
        date=datetime.now(UTC).date(),
        load=f"{load:.1f}",
        table=markdown(everything),
    )
    (HERE / "RESULTS.md").write_text(text)
    readme = HERE.parent / "README.md"
    lines = ["| work | measured | must reach | command |", "|---|---|---|---|"]
    for name, rows in found.items():
        lines += [
            f"| {row.work} | {row.cells[3]} | {row.must} | `python benchmarks/{name}.py` |"
            for row in rows
            if row.reached is not None
        ]
    table = "\n".join(lines)
    marks = "<!-- make bench writes this table -->", "<!-- to here -->"
    pattern = re.compile(f"(?<={marks[0]}\n).*?(?={marks[1]})", re.DOTALL)
    readme.write_text(pattern.sub(lambda _: f"\n{table}\n\n", readme.read_text()))


def main() -> None:
    """Gather everything."""
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
    found = {name: measured(name) for name in options.names or NAMES}
    show([row for rows in found.values() for row in rows])
    if not options.names:
        write(found, load)


if __name__ == "__main__":
    main()
