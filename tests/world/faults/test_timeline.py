"""The state of faults, computed from fault records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from rdpfl_sim.errors import RunError
from rdpfl_sim.world.faults.crash import Crash
from rdpfl_sim.world.faults.fault import Condition, Fault, fault_classes
from rdpfl_sim.world.faults.timeline import (
    FaultEffect,
    FaultInterval,
    FaultTimeline,
    condition_of,
    fault_intervals,
)


def starts(time_s: float, kind: str, **fields: Any) -> dict[str, Any]:
    return {"event": "fault", "time_s": time_s, "fault": 0, "kind": kind, "phase": "start", **fields}


def ends(time_s: float, kind: str, **fields: Any) -> dict[str, Any]:
    return {**starts(time_s, kind, **fields), "phase": "end"}


def crash(time_s: float, *clients: int, for_good: bool = False) -> dict[str, Any]:
    return starts(time_s, "crash", clients=list(clients), for_good=for_good)


def recover(time_s: float, *clients: int) -> dict[str, Any]:
    return ends(time_s, "crash", clients=list(clients), fresh=False, catch_up=True)


def applied(*records: dict[str, Any]) -> tuple[FaultTimeline, list[FaultEffect]]:
    timeline = FaultTimeline()
    return timeline, [timeline.apply(record) for record in records]


@pytest.mark.parametrize(
    "kind", [kind for kind in fault_classes() if kind.__module__.startswith("rdpfl_sim.")]
)
def test_every_fault_of_the_world_has_a_known_condition(kind: type[Fault]) -> None:
    fields = {"kind": kind.KIND, "clients": [], "links": [], "sides": []}
    assert condition_of({**fields, "phase": "start"}) is kind.CONDITION
    if kind.ends():
        assert condition_of({**fields, "phase": "end"}) is kind.CONDITION
    else:
        with pytest.raises(RunError, match=f"unknown phase 'end' of a fault of kind '{kind.KIND}'"):
            condition_of({**fields, "phase": "end"})


def test_unknown_kind_or_phase_is_an_error() -> None:
    with pytest.raises(RunError, match="unknown kind of fault 'meteor'"):
        FaultTimeline().apply(starts(0.0, "meteor", clients=[0]))
    with pytest.raises(RunError, match="unknown phase 'middle'"):
        FaultTimeline().apply({**crash(0.0, 1), "phase": "middle"})


def test_fault_class_that_is_imported_later_is_known() -> None:
    @dataclass(frozen=True)
    class PowerCut(Crash):
        KIND = "power_cut"

    timeline, (effect,) = applied(starts(1.0, "power_cut", clients=[2]))
    assert (effect.stopped, timeline.stopped) == ([2], {2})
    assert PowerCut in fault_classes()


def test_crashed_client_is_stopped_until_it_recovers() -> None:
    timeline, (first, second) = applied(crash(1.0, 2, 3), recover(4.0, 3))
    assert first == FaultEffect(Condition.CRASHED, stopped=[2, 3], resumed=[], ended=[], unmatched=[])
    assert second.resumed == [3]
    assert second.ended == [FaultInterval(Condition.CRASHED, 3, 1.0, 4.0)]
    assert timeline.stopped == timeline.crashed == {2}
    assert list(timeline.active()) == [FaultInterval(Condition.CRASHED, 2, 1.0, None)]


def test_overlapping_crashes_last_until_the_last_one_ends() -> None:
    records = crash(1.0, 0), crash(2.0, 0), recover(3.0, 0), recover(5.0, 0)
    _, effects = applied(*records)
    assert [effect.stopped for effect in effects] == [[0], [], [], []]
    assert [effect.resumed for effect in effects] == [[], [], [], [0]]
    assert list(fault_intervals(records)) == [FaultInterval(Condition.CRASHED, 0, 1.0, 5.0)]


def test_absent_client_that_crashes_resumes_when_both_have_ended() -> None:
    _, effects = applied(
        starts(0.0, "absence", clients=[1]), crash(1.0, 1), ends(2.0, "absence", clients=[1]), recover(3.0, 1)
    )
    assert [effect.resumed for effect in effects] == [[], [], [], [1]]


def test_client_does_not_return_from_a_departure_or_a_permanent_crash() -> None:
    timeline, effects = applied(
        starts(0.0, "leave", clients=[0]), crash(1.0, 1, for_good=True), crash(2.0, 0, 1), recover(3.0, 0, 1)
    )
    assert timeline.stopped_for_good == timeline.stopped == {0, 1}
    assert timeline.departed == {0}
    assert effects[-1].resumed == effects[-1].unmatched == []
    assert timeline.apply(recover(4.0, 1)).unmatched == [1], "a crash for good has no end"


def test_end_without_a_start_is_unmatched_and_changes_nothing() -> None:
    timeline, _ = applied(crash(0.0, 1))
    assert timeline.apply(ends(1.0, "absence", clients=[1])).unmatched == [1]
    assert timeline.apply(ends(1.0, "slow_down", clients=[1], factor=2.0)).unmatched == [1]
    assert timeline.apply(ends(1.0, "link_outage", links=[[0, 1]])).unmatched == [(0, 1)]
    assert timeline.apply(ends(1.0, "partition", sides=[[0], [1]])).unmatched == [
        (frozenset([0]), frozenset([1]))
    ]
    assert timeline.stopped == {1}


def test_slowdowns_multiply_and_end_separately() -> None:
    slow = [starts(1.0, "slow_down", clients=[4], factor=factor) for factor in (2.0, 3.0)]
    timeline, _ = applied(*slow)
    assert timeline.slow == {4: 6.0}
    assert timeline.apply(ends(2.0, "slow_down", clients=[4], factor=2.0)).ended == []
    assert timeline.slow == {4: 3.0}
    assert timeline.stopped == set()


def test_partition_separates_its_sides_only() -> None:
    timeline, _ = applied(starts(1.0, "partition", sides=[[0, 1], [2]]))
    assert timeline.is_partitioned(0, 2)
    assert timeline.is_partitioned(2, 1)
    assert not timeline.is_partitioned(0, 1), "same side"
    assert not timeline.is_partitioned(0, 3), "3 is on no side"
    timeline.apply(ends(2.0, "partition", sides=[[0, 1], [2]]))
    assert not timeline.is_partitioned(0, 2)
    assert not timeline.partitions


def test_link_outage_has_a_direction() -> None:
    timeline, _ = applied(starts(1.0, "link_outage", links=[[0, 1], [2, 1]]))
    assert timeline.links_down == {(0, 1), (2, 1)}
    assert timeline.apply(ends(3.0, "link_outage", links=[[2, 1]])).ended == [
        FaultInterval(Condition.LINK_DOWN, (2, 1), 1.0, 3.0)
    ]


def test_topology_change_replaces_all_links() -> None:
    timeline, (effect,) = applied(starts(3.0, "topology_change", links=[[0, 1]]))
    assert effect == FaultEffect(None, [], [], [], [])
    assert timeline.links == [[0, 1]]


def test_rows_of_a_table_with_empty_columns_are_records_too() -> None:
    empty = dict.fromkeys(("clients", "links", "sides", "factor", "for_good"))
    rows = [
        {**empty, **crash(0.0, 1)},
        {**empty, **recover(2.0, 1)},
        {**empty, **starts(3.0, "topology_change", links=[])},
    ]
    assert list(fault_intervals(rows)) == [FaultInterval(Condition.CRASHED, 1, 0.0, 2.0)]
