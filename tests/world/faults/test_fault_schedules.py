from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdpfl_sim.world.faults import FAULTS
from rdpfl_sim.world.faults.crash import Crash
from rdpfl_sim.world.faults.fault import End, Start, merged
from rdpfl_sim.world.faults.join_and_leave import Leave
from rdpfl_sim.world.faults.slow_down import SlowDown
from rdpfl_sim.world.faults.topology_change import TopologyChange
from tests.world.faults.schedules import INFINITE, Section, context, problems, schedule


@pytest.mark.parametrize("name", INFINITE)
def test_endless_schedule_is_lazy_and_in_order(name):
    times = [time_s for time_s, _ in islice(schedule(name, **INFINITE[name]), 1000)]
    assert len(times) == 1000
    assert times[0] > 0
    assert all(earlier <= later for earlier, later in pairwise(times))


@pytest.mark.parametrize("name", INFINITE)
def test_schedule_does_not_depend_on_other_draws(name):
    first = schedule(name, **INFINITE[name])
    beginning = list(islice(first, 3))
    other = list(islice(schedule(name, **INFINITE[name]), 50))
    assert beginning + list(islice(first, 47)) == other


@pytest.mark.parametrize("name", sorted(set(INFINITE) - {"resample_topology"}))
def test_another_key_gives_another_schedule(name):
    first, second = (list(islice(schedule(name, context(key=key), **INFINITE[name]), 9)) for key in (1, 2))
    assert first != second


@pytest.mark.parametrize(
    ("name", "num_independent"), [("random_partitions", 1), ("random_outages", 5), ("random_crashes", 5)]
)
def test_mean_times_are_those_of_the_options(name, num_independent):
    # A fault starts every (3 + 1) / num_independent seconds on average, and lasts 1 of 4 s.
    changes = list(islice(schedule(name, **INFINITE[name]), 8000))
    signs = [1 if isinstance(change, Start) else -1 for _, change in changes]
    times = np.array([time_s for time_s, _ in changes])
    assert times[-1] == pytest.approx(8000 / 2 * 4 / num_independent, rel=0.05)
    down_s = (np.cumsum(signs)[:-1] * np.diff(times)).sum()
    assert down_s / num_independent / times[-1] == pytest.approx(1 / 4, rel=0.07)


def test_merged_schedules_are_in_order_of_time_and_then_of_position():
    late = schedule("leave", clients=[0], at_s=5.0)
    slow = schedule("slow_down", clients=[1], factor=2.0, until_s=5.0)
    endless = schedule("resample_topology", every_s=2.5)
    assert list(islice(merged([late, slow, endless]), 6)) == [
        (0.0, 1, Start(SlowDown((1,), 2.0))),
        (2.5, 2, Start(TopologyChange(((1,), (0,))))),
        (5.0, 0, Start(Leave((0,)))),
        (5.0, 1, End(SlowDown((1,), 2.0))),
        (5.0, 2, Start(TopologyChange(((2,), (0,))))),
        (7.5, 2, Start(TopologyChange(((3,), (0,))))),
    ]


def test_no_schedules_merge_to_no_changes():
    assert list(merged([])) == []


@given(times=st.lists(st.lists(st.integers(0, 5)), max_size=4))
def test_merging_is_a_stable_sort(times):
    items = [[(float(t), Start(Leave((n,)))) for n, t in enumerate(sorted(own))] for own in times]
    flat = [(t, position, change) for position, own in enumerate(items) for t, change in own]
    assert list(merged(map(iter, items))) == sorted(flat, key=lambda item: item[0])


def test_only_a_slow_down_cannot_lose_messages():
    assert [name for name in FAULTS if not FAULTS.facts(name).may_lose_messages] == ["slow_down"]


def test_equal_changes_are_one_member_of_a_set():
    assert len({Start(Crash((1,))), Start(Crash((1,))), End(Crash((1,))), Start(Leave((1,)))}) == 3


def test_every_fault_has_a_schema_and_is_bound_by_the_registry():
    assert "random_outages_options" in str(Section.model_json_schema())
    fault = {"name": "crash", "clients": "0..1", "at_s": 2, "recover_after_s": 1}
    changes = Section.model_validate({"fault": fault}).fault.bind()(context())
    assert [time_s for time_s, _ in changes] == [2.0, 3.0]


def test_times_too_short_to_advance_the_clock_are_rejected():
    (problem,) = problems("resample_topology", every_s=1e-9)
    assert problem == (("every_s",), "must be >= 1e-06")
