"""Faults: one module per kind, with its schedules, its effect on the world and the end of that effect."""

from rdpfl_sim.components.registry import import_modules
from rdpfl_sim.world.faults.fault import FAULTS

__all__ = ["FAULTS"]

import_modules(__name__, __path__)
