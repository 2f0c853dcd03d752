"""One declaration in `RoundMeans`, and the sums that it names, add a metric to every report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rdpfl_sim.records import metrics

NEW = """
    new: Annotated[
        float | None,
        Field("messages", "declared meaning", "declared words", heading="declared heading"),
        Ratio("sum_new", "num_rounds"),
    ]
"""

PATH = "telemetry.rounds.all.new"
SCRIPT = """
import json, sys, types
from pathlib import Path

from rdpfl_sim import records

source, end, new, path, folder = sys.argv[1:]
module = types.ModuleType("rdpfl_sim.records.metrics")
sys.modules[module.__name__] = records.metrics = module
exec(Path(source).read_text().replace(end, end + new, 1), vars(module))

from docs.tools.reference import columns
from rdpfl_sim import simulate
from rdpfl_sim.records.summary import metric_name
from rdpfl_sim.reports.html.run_page import run_page
from rdpfl_sim.results import Run
from rdpfl_sim.simulation.telemetry import RoundStats
from tests.support import small_scenario

RoundStats.sum_new = property(lambda stats: 2.5 * stats.num_rounds)
run = Run(simulate(small_scenario(), folder).folder)
[tab] = [tab for tab in run_page(run).tabs if tab.name == "Clients"]
table = tab.cards[-1].content
place = table.head.index("declared heading")
print(json.dumps({
    "frame": sorted(set(run.metrics.filter(run.metrics["round"] > 0)["new"])),
    "summary": run.summary["telemetry"]["rounds"]["all"]["new"],
    "label": metric_name(path).label,
    "cells": sorted({row[place] for row in table.rows}),
    "reference": [line for line in columns().splitlines() if line.startswith(("| `new`", f"| `{path}`"))],
}))
"""


@pytest.mark.slow
def test_new_mean_is_in_metrics_summary_frame_table_and_reference(tmp_path: Path) -> None:
    end = "    neighbour_share: NeighbourShare\n"
    arguments = (metrics.__file__, end, NEW, PATH, tmp_path)
    done = subprocess.run([sys.executable, "-c", SCRIPT, *arguments], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout) == {
        "frame": [2.5],
        "summary": 2.5,
        "label": "Declared words, honest clients",
        "cells": ["2.50"],
        "reference": [
            "| `new` | messages | declared meaning |",
            f"| `{PATH}` | messages | declared meaning; mean over all rounds of honest clients |",
        ],
    }
