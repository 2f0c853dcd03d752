"""The records of runs and sweeps as polars frames, for reports, traces and notebooks.

from rdpfl_sim import Run

run = Run("runs/ring_30pct-20260101-120000")
run.messages.group_by("outcome").len().collect()
"""

from rdpfl_sim.results.run import Run
from rdpfl_sim.results.sweep import Sweep

__all__ = ["Run", "Sweep"]
