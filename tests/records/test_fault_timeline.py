"""The reducer of fault records."""

from __future__ import annotations

from typing import Any

import pytest

from rdpfl_sim.errors import RunError
from rdpfl_sim.records.fault_timeline import (
    CHANGES,
    Condition,
    FaultEffect,
    FaultInterval,
    FaultTimeline,
    fault_intervals,
)
from rdpfl_sim.world.faults.fault import fault_classes


def fault(time_s: float, change: str, **fields: Any) -> dict[str, Any]:
    return {"event": "fault", "time_s": time_s, "fault": 0, "change": change, **fields}


def crash(time_s: float, *clients: int, for_good: bool = False) -> dict[str, Any]:
    return fault(time_s, "crash", clients=list(clients), for_good=for_good)


def recover(time_s: float, *clients: int) -> dict[str, Any]:
    return fault(time_s, "recover", clients=list(clients), fresh=False, catch_up=True)


def applied(*records: dict[str, Any]) -> tuple[FaultTimeline, list[FaultEffect]]:
    timeline = FaultTimeline()
    return timeline, [timeline.apply(record) for record in records]


def test_every_change_of_the_world_is_known() -> None:
    built_in = [kind for kind in fault_classes() if kind.__module__.startswith("rdpfl_sim.")]
    names = {name for kind in built_in for name in (kind.START, kind.END) if name is not None}
    assert names == CHANGES


def test_unknown_change_is_an_error() -> None:
    with pytest.raises(RunError, match="unknown fault change 'meteor'"):
        FaultTimeline().apply(fault(0.0, "meteor", clients=[0]))


def test_crashed_client_is_stopped_until_it_recovers() -> None:
    timeline, (first, second) = applied(crash(1.0, 2, 3), recover(4.0, 3))
    assert first == FaultEffect(stopped=[2, 3], resumed=[], ended=[], unmatched=[])
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
        fault(0.0, "absent", clients=[1]), crash(1.0, 1), fault(2.0, "join", clients=[1]), recover(3.0, 1)
    )
    assert [effect.resumed for effect in effects] == [[], [], [], [1]]


def test_client_does_not_return_from_a_departure_or_a_crash_for_good() -> None:
    timeline, effects = applied(
        fault(0.0, "leave", clients=[0]), crash(1.0, 1, for_good=True), crash(2.0, 0, 1), recover(3.0, 0, 1)
    )
    assert timeline.stopped_for_good == timeline.stopped == {0, 1}
    assert timeline.departed == {0}
    assert effects[-1].resumed == effects[-1].unmatched == []
    assert timeline.apply(recover(4.0, 1)).unmatched == [1], "a crash for good has no end"


def test_end_without_a_start_is_unmatched_and_changes_nothing() -> None:
    timeline, _ = applied(crash(0.0, 1))
    assert timeline.apply(fault(1.0, "join", clients=[1])).unmatched == [1]
    assert timeline.apply(fault(1.0, "unslow", clients=[1], factor=2.0)).unmatched == [1]
    assert timeline.apply(fault(1.0, "links_up", links=[[0, 1]])).unmatched == [(0, 1)]
    assert timeline.apply(fault(1.0, "heal", sides=[[0], [1]])).unmatched == [
        (frozenset([0]), frozenset([1]))
    ]
    assert timeline.stopped == {1}


def test_slowdowns_multiply_and_end_one_by_one() -> None:
    slow = [fault(1.0, "slow", clients=[4], factor=factor) for factor in (2.0, 3.0)]
    timeline, _ = applied(*slow)
    assert timeline.slow == {4: 6.0}
    assert timeline.apply(fault(2.0, "unslow", clients=[4], factor=2.0)).ended == []
    assert timeline.slow == {4: 3.0}
    assert timeline.stopped == set()


def test_partition_separates_its_sides_only() -> None:
    timeline, _ = applied(fault(1.0, "cut", sides=[[0, 1], [2]]))
    assert timeline.is_partitioned(0, 2)
    assert timeline.is_partitioned(2, 1)
    assert not timeline.is_partitioned(0, 1), "same side"
    assert not timeline.is_partitioned(0, 3), "3 is on no side"
    timeline.apply(fault(2.0, "heal", sides=[[0, 1], [2]]))
    assert not timeline.is_partitioned(0, 2)
    assert not timeline.partitions


def test_link_outage_has_a_direction() -> None:
    timeline, _ = applied(fault(1.0, "links_down", links=[[0, 1], [2, 1]]))
    assert timeline.links_down == {(0, 1), (2, 1)}
    assert timeline.apply(fault(3.0, "links_up", links=[[2, 1]])).ended == [
        FaultInterval(Condition.LINK_DOWN, (2, 1), 1.0, 3.0)
    ]


def test_rows_of_a_table_with_empty_columns_are_records_too() -> None:
    empty = dict.fromkeys(("clients", "links", "sides", "factor", "for_good"))
    rows = [
        {**empty, **crash(0.0, 1)},
        {**empty, **recover(2.0, 1)},
        {**empty, **fault(3.0, "rewire", links=[])},
    ]
    assert list(fault_intervals(rows)) == [FaultInterval(Condition.CRASHED, 1, 0.0, 2.0)]
