"""The PNG figures of a run, drawn from the files in its folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rdpfl_sim.records.reader import RunReader, Topology
from rdpfl_sim.records.run_folder import SUMMARY
from rdpfl_sim.reports.accuracy_curves import accuracy_curves
from rdpfl_sim.reports.curves_figure import curves_figure
from rdpfl_sim.reports.figure_style import save
from rdpfl_sim.reports.topology_figure import topology_figure
from rdpfl_sim.system.files import remove_partial

CURVES_PNG, TOPOLOGY_PNG = "curves.png", "topology.png"
NBSP = "\N{NO-BREAK SPACE}"


def are_up_to_date(run_dir: Path) -> bool:
    """Return whether the figures of a run were drawn after its end."""
    end_ns = (run_dir / SUMMARY).stat().st_mtime_ns
    paths = [run_dir / name for name in (CURVES_PNG, TOPOLOGY_PNG)]
    return all(path.exists() and path.stat().st_mtime_ns >= end_ns for path in paths)


def draw(run_dir: Path) -> list[Path]:
    """Write `curves.png` and `topology.png` into a run folder and return their paths."""
    for name in (CURVES_PNG, TOPOLOGY_PNG):
        remove_partial(run_dir / name)
    reader = RunReader(run_dir)
    honest, byzantine = accuracy_curves(reader.read_metrics())
    topology = reader.read_topology()
    summary = reader.read_summary() or {"name": run_dir.name}  # unfinished runs have none
    name, description = summary["name"], _description(summary, topology)
    return [
        save(curves_figure(honest, byzantine, name, description), run_dir / CURVES_PNG),
        save(topology_figure(topology, honest, name, description), run_dir / TOPOLOGY_PNG),
    ]


def _description(summary: Mapping[str, Any], topology: Topology) -> str:
    facts = [f"{key} {summary[key]}" for key in ("method", "attack", "topology") if summary.get(key)]
    facts += [f"{topology['num_clients']:,}{NBSP}clients", f"{len(topology['byzantine']):,}{NBSP}Byzantine"]
    return ", ".join(facts)
