"""Schedules of attacks. In the worlds, client 2 sends 1 instead of its direction 3 while it attacks."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdpfl_sim.attacks import label_flip, min_max
from rdpfl_sim.attacks.equivocation import mirrored
from rdpfl_sim.world.adversary.adversary import Plan
from rdpfl_sim.world.adversary.schedules import (
    SCHEDULES,
    AttackSchedule,
    ScheduleView,
    always,
    during_partitions,
    intermittent,
    sleeper,
    window,
)
from rdpfl_sim.world.adversary.timing import silent
from rdpfl_sim.world.faults.fault import End, Start
from rdpfl_sim.world.faults.partition import Partition
from rdpfl_sim.world.faults.topology_change import TopologyChange
from rdpfl_sim.world.network.links import Link
from rdpfl_sim.world.waiting import Wait
from tests.support import TinyWorld

COMPLETE = [(1, 2, 3), (0, 2, 3), (0, 1, 3), (0, 1, 2)]


def moment(
    round_: int = 1, time_s: float = 0.0, partitioned: bool = False, num_trusted: int = 0
) -> ScheduleView:
    return ScheduleView(round_, time_s, partitioned, lambda: num_trusted)


def never(moment: ScheduleView) -> bool:
    return False


def rounds_of_attack(schedule: AttackSchedule, rounds: int = 10) -> list[int]:
    return [round_ for round_ in range(1, rounds + 1) if schedule(moment(round_))]


def lies(schedule: AttackSchedule, **world: Any) -> dict[int, float]:
    """Return what client 2 of a triangle sends to client 0, by round: its direction 3, or the forged 1."""
    plan = Plan(min_max, sees_honest=True, schedule=schedule, patience_s=0.5)
    return told(TinyWorld(byzantine=(2,), plan=plan, **{"rounds": 5, **world}).run())


def told(world: TinyWorld, sender: int = 2) -> dict[int, float]:
    return {
        stamp: round(vector[0].item(), 4)
        for (_, who, recipient, stamp), vector in zip(world.log.sent, world.log.payloads, strict=True)
        if (who, recipient) == (sender, 0)
    }


# One moment


def test_always_is_in_every_round() -> None:
    assert rounds_of_attack(always) == list(range(1, 11))


@pytest.mark.parametrize(
    ("options", "rounds"),
    [
        ({}, list(range(1, 11))),
        ({"from_round": 8}, [8, 9, 10]),
        ({"until_round": 3}, [1, 2, 3]),
        ({"from_round": 4, "until_round": 4}, [4]),
    ],
)
def test_window_of_rounds_includes_both_ends(options: dict[str, Any], rounds: list[int]) -> None:
    assert rounds_of_attack(partial(window, **options)) == rounds


def test_window_of_seconds_includes_its_start_but_not_its_end() -> None:
    schedule = partial(window, from_s=2.0, until_s=4.0)
    assert [t for t in (0.0, 1.999, 2.0, 3.0, 3.999, 4.0, 9.0) if schedule(moment(time_s=t))] == [
        2.0,
        3.0,
        3.999,
    ]


def test_window_of_rounds_and_seconds_is_their_intersection() -> None:
    schedule = partial(window, from_round=3, until_s=4.0)
    moments = [(2, 3.0), (3, 3.0), (3, 4.0), (2, 4.0)]
    assert [schedule(moment(round_, time_s)) for round_, time_s in moments] == [False, True, False, False]


@pytest.mark.parametrize(
    ("on", "off", "rounds"),
    [(1, 1, [1, 3, 5, 7, 9]), (2, 3, [1, 2, 6, 7]), (3, 1, [1, 2, 3, 5, 6, 7, 9, 10])],
)
def test_intermittent_schedule_starts_with_an_attack(on: int, off: int, rounds: list[int]) -> None:
    assert rounds_of_attack(partial(intermittent, rounds_on=on, rounds_off=off)) == rounds


@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 1000))
def test_intermittent_schedule_attacks_a_fixed_number_of_rounds_per_period(
    on: int, off: int, first: int
) -> None:
    schedule = partial(intermittent, rounds_on=on, rounds_off=off)
    assert sum(schedule(moment(round_)) for round_ in range(first, first + on + off)) == on


def test_during_partitions_attacks_only_while_a_partition_is_active() -> None:
    assert [during_partitions(moment(partitioned=partitioned)) for partitioned in (True, False)] == [
        True,
        False,
    ]


def test_sleeper_attacks_after_the_required_number_of_messages() -> None:
    schedule = partial(sleeper, messages=4)
    assert [schedule(moment(num_trusted=count)) for count in (0, 3, 4, 5)] == [False, False, True, True]


def test_messages_are_only_counted_for_a_sleeper() -> None:
    def count() -> int:
        raise AssertionError("nobody needs to know")

    for name, schedule in SCHEDULES.items():
        if name != "sleeper":
            schedule(ScheduleView(1, 0.0, False, count))


# In a world


def test_attack_is_limited_to_a_window_of_rounds() -> None:
    schedule = partial(window, from_round=2, until_round=3)
    assert lies(schedule) == {1: 3.0, 2: 1.0, 3: 1.0, 4: 3.0, 5: 3.0}


def test_attack_is_limited_to_a_window_of_seconds() -> None:
    # A round takes 1.25; the messages are sent at 1, 2.25, 3.5, 4.75 and 6.
    assert lies(partial(window, from_s=2.25, until_s=4.75)) == {1: 3.0, 2: 1.0, 3: 1.0, 4: 3.0, 5: 3.0}
    assert lies(partial(window, from_s=2.5)) == {1: 3.0, 2: 3.0, 3: 1.0, 4: 1.0, 5: 1.0}


def test_intermittent_attack_alternates_with_honest_rounds() -> None:
    schedule = partial(intermittent, rounds_on=1, rounds_off=2)
    assert lies(schedule) == {1: 1.0, 2: 3.0, 3: 3.0, 4: 1.0, 5: 3.0}


def test_attack_is_limited_to_a_partition() -> None:
    sides = (frozenset({0}), frozenset({1}))
    faults = [iter([(2.0, Start(Partition(sides))), (4.0, End(Partition(sides)))])]
    # Client 0 receives nothing from client 1, so its rounds 2 and 3 end at their deadlines 2.75 and 4.25.
    # The attacker sends at 1, 2.25, 3.75 (it has waited for the others), 5 and 6.5.
    assert lies(during_partitions, faults=faults, wait=Wait(1.0, 0.5)) == {
        1: 3.0,
        2: 1.0,
        3: 1.0,
        4: 3.0,
        5: 3.0,
    }


def test_attack_during_partitions_lasts_until_the_last_of_them_heals() -> None:
    one, other = (frozenset({0}), frozenset({1})), (frozenset({1}), frozenset({0, 2}))
    changes = [
        (2.0, Start(Partition(one))),
        (2.1, Start(Partition(other))),
        (2.2, End(Partition(one))),
        (4.0, End(Partition(other))),
    ]
    assert lies(during_partitions, faults=[iter(changes)], wait=Wait(1.0, 0.5), rounds=2) == {1: 3.0, 2: 1.0}


def test_sleeper_attacks_after_its_neighbours_have_used_enough_of_its_messages() -> None:
    # Each round two of its messages are used.
    assert lies(partial(sleeper, messages=4)) == {1: 3.0, 2: 3.0, 3: 1.0, 4: 1.0, 5: 1.0}
    assert lies(partial(sleeper, messages=5)) == {1: 3.0, 2: 3.0, 3: 3.0, 4: 1.0, 5: 1.0}


def test_sleeper_does_not_count_messages_that_were_lost() -> None:
    def loses(link: Link, draw: int, now_s: float) -> bool:
        return (link.sender, link.recipient) == (2, 1)

    # Client 1 receives nothing from client 2: one message per round is used.
    schedule = partial(sleeper, messages=2)
    assert lies(schedule, loses=loses, wait=Wait(1.0, 0.5)) == {1: 3.0, 2: 3.0, 3: 1.0, 4: 1.0, 5: 1.0}


def test_sleeper_does_not_count_stale_messages() -> None:
    # The others' rounds end at their deadline, before client 2 has sent its message.
    assert set(lies(partial(sleeper, messages=1), compute=(1.0, 1.0, 3.0), wait=Wait(1.0, 0.5)).values()) == {
        3.0
    }


def test_sleeper_does_not_count_messages_used_by_its_group() -> None:
    plan = Plan(min_max, sees_honest=True, schedule=partial(sleeper, messages=3))
    world = TinyWorld(COMPLETE, byzantine=(2, 3), plan=plan, rounds=4).run()
    # Clients 0 and 1 use two of client 2's messages per round, and client 3 uses a third.
    assert told(world) == {1: 3.0, 2: 3.0, 3: 1.0, 4: 1.0}


def test_active_sleeper_stays_active_after_a_neighbour_departs() -> None:
    rewired = Start(TopologyChange(((1, 2), (0,), (0,))))
    told = lies(partial(sleeper, messages=4), faults=[iter([(4.0, rewired)])], wait=Wait(1.0, 0.5))
    assert told == {1: 3.0, 2: 3.0, 3: 1.0, 4: 1.0, 5: 1.0}


def honest_log(world: TinyWorld) -> tuple[Any, ...]:
    log = world.run().log
    return log.sent, [vector.tolist() for vector in log.payloads], log.delivered, log.rounds, log.used


@pytest.mark.parametrize("compute", [(1.0, 1.0, 1.0), (1.0, 4.0, 2.0)])
@pytest.mark.parametrize("knowledge", ["own", "neighbourhood", "omniscient"])
def test_inactive_attacker_is_like_an_honest_client(compute: Sequence[float], knowledge: Any) -> None:
    plan = Plan(
        min_max,
        sees_honest=True,
        sees_victim=True,
        timing=silent,
        equivocation=mirrored,
        knowledge=knowledge,
        schedule=never,
    )
    attacked = TinyWorld(byzantine=(2,), plan=plan, compute=compute, rounds=4, wait=Wait(1.0, 2.0))
    honest = TinyWorld(compute=compute, rounds=4, wait=Wait(1.0, 2.0))
    assert honest_log(attacked) == honest_log(honest)


def poisoned_world(
    schedule: AttackSchedule, poisons_labels: bool = True
) -> tuple[TinyWorld, list[tuple[int, int]]]:
    """Return a world after its run, and the jobs with poisoned data: client, round."""
    jobs: list[tuple[int, int]] = []

    def direction(client: int, round_: int, poisoned: bool) -> float:
        if poisoned:
            jobs.append((client, round_))
        return -100 if poisoned else client + 1

    plan = Plan(label_flip, poisons_labels=poisons_labels, schedule=schedule)
    return TinyWorld(byzantine=(2,), plan=plan, rounds=4, direction=direction).run(), jobs


def test_labels_are_flipped_only_while_the_attack_is_active() -> None:
    world, poisoned = poisoned_world(partial(window, from_round=2, until_round=3))
    assert poisoned == [(2, 2), (2, 3)]
    # The direction on poisoned data is -100.
    assert told(world) == {1: 3.0, 2: -100.0, 3: -100.0, 4: 3.0}


def test_whether_labels_are_flipped_is_decided_when_the_training_begins() -> None:
    # Training begins at 0, 1.25, 2.5 and 3.75.
    _, poisoned = poisoned_world(partial(window, from_s=0.5, until_s=2.5))
    assert poisoned == [(2, 2)]


def test_attack_that_does_not_flip_labels_trains_on_its_own_data() -> None:
    world, poisoned = poisoned_world(always, poisons_labels=False)
    assert poisoned == []
    assert set(told(world).values()) == {3.0}
