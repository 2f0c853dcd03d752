"""Run all benchmarks and print one table: `make bench`, or `python benchmarks/bench.py [NAME...]`.

Each benchmark runs in its own process, one after the other. The rows are written to results.json, the
table to RESULTS.md, and the rows that have a target also to README.md. With names, only those benchmarks
run and nothing is written.
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
# Benchmark results

Written by `make bench`. The numbers are from one run on {machine}, Python {python}, torch {torch},
{date}, with a load of {load} before the run. Compare the ratios, not the times: variants that are compared
take turns in one run. The docstring of each file describes what is measured and the reference. Times are
processor times where one thread does the work, and wall times otherwise; minimum times for aggregators,
medians for the rest.

{table}

[scale.png](scale.png) shows time and memory from 10 to 100,000 clients.
"""


def rows_of(name: str) -> list[Row]:
    """Run a benchmark in this process; return its rows."""
    if name == "scale":
        return list(import_module("scale").rows(plot=HERE / "scale.png"))
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
        return [Row(f"{name} failed", "", "", None, "")]
    return [Row(**row) for row in json.loads(done.stdout.splitlines()[-1])]


def write(found: dict[str, list[Row]], load: float) -> None:
    """Write the rows to results.json, RESULTS.md and README.md."""
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
    lines = ["| work | measured | target | command |", "|---|---|---|---|"]
    for name, rows in found.items():
        lines += [
            f"| {row.task} | {row.cells[3]} | {row.must} | `python benchmarks/{name}.py` |"
            for row in rows
            if row.reached is not None
        ]
    table = "\n".join(lines)
    marks = "<!-- make bench writes this table -->", "<!-- to here -->"
    pattern = re.compile(f"(?<={marks[0]}\n).*?(?={marks[1]})", re.DOTALL)
    readme.write_text(pattern.sub(lambda _: f"\n{table}\n\n", readme.read_text()))


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
