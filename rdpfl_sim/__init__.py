"""An asynchronous, event-driven simulator for robust decentralised personalised federated learning.

from rdpfl_sim import Scenario, simulate

result = simulate(Scenario.load("scenarios/ring_30pct.toml"))
result.summary["accuracy"]["honest"]["personal"]["mean"]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rdpfl_sim.execution import arithmetic as _arithmetic
from rdpfl_sim.version import __version__

if TYPE_CHECKING:
    from rdpfl_sim.errors import ScenarioError
    from rdpfl_sim.results.run import Run
    from rdpfl_sim.results.sweep import Sweep
    from rdpfl_sim.scenario.scenario import Scenario
    from rdpfl_sim.simulation.models import load_model
    from rdpfl_sim.simulation.resume import resume
    from rdpfl_sim.simulation.simulation import Result, simulate

__all__ = [
    "Result",
    "Run",
    "Scenario",
    "ScenarioError",
    "Sweep",
    "__version__",
    "load_model",
    "resume",
    "simulate",
]

_MODULES = {
    "Result": "simulation.simulation",
    "Run": "results.run",
    "Scenario": "scenario.scenario",
    "ScenarioError": "errors",
    "Sweep": "results.sweep",
    "load_model": "simulation.models",
    "resume": "simulation.resume",
    "simulate": "simulation.simulation",
}

_arithmetic.prepare()  # torch reads its environment variables when it first computes


def __getattr__(name: str) -> object:
    """Import public names on first use: `rdpfl-sim --help` should not have to load torch."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
