"""The public names for plug-ins."""

from __future__ import annotations

import pytest

from rdpfl_sim import plugins
from rdpfl_sim.scenario.component_list import KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_decorator_of_its_name(kind: str) -> None:
    assert kind in plugins.__all__
    assert getattr(plugins, kind) == KINDS[kind].registry.register
