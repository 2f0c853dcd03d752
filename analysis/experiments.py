"""The runs that a notebook analyses: those of `make analysis`, or smaller ones in a test."""

from __future__ import annotations

import os
from pathlib import Path

from rdpfl_sim.results import Sweep

FOLDER = Path(os.environ.get("RDPFL_ANALYSIS_RUNS", Path(__file__).parent / "runs"))
PROFILE = os.environ.get("RDPFL_ANALYSIS_PROFILE")


def sweep(name: str) -> Sweep:
    """Return the runs of scenarios/NAME.toml."""
    folder = FOLDER / (f"{name}-{PROFILE}" if PROFILE else name)
    if not folder.exists():
        command = f"rdpfl-sim sweep analysis/scenarios/{name}.toml --output analysis/runs"
        raise SystemExit(f"the runs of {name} are missing; run in the folder of the repository: {command}")
    return Sweep(folder)
