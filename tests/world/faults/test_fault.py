"""Properties of every fault class, whether or not a scenario can schedule it."""

from collections.abc import Iterator
from dataclasses import dataclass

import orjson
import pytest

from rdpfl_sim.simulation.checkpoint_file import Decoder, Encoder
from rdpfl_sim.world.faults.crash import Crash
from rdpfl_sim.world.faults.fault import Condition, End, Fault, Start, fault_class, fault_classes
from rdpfl_sim.world.faults.join_and_leave import Absence, Leave
from rdpfl_sim.world.faults.link_outage import LinkOutage
from rdpfl_sim.world.faults.partition import Partition
from rdpfl_sim.world.faults.slow_down import SlowDown
from rdpfl_sim.world.faults.topology_change import TopologyChange
from tests.support import TinyWorld

EXAMPLES: list[Fault] = [
    Partition((frozenset({0}), frozenset({1, 2}))),
    LinkOutage(((0, 1), (1, 0))),
    Crash((1,)),
    Absence((2,)),
    Leave((2,)),
    SlowDown((0, 1), 3.0),
    TopologyChange(((1,), (0,), ())),
]
built_in = pytest.mark.parametrize("fault", EXAMPLES, ids=lambda fault: type(fault).__name__)


def test_every_fault_class_has_an_example() -> None:
    built_in = {kind for kind in fault_classes() if kind.__module__.startswith("rdpfl_sim.")}
    assert built_in == {type(fault) for fault in EXAMPLES}


def test_kinds_are_different() -> None:
    assert len({fault.KIND for fault in EXAMPLES}) == len(EXAMPLES)


@built_in
def test_class_is_found_by_its_kind(fault: Fault) -> None:
    assert fault_class(fault.KIND) is type(fault)
    assert fault_class("meteor") is None


@built_in
def test_end_undoes_the_start(fault: Fault) -> None:
    def state() -> list[object]:
        slowdowns = [world.training_times.duration_s(client, 1) for client in range(3)]
        counts = +world.num_stops, +world.num_withdrawals
        return [repr(vars(world.obstacles)), counts, slowdowns, world.topology]

    world = TinyWorld().world
    before = state()
    Start(fault).apply(world)
    assert state() != before
    if fault.ends():
        End(fault).apply(world)
        assert state() == before


@built_in
def test_fault_without_an_end_cannot_end(fault: Fault) -> None:
    if not fault.ends():
        with pytest.raises(NotImplementedError, match="never ends"):
            End(fault).apply(TinyWorld().world)
        with pytest.raises(AssertionError, match="never ends"):
            _ = End(fault).fields


def changes(fault: Fault) -> Iterator[Start | End]:
    yield Start(fault)
    if fault.ends():
        yield End(fault)


@built_in
def test_change_has_a_record(fault: Fault) -> None:
    for change, phase in zip(changes(fault), ("start", "end"), strict=False):
        record = orjson.loads(orjson.dumps(change.fields))
        assert (record["kind"], record["phase"]) == (fault.KIND, phase)
        assert record.keys() & {"clients", "links", "sides"}, "a report shows what is affected"


def written_and_read(fault: Fault) -> list[Start | End]:
    classes = [Start, End, *fault_classes()]
    encoder = Encoder({}, classes)
    plain = encoder.encode(list(changes(fault)))
    return Decoder({}, classes, encoder.values, encoder.tensors).decode(plain)


@built_in
def test_change_survives_a_checkpoint(fault: Fault) -> None:
    assert written_and_read(fault) == list(changes(fault))


def test_fault_of_a_plug_in_survives_a_checkpoint() -> None:
    @dataclass(frozen=True)
    class Blackout(Fault):
        KIND, CONDITION = "blackout", Condition.CRASHED

        clients: tuple[int, ...]

    assert written_and_read(Blackout((1,))) == [Start(Blackout((1,))), End(Blackout((1,)))]
    assert Start(Blackout((1,))).fields == {"kind": "blackout", "phase": "start", "clients": (1,)}
