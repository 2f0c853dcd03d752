"""Learning methods, one per file. A method defines the messages and the model updates of clients."""

from importlib import import_module

from rdpfl_sim.components.registry import import_modules
from rdpfl_sim.methods.base import METHODS, method

__all__ = ["METHODS", "method"]

for _name in (  # the documentation lists these first, in this order
    "rdpfl",
    "anchored",
    "direct",
    "local",
    "dpsgd",
    "dfedavgm",
    "balance",
    "clipped_gossip",
    "ubar",
    "krum_gossip",
    "ditto",
    "fedper",
    "kd_pdfl",
    "bristle",
    "dispfl",
):
    import_module(f"{__name__}.{_name}")
import_modules(__name__, __path__)
