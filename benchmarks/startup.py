"""The time that the program takes to start: `python benchmarks/startup.py`.

Measured are `rdpfl-sim --help`, and a run from its first line of Python to its first event, each in its
own process: medians of processor time, which depends least on other programs, after one start that warms
the cache.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from table import Row, show

REPEATS = 5
SCENARIO = Path(__file__).parents[1] / "scenarios" / "ring_30pct.toml"
HELP = "import sys; from rdpfl_sim.cli.main import main; main(['--help']); assert 'torch' not in sys.modules"
TORCH = "import os, torch; os._exit(0)"
FIRST_EVENT = """
import os, sys
from rdpfl_sim.cli.main import main
from rdpfl_sim.world.kernel import Kernel
def stop(*_): os._exit(0)
Kernel.run_until_paused = stop
main(sys.argv[1:])
sys.exit("no event happened")
"""


def seconds(code: str, *arguments: str) -> float:
    """Return the processor time of a process that runs this code."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def rows() -> list[Row]:
    """Measure the help text, and a run up to its first event."""
    with tempfile.TemporaryDirectory() as folder:
        run = (FIRST_EVENT, "run", str(SCENARIO), "--set", f"output.folder={folder}")
        routes = ((HELP,), run, (TORCH,))
        times = [[seconds(*route) for route in routes] for _ in range(REPEATS + 1)][1:]
    to_help, to_event, torch = (median(column) for column in zip(*times, strict=True))
    return [
        Row("`rdpfl-sim --help`, without torch", f"{to_help:.2f} s", "", to_help, "<= 0.3"),
        Row(
            "a run up to its first event",
            f"{to_event:.2f} s",
            f"import torch {torch:.2f} s",
            to_event,
            "<= 3",
        ),
    ]


if __name__ == "__main__":
    show(rows(), __doc__.splitlines()[0])
