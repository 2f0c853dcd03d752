"""The methods by name."""

from rdpfl_sim.components.registry import Facts, Registry

METHODS = Registry("method", Facts)
method = METHODS.register
