"""How often Python looks for garbage in a run."""

import gc

import pytest

from rdpfl_sim import simulate
from rdpfl_sim.execution.allocation import SELDOM, gc_paused
from rdpfl_sim.simulation.simulation import Simulation
from tests.support import cheap, small_scenario


def test_thresholds_are_put_back_also_after_an_error() -> None:
    before = gc.get_threshold()
    with gc_paused():
        assert gc.get_threshold() == SELDOM
    assert gc.get_threshold() == before
    with pytest.raises(ValueError, match="on the way"), gc_paused():
        raise ValueError("on the way")
    assert gc.get_threshold() == before


@pytest.mark.parametrize("fails", [False, True])
def test_they_hold_in_a_run_and_no_longer(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    before, seen = gc.get_threshold(), []
    finish = Simulation.finish

    def note(self: Simulation) -> object:
        seen.append(gc.get_threshold())
        if fails:
            raise ValueError("on the way")
        return finish(self)

    monkeypatch.setattr(Simulation, "finish", note)
    if fails:
        with pytest.raises(ValueError, match="on the way"):
            simulate(cheap(small_scenario(rounds=1)))
    else:
        simulate(cheap(small_scenario(rounds=1)))
    assert seen == [SELDOM]
    assert gc.get_threshold() == before
