"""One file a method: what a client sends, and how it updates its model."""

from __future__ import annotations

from collections.abc import Callable

from rdpfl_sim.methods.balance import Balance
from rdpfl_sim.methods.base import Method
from rdpfl_sim.methods.bristle import Bristle
from rdpfl_sim.methods.clipped_gossip import ClippedGossip
from rdpfl_sim.methods.dfedavgm import Dfedavgm
from rdpfl_sim.methods.direct import Direct
from rdpfl_sim.methods.dispfl import Dispfl
from rdpfl_sim.methods.ditto import Ditto
from rdpfl_sim.methods.dpsgd import Dpsgd
from rdpfl_sim.methods.fedper import Fedper
from rdpfl_sim.methods.kd_pdfl import KdPdfl
from rdpfl_sim.methods.krum_gossip import KrumGossip
from rdpfl_sim.methods.local import Local
from rdpfl_sim.methods.rdpfl import Rdpfl
from rdpfl_sim.methods.ubar import Ubar

METHODS: dict[str, Callable[..., Method]] = {
    "rdpfl": Rdpfl,
    "direct": Direct,
    "local": Local,
    "dpsgd": Dpsgd,
    "dfedavgm": Dfedavgm,
    "balance": Balance,
    "clipped_gossip": ClippedGossip,
    "ubar": Ubar,
    "krum_gossip": KrumGossip,
    "ditto": Ditto,
    "fedper": Fedper,
    "kd_pdfl": KdPdfl,
    "bristle": Bristle,
    "dispfl": Dispfl,
}
