"""One file a method: what a client sends, and how it updates its model."""

from __future__ import annotations

from collections.abc import Callable

from rdpfl_sim.methods.base import Method
from rdpfl_sim.methods.direct import Direct
from rdpfl_sim.methods.local import Local
from rdpfl_sim.methods.rdpfl import Rdpfl

METHODS: dict[str, Callable[..., Method]] = {
    "rdpfl": Rdpfl,
    "direct": Direct,
    "local": Local,
}
