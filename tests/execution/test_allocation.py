"""The garbage collector runs rarely during a run, and its settings are restored afterwards."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rdpfl_sim import simulate
from rdpfl_sim.execution.devices import gc_paused
from rdpfl_sim.simulation.simulation import Simulation
from tests.support import cheap, small_scenario


@contextmanager
def counted_collections() -> Iterator[list[int]]:
    """Collect the generation of every collection that Python starts."""
    generations: list[int] = []

    def on_collection(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            generations.append(info["generation"])

    gc.callbacks.append(on_collection)
    try:
        yield generations
    finally:
        gc.callbacks.remove(on_collection)


def allocate() -> list[list[int]]:
    """Make many more live objects than Python's default threshold of 700."""
    return [[] for _ in range(20_000)]


def test_live_objects_start_no_collection_inside_gc_paused() -> None:
    with counted_collections() as usual:
        allocate()
    with gc_paused(), counted_collections() as paused:
        allocate()
    with counted_collections() as after:
        allocate()
    assert usual
    assert not paused
    assert after


def test_thresholds_are_restored_after_an_error() -> None:
    before = gc.get_threshold()
    with pytest.raises(ValueError, match="during the run"), gc_paused():
        raise ValueError("during the run")
    assert gc.get_threshold() == before


@pytest.mark.parametrize("fails", [False, True])
def test_collection_is_paused_only_during_a_run(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    before, during = gc.get_threshold(), []
    finish = Simulation.finish

    def observed(self: Simulation) -> object:
        with counted_collections() as collections:
            allocate()
        during.append(collections)
        if fails:
            raise ValueError("during the run")
        return finish(self)

    monkeypatch.setattr(Simulation, "finish", observed)
    if fails:
        with pytest.raises(ValueError, match="during the run"):
            simulate(cheap(small_scenario(rounds=1)))
    else:
        simulate(cheap(small_scenario(rounds=1)))
    assert during == [[]]
    assert gc.get_threshold() == before
