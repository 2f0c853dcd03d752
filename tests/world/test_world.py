"""Effects of faults on clients, with a fake trainer and constant links: exact simulated times."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rdpfl_sim.methods.base import RunInfo
from rdpfl_sim.methods.local import Local
from rdpfl_sim.world.client import Phase
from rdpfl_sim.world.faults.crash import Crash
from rdpfl_sim.world.faults.fault import Change, End, Start
from rdpfl_sim.world.faults.join_and_leave import Absence, Leave
from rdpfl_sim.world.faults.link_outage import LinkOutage
from rdpfl_sim.world.faults.partition import Partition
from rdpfl_sim.world.faults.slow_down import SlowDown
from rdpfl_sim.world.faults.topology_change import TopologyChange
from rdpfl_sim.world.network.bandwidth import Uplink
from rdpfl_sim.world.network.transport import reliable
from rdpfl_sim.world.staleness import Staleness
from rdpfl_sim.world.waiting import Wait
from tests.support import RING, TRIANGLE, TinyWorld

PATIENT = Wait(1.0, 0.5)
"""Wait for all, but half a second at most: twice the latency."""
NO_WAIT = Wait(0.0, None)
PAIR_AND_HERMIT = [(1,), (0,), ()]
"""Client 2 has no neighbours and only trains locally."""


def sides(*clients: set[int]) -> tuple[frozenset[int], ...]:
    return tuple(map(frozenset, clients))


def crash(client: int, at_s: float, until_s: float, fresh: bool = False, catch_up: bool = True) -> list[Any]:
    return [(at_s, Start(Crash((client,)))), (until_s, End(Crash((client,), fresh=fresh, catch_up=catch_up)))]


def rounds(world: TinyWorld, client: int) -> list[tuple[float, int]]:
    """Return the time and number of each round that a client finished."""
    return [(time_s, round_) for time_s, who, round_, _ in world.log.rounds if who == client]


def num_used(world: TinyWorld, client: int) -> list[int]:
    """Return the number of messages that a client used in each round."""
    return [used for _, who, _, used in world.log.rounds if who == client]


# Partitions


def test_messages_between_sides_are_lost_when_sent() -> None:
    cut = sides({0}, {1})
    world = TinyWorld(
        wait=PATIENT, rounds=1, faults=[[(0.5, Start(Partition(cut))), (1.1, End(Partition(cut)))]]
    ).run()
    assert world.log.lost == [(1.0, 0, 1, "partition"), (1.0, 1, 0, "partition")]
    assert [num_used(world, i) for i in range(3)] == [[1], [1], [2]], "client 2 is on no side"
    assert [world.times(i) for i in range(3)] == [[1.5], [1.5], [1.25]]


def test_messages_between_sides_are_lost_on_arrival() -> None:
    cut = sides({0}, {1})
    world = TinyWorld(
        wait=PATIENT, rounds=1, faults=[[(1.1, Start(Partition(cut))), (1.3, End(Partition(cut)))]]
    ).run()
    assert world.log.lost == [(1.25, 0, 1, "partition"), (1.25, 1, 0, "partition")]
    assert [num_used(world, i) for i in range(3)] == [[1], [1], [2]]


def test_partition_that_ends_before_messages_arrive_loses_none() -> None:
    cut = sides({0}, {1, 2})
    world = TinyWorld(rounds=1, faults=[[(1.1, Start(Partition(cut))), (1.2, End(Partition(cut)))]]).run()
    assert world.log.lost == []
    assert [world.times(i) for i in range(3)] == [[1.25]] * 3


def test_messages_within_a_side_are_delivered() -> None:
    world = TinyWorld(wait=PATIENT, rounds=1, faults=[[(0.0, Start(Partition(sides({0, 1}, {2}))))]]).run()
    assert {(i, j) for _, i, j, _ in world.log.delivered} == {(0, 1), (1, 0)}


def test_every_two_of_three_sides_are_separated() -> None:
    world = TinyWorld(wait=PATIENT, rounds=1, faults=[[(0.0, Start(Partition(sides({0}, {1}, {2}))))]]).run()
    assert world.network.num_lost == world.network.num_sent == 6


@pytest.mark.parametrize("others", [sides({0}, {1}), sides({0, 2}, {1})])
def test_overlapping_partitions_end_separately(others: tuple[frozenset[int], ...]) -> None:
    cut = sides({0}, {1})
    world = TinyWorld(
        wait=PATIENT,
        rounds=2,
        faults=[
            [(0.5, Start(Partition(cut))), (1.75, End(Partition(cut)))],
            [(0.6, Start(Partition(others))), (0.7, End(Partition(others)))],
        ],
    ).run()
    lost = {(time_s, i, j) for time_s, i, j, _ in world.log.lost}
    assert lost == {(1.0, 0, 1), (1.0, 1, 0)}, "one cut goes on until 1.75, both are over in round 2"


# Outages of links


def test_one_way_outage_loses_messages_in_one_direction() -> None:
    world = TinyWorld(wait=PATIENT, rounds=1, faults=[[(0.0, Start(LinkOutage(((0, 1),))))]]).run()
    assert world.log.lost == [(1.0, 0, 1, "link is down")]
    assert [num_used(world, i) for i in range(3)] == [[2], [1], [2]]


def test_outage_that_starts_during_transit_loses_the_message_on_arrival() -> None:
    outage = ((0, 1), (1, 0))
    world = TinyWorld(
        wait=PATIENT, rounds=1, faults=[[(1.1, Start(LinkOutage(outage))), (9.0, End(LinkOutage(outage)))]]
    ).run()
    assert world.log.lost == [(1.25, 0, 1, "link is down"), (1.25, 1, 0, "link is down")]


def test_overlapping_outages_end_separately() -> None:
    link = ((0, 1),)
    world = TinyWorld(
        wait=PATIENT,
        rounds=2,
        faults=[
            [(0.1, Start(LinkOutage(link))), (0.9, End(LinkOutage(link)))],
            [(0.5, Start(LinkOutage(link))), (1.6, End(LinkOutage(link)))],
        ],
    ).run()
    assert world.log.lost == [(1.0, 0, 1, "link is down")]


# Crashes


def test_messages_to_a_crashed_client_are_lost() -> None:
    world = TinyWorld(wait=PATIENT, rounds=1, faults=[crash(2, 0.5, 3.0)]).run()
    assert world.log.lost == [(1.0, 0, 2, "recipient is down"), (1.0, 1, 2, "recipient is down")]
    assert [entry for entry in world.log.sent if entry[1] == 2] == [], "its training is lost"


def test_messages_that_reach_a_client_after_its_crash_are_lost() -> None:
    world = TinyWorld(wait=PATIENT, rounds=1, faults=[crash(2, 1.1, 3.0)]).run()
    assert world.log.lost == [(1.25, 0, 2, "recipient is down"), (1.25, 1, 2, "recipient is down")]


def test_messages_sent_before_a_crash_still_arrive() -> None:
    world = TinyWorld(wait=PATIENT, rounds=1, faults=[[(1.1, Start(Crash((2,), for_good=True)))]]).run()
    assert [num_used(world, i) for i in (0, 1)] == [[2], [2]]
    assert rounds(world, 2) == []


@pytest.mark.parametrize(("fresh", "model"), [(False, -6.0), (True, -3.0)])
def test_recovered_client_continues_with_its_own_or_a_new_model(fresh: bool, model: float) -> None:
    world = TinyWorld(PAIR_AND_HERMIT, faults=[crash(2, 1.5, 2.0, fresh=fresh)]).run()
    # It decreases by 3 per round; the first ended before the crash, the second is trained again from 2 on.
    assert rounds(world, 2) == [(1.0, 1), (3.0, 2)]
    assert world.clients[2].state.learning.w[0].tolist() == [model] * 2


@pytest.mark.parametrize(("fresh", "used"), [(False, [2]), (True, [0])])
def test_messages_in_the_mailbox_survive_a_crash_unless_the_client_restarts(fresh, used) -> None:
    world = TinyWorld(
        compute=(1.0, 1.0, 2.0), wait=PATIENT, rounds=1, faults=[crash(2, 1.5, 1.75, fresh, catch_up=False)]
    ).run()
    assert num_used(world, 2) == used
    assert world.log.dropped.count((1, "stale")) == (2 if fresh else 0)


def test_client_with_a_new_model_does_not_wait_for_messages_that_it_dropped() -> None:
    world = TinyWorld(compute=(1.0, 1.0, 2.0), rounds=1, faults=[crash(2, 1.5, 1.75, fresh=True)]).run()
    assert rounds(world, 2) == [(3.75, 1)]


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [
        (True, [(1.0, 1), (5.25, 5), (6.25, 6)]),
        (False, [(1.0, 1), (5.25, 2), (6.25, 3), (7.25, 4), (8.25, 5), (9.25, 6)]),
    ],
)
def test_recovered_client_continues_at_the_round_of_its_neighbours_or_its_own(catch_up, expected) -> None:
    world = TinyWorld(wait=NO_WAIT, rounds=6, faults=[crash(2, 1.5, 4.25, catch_up=catch_up)]).run()
    assert rounds(world, 2) == expected
    assert world.ended_at_s == expected[-1][0]


def test_client_catches_up_with_its_most_advanced_running_neighbour() -> None:
    faults = [crash(2, 0.5, 4.25), crash(1, 4.1, 9.0)]
    world = TinyWorld(compute=(2.0, 1.0, 1.0), wait=NO_WAIT, rounds=9, faults=faults).run(until_s=4.5)
    assert [client.state.round for client in world.clients] == [3, 5, 3]
    world = TinyWorld(compute=(2.0, 1.0, 1.0), wait=NO_WAIT, rounds=9, faults=faults[:1]).run(until_s=4.5)
    assert [client.state.round for client in world.clients] == [3, 5, 5]


def test_client_catches_up_only_with_neighbours() -> None:
    world = TinyWorld(RING, compute=(1.0, 2.0, 9.0, 2.0), wait=NO_WAIT, rounds=9, faults=[crash(2, 0.5, 4.5)])
    world.run(until_s=4.75)
    assert [client.state.round for client in world.clients] == [5, 3, 3, 3]


def test_catching_up_never_reduces_the_round() -> None:
    world = TinyWorld(compute=(3.0, 3.0, 1.0), wait=NO_WAIT, rounds=9, faults=[crash(2, 2.5, 2.75)])
    world.run(until_s=4.0)
    assert rounds(world, 2) == [(1.0, 1), (2.0, 2), (3.75, 3)]


def test_ids_do_not_matter_when_clients_recover_together() -> None:
    def rounds_after(fast: int, middle: int, slow: int) -> list[int]:
        line = [(1,), (0, 2), (1,)]
        down = tuple(sorted((middle, slow)))
        faults = [[(4.5, Start(Crash(down))), (6.1, End(Crash(down, fresh=False, catch_up=True)))]]
        compute = [3.0 if client == slow else 1.0 for client in range(3)]
        world = TinyWorld(line, compute=compute, wait=NO_WAIT, rounds=9, faults=faults).run(until_s=6.2)
        return [world.clients[client].state.round for client in (fast, middle, slow)]

    assert rounds_after(fast=0, middle=1, slow=2) == rounds_after(fast=2, middle=1, slow=0)


def test_client_that_catches_up_with_finished_neighbours_is_finished() -> None:
    world = TinyWorld(wait=NO_WAIT, rounds=3, faults=[crash(2, 1.5, 10.0)]).run()
    assert rounds(world, 2) == [(1.0, 1)]
    assert world.clients[2].state.phase is Phase.FINISHED
    assert world.ended_at_s == 10.0


def test_interrupted_training_starts_again() -> None:
    world = TinyWorld(PAIR_AND_HERMIT, compute=(1.0, 1.0, 2.0), rounds=1, faults=[crash(2, 1.0, 1.5)]).run()
    assert rounds(world, 2) == [(3.5, 1)]
    assert world.clients[2].state.learning.w[0].tolist() == [-3.0] * 2


def test_client_that_crashes_while_it_waits_repeats_its_round_and_its_messages() -> None:
    world = TinyWorld(
        compute=(1.0, 1.0, 9.0), rounds=1, wait=Wait(1.0, 20.0), faults=[crash(0, 2.0, 3.0)]
    ).run()
    assert [time_s for time_s, sender, _, _ in world.log.sent if sender == 0] == [1.0, 1.0, 4.0, 4.0]
    assert world.log.dropped == [(1, "duplicate"), (1, "duplicate")]
    assert [rounds(world, i) for i in range(3)] == [[(9.25, 1)], [(9.25, 1)], [(9.0, 1)]]


def test_deadline_of_a_crashed_client_is_cancelled() -> None:
    world = TinyWorld(
        compute=(1.0, 9.0, 9.0), rounds=1, wait=Wait(1.0, 2.0), faults=[crash(0, 2.0, 2.5)]
    ).run()
    # Its first deadline was 3.0; it trains again until 3.5 and waits until 5.5.
    assert rounds(world, 0) == [(5.5, 1)]


def test_crash_after_the_last_round_changes_nothing() -> None:
    world = TinyWorld(faults=[crash(2, 3.0, 4.0, fresh=True)]).run()
    assert world.ended_at_s == 2.5
    assert rounds(world, 2) == [(1.25, 1), (2.5, 2)]
    assert world.clients[2].state.phase is Phase.FINISHED
    [w] = world.clients[2].state.learning.w
    assert w.tolist() == TinyWorld().run().clients[2].state.learning.w[0].tolist()


@pytest.mark.parametrize("catch_up", [True, False])
def test_finished_client_that_restarts_keeps_its_model_and_stays_finished(catch_up: bool) -> None:
    faults = [crash(2, 2.5, 4.0, fresh=True, catch_up=catch_up)]
    plain = TinyWorld(compute=(3.0, 3.0, 1.0), wait=NO_WAIT).run()
    world = TinyWorld(compute=(3.0, 3.0, 1.0), wait=NO_WAIT, faults=faults).run()
    assert rounds(world, 2) == [(1.0, 1), (2.0, 2)]
    assert world.ended_at_s == plain.ended_at_s == 6.0
    assert world.clients[2].state.phase is Phase.FINISHED
    assert torch.equal(world.clients[2].state.learning.w, plain.clients[2].state.learning.w)
    assert world.log.lost == [(3.0, 0, 2, "recipient is down"), (3.0, 1, 2, "recipient is down")]


@pytest.mark.parametrize("for_good", [True, False])
def test_queued_messages_of_a_crashed_client_are_lost(for_good: bool) -> None:
    # A message is 8 bytes: two leave each client at 2 and 3; client 2 crashes between the two.
    faults = [
        [(2.5, Start(Crash((2,), for_good=for_good)))] if for_good else crash(2, 2.5, 2.75, catch_up=False)
    ]
    world = TinyWorld(
        rounds=1, wait=PATIENT, faults=faults, bandwidth=lambda kernel: Uplink(kernel, bytes_per_s=8.0)
    ).run()
    assert (2.5, 2, 0, "sender is down") in world.log.lost
    assert next(entry for entry in world.log.delivered if entry[1] == 2) == (2.25, 2, 1, 1)


def test_permanent_crash_does_not_prevent_the_end_of_the_run() -> None:
    world = TinyWorld(wait=PATIENT, faults=[[(0.5, Start(Crash((2,), for_good=True)))]]).run()
    assert [rounds(world, i) for i in (0, 2)] == [[(1.5, 1), (3.0, 2)], []]
    assert world.ended_at_s == 3.0


def test_world_ends_with_the_crash_of_the_last_running_client() -> None:
    world = TinyWorld(
        compute=(1.0, 1.0, 9.0), wait=NO_WAIT, faults=[[(5.0, Start(Crash((2,), for_good=True)))]]
    ).run()
    assert world.times(0) == [1.0, 2.0]
    assert world.ended_at_s == 5.0


def test_world_does_not_end_before_every_client_is_done() -> None:
    world = TinyWorld(
        compute=(1.0, 1.0, 9.0), wait=NO_WAIT, faults=[[(0.5, Start(Crash((0,), for_good=True)))]]
    )
    assert world.run(until_s=17.0).ended_at_s is None
    world.kernel.run()
    assert world.ended_at_s == 18.0


def test_world_waits_for_a_client_that_will_recover() -> None:
    world = TinyWorld(wait=NO_WAIT, faults=[crash(2, 0.5, 50.0, catch_up=False)]).run()
    assert world.ended_at_s == 52.0


def test_crash_and_recovery_at_the_same_instant_restart_the_round() -> None:
    world = TinyWorld(PAIR_AND_HERMIT, rounds=3, faults=[crash(2, 1.5, 1.5)]).run()
    assert rounds(world, 2) == [(1.0, 1), (2.5, 2), (3.5, 3)]
    assert world.clients[2].state.learning.w[0].tolist() == [-9.0] * 2


def test_recovery_and_crash_at_the_same_instant_leave_the_client_down() -> None:
    world = TinyWorld(PAIR_AND_HERMIT, rounds=3, faults=[crash(2, 1.5, 2.0) + crash(2, 2.0, 7.0)]).run()
    assert rounds(world, 2) == [(1.0, 1), (8.0, 2), (9.0, 3)]


def test_crash_comes_before_a_message_that_arrives_at_the_same_instant() -> None:
    world = TinyWorld(rounds=1, wait=Wait(1.0, 5.0), faults=[crash(2, 1.25, 2.0, catch_up=False)]).run()
    assert rounds(world, 2) == [(8.0, 1)], "the messages are lost: trained until 3, waited until the deadline"


def test_client_is_down_until_all_causes_have_ended() -> None:
    world = TinyWorld(PAIR_AND_HERMIT, faults=[crash(2, 0.25, 4.0), crash(2, 0.5, 3.0)]).run()
    assert rounds(world, 2) == [(5.0, 1), (6.0, 2)]
    world = TinyWorld(PAIR_AND_HERMIT, faults=[crash(2, 0.25, 3.0), crash(2, 0.5, 4.0)]).run()
    assert rounds(world, 2) == [(5.0, 1), (6.0, 2)]


def test_permanent_crash_has_no_recovery() -> None:
    world = TinyWorld(
        PAIR_AND_HERMIT, faults=[crash(2, 0.5, 3.0), [(1.0, Start(Crash((2,), for_good=True)))]]
    ).run()
    assert rounds(world, 2) == []
    assert 2 in world.network.obstacles.clients_down


def test_client_that_crashes_at_time_zero_starts_when_it_recovers() -> None:
    world = TinyWorld(PAIR_AND_HERMIT, faults=[crash(2, 0.0, 4.0)]).run()
    assert rounds(world, 2) == [(5.0, 1), (6.0, 2)]


def test_crash_and_recovery_at_time_zero_change_nothing() -> None:
    world = TinyWorld(faults=[crash(2, 0.0, 0.0)]).run()
    assert world.log.rounds == TinyWorld().run().log.rounds


def test_several_clients_crash_and_recover_together() -> None:
    faults = [[(1.5, Start(Crash((1, 2)))), (4.0, End(Crash((1, 2), fresh=False, catch_up=True)))]]
    world = TinyWorld([(), (), ()], faults=faults).run()
    assert [world.times(i) for i in range(3)] == [[1.0, 2.0], [1.0, 5.0], [1.0, 5.0]]


# Joining and departing


def test_no_client_waits_for_a_late_joiner_or_sends_to_it_before_it_joins() -> None:
    world = TinyWorld(rounds=6, faults=[[(0.0, Start(Absence((2,)))), (4.5, End(Absence((2,))))]]).run()
    assert world.times(0)[:3] == [1.25, 2.5, 3.75]
    assert min(time_s for time_s, _, recipient, _ in world.log.sent if recipient == 2) == 4.75
    assert world.log.lost == []


def test_late_joiner_starts_at_the_round_of_its_neighbours_which_then_wait_for_it() -> None:
    world = TinyWorld(rounds=6, faults=[[(0.0, Start(Absence((2,)))), (4.5, End(Absence((2,))))]]).run()
    # The others train round 4 until 4.75, it from 4.5 to 5.5; its message arrives at 5.75.
    assert rounds(world, 2)[0] == (5.5, 4)
    assert rounds(world, 0)[3] == (5.75, 4)
    assert [round_ for _, round_ in rounds(world, 2)] == [4, 5, 6]
    assert num_used(world, 0) == [1, 1, 1, 2, 2, 2]
    assert num_used(world, 2) == [2, 2, 2]


def test_late_joiners_are_neighbours_once_both_have_joined() -> None:
    faults = [
        [(0.0, Start(Absence((1,)))), (1.5, End(Absence((1,))))],
        [(0.0, Start(Absence((2,)))), (3.5, End(Absence((2,))))],
    ]
    world = TinyWorld(rounds=4, wait=PATIENT, faults=faults).run()
    assert {(i, j) for time_s, i, j, _ in world.log.sent if time_s < 1.5} == set()
    assert {(i, j) for time_s, i, j, _ in world.log.sent if time_s < 3.5} == {(0, 1), (1, 0)}
    assert (2, 1) in {(i, j) for _, i, j, _ in world.log.sent}


def test_late_joiner_does_nothing_after_all_others_have_finished() -> None:
    world = TinyWorld(rounds=2, faults=[[(0.0, Start(Absence((2,)))), (9.0, End(Absence((2,))))]]).run()
    assert world.times(0) == [1.25, 2.5]
    assert rounds(world, 2) == []
    assert world.ended_at_s == 9.0


def test_absent_client_that_also_crashes_joins_when_it_recovers() -> None:
    faults = [[(0.0, Start(Absence((2,)))), (2.0, End(Absence((2,))))], crash(2, 1.0, 3.0)]
    world = TinyWorld(PAIR_AND_HERMIT, faults=faults).run()
    assert rounds(world, 2) == [(4.0, 1), (5.0, 2)]


def test_neighbours_that_wait_for_a_departing_client_continue_immediately() -> None:
    world = TinyWorld(compute=(1.0, 1.0, 9.0), faults=[[(3.0, Start(Leave((2,))))]]).run()
    assert [rounds(world, i) for i in range(3)] == [[(3.0, 1), (4.25, 2)], [(3.0, 1), (4.25, 2)], []]
    assert num_used(world, 0) == [1, 1]
    assert world.ended_at_s == 4.25


def test_quorum_is_a_fraction_of_the_remaining_neighbours() -> None:
    star = [(1, 2, 3, 4), (0,), (0,), (0,), (0,)]
    world = TinyWorld(
        star,
        compute=(1.0, 1.0, 9.0, 9.0, 9.0),
        rounds=1,
        wait=Wait(0.5, None),
        faults=[[(3.0, Start(Leave((3, 4))))]],
    ).run()
    # Two of four were needed and one message had arrived; now one of two is needed.
    assert rounds(world, 0) == [(3.0, 1)]


def test_no_client_sends_to_a_departed_client_and_its_messages_in_flight_are_stale() -> None:
    world = TinyWorld(rounds=2, faults=[[(1.1, Start(Leave((2,))))]]).run()
    assert {recipient for time_s, _, recipient, _ in world.log.sent if time_s > 1.1} == {0, 1}
    assert world.log.dropped == [(1, "stale"), (1, "stale")]
    assert num_used(world, 0) == [1, 1]


def test_departed_client_never_returns() -> None:
    world = TinyWorld(faults=[[(0.5, Start(Leave((2,))))], crash(2, 0.25, 1.0)]).run()
    assert rounds(world, 2) == []
    assert world.times(0) == [1.25, 2.5]
    assert 2 in world.network.obstacles.clients_down


def test_world_ends_when_the_last_client_leaves() -> None:
    world = TinyWorld(compute=(1.0, 1.0, 9.0), wait=NO_WAIT, faults=[[(7.0, Start(Leave((2,))))]]).run()
    assert world.ended_at_s == 7.0
    world = TinyWorld(faults=[[(0.0, Start(Leave((0, 1, 2))))]]).run()
    assert (world.ended_at_s, world.log.rounds) == (0.0, [])


# Slow-downs


def test_duration_of_training_depends_on_the_factors_at_its_start() -> None:
    faults = [
        [(0.5, Start(SlowDown((2,), 3.0))), (5.0, End(SlowDown((2,), 3.0)))],
        [(2.0, Start(SlowDown((0, 2), 2.0))), (11.0, End(SlowDown((0, 2), 2.0)))],
    ]
    world = TinyWorld(PAIR_AND_HERMIT, rounds=5, faults=faults).run()
    # Factors of its five rounds: 1, 3, 3 * 2, 2, 1.
    assert world.times(2) == [1.0, 4.0, 10.0, 12.0, 13.0]


def test_two_equal_slow_downs_end_separately() -> None:
    faults = [
        [(0.0, Start(SlowDown((2,), 2.0))), (5.0, End(SlowDown((2,), 2.0)))],
        [(0.0, Start(SlowDown((2,), 2.0)))],
    ]
    world = TinyWorld(PAIR_AND_HERMIT, rounds=3, faults=faults).run()
    assert world.times(2) == [4.0, 8.0, 10.0]


def test_slow_down_affects_only_its_clients_and_may_be_a_speed_up() -> None:
    world = TinyWorld([(), (), ()], faults=[[(0.0, Start(SlowDown((0, 1), 0.5)))]]).run()
    assert [world.times(i) for i in range(3)] == [[0.5, 1.0], [0.5, 1.0], [1.0, 2.0]]


# Other neighbours


def test_client_stops_waiting_for_former_neighbours() -> None:
    faults = [[(3.0, Start(TopologyChange(((1,), (0,), ()))))]]
    world = TinyWorld(compute=(1.0, 1.0, 9.0), faults=faults).run()
    assert [world.times(i) for i in range(3)] == [[3.0, 4.25], [3.0, 4.25], [9.0, 18.0]]
    assert num_used(world, 2) == [0, 0], "what the others sent before is stale now"
    assert [outcome for _, outcome in world.log.dropped] == ["stale", "stale"]


def test_waiting_client_also_waits_for_new_neighbours() -> None:
    line = [(1,), (0,), ()]
    world = TinyWorld(
        line,
        compute=(1.0, 3.0, 5.0),
        rounds=1,
        wait=Wait(1.0, 9.0),
        faults=[[(2.0, Start(TopologyChange(tuple(TRIANGLE))))]],
    ).run()
    # Client 0 sent its message of round 1 to its only neighbour at 1.0, so client 2 waits until 14.
    assert [world.times(i) for i in range(3)] == [[5.25], [5.25], [14.0]]
    assert [num_used(world, i) for i in range(3)] == [[2], [2], [1]]


def test_topology_change_does_not_bring_back_absent_clients() -> None:
    faults = [
        [(0.0, Start(Absence((2,)))), (9.0, End(Absence((2,))))],
        [(0.5, Start(TopologyChange(tuple(TRIANGLE))))],
    ]
    world = TinyWorld(faults=faults).run()
    assert world.times(0) == [1.25, 2.5]
    assert all(2 not in entry[1:3] for entry in world.log.sent)


def test_client_that_joins_after_a_topology_change_has_the_new_neighbours() -> None:
    faults = [
        [(0.0, Start(Absence((2,)))), (2.0, End(Absence((2,))))],
        [(1.0, Start(TopologyChange(((), (2,), (1,)))))],
    ]
    world = TinyWorld(rounds=3, wait=PATIENT, faults=faults).run()
    assert [client.neighbours for client in world.clients] == [(), (2,), (1,)]


def test_change_to_the_same_topology_has_no_effect() -> None:
    world = TinyWorld(
        rounds=3, faults=[[(time_s, Start(TopologyChange(tuple(TRIANGLE)))) for time_s in (0.0, 1.1, 2.5)]]
    )
    assert world.run().log.rounds == TinyWorld(rounds=3).run().log.rounds


@pytest.mark.parametrize(
    "change",
    [
        (0.5, Start(Leave((2,)))),
        (0.5, Start(TopologyChange(((1,), (0, 2), (1,))))),
        (0.0, Start(Absence((2,)))),
    ],
    ids=["leave", "rewire", "absent"],
)
def test_local_training_does_not_depend_on_neighbours(change: tuple[float, Change]) -> None:
    world = TinyWorld(method=Local(RunInfo(3)), rounds=3, faults=[[change]]).run(until_s=20.0)
    assert [world.times(i) for i in (0, 1)] == [[1.0, 2.0, 3.0]] * 2


# Order


def test_change_is_applied_before_other_events_of_its_instant() -> None:
    cut = sides({0}, {1, 2})
    world = TinyWorld(rounds=1, wait=PATIENT, faults=[[(1.0, Start(Crash((2,), for_good=True)))]]).run()
    assert {sender for _, sender, _, _ in world.log.sent} == {0, 1}, "its training ends too late by nothing"
    world = TinyWorld(rounds=1, wait=PATIENT, faults=[[(1.25, Start(Partition(cut)))]]).run()
    assert len(world.log.lost) == 4
    world = TinyWorld(
        rounds=1, wait=PATIENT, faults=[[(0.5, Start(Partition(cut))), (1.0, End(Partition(cut)))]]
    ).run()
    assert world.log.lost == []
    world = TinyWorld(PAIR_AND_HERMIT, rounds=2, faults=[[(1.0, Start(SlowDown((2,), 5.0)))]]).run()
    assert world.times(2) == [1.0, 6.0]
    world = TinyWorld(
        compute=(1.0, 1.0, 9.0), rounds=1, wait=Wait(1.0, 2.0), faults=[[(3.0, Start(Leave((2,))))]]
    )
    assert world.run().log.rounds == [(3.0, 0, 1, 1), (3.0, 1, 1, 1)]


def test_changes_of_one_instant_are_applied_and_observed_in_the_order_of_the_faults() -> None:
    faults = [
        [(2.0, Start(SlowDown((0,), 2.0))), (2.0, Start(Crash((1,), for_good=True)))],
        [(1.0, Start(Absence((2,)))), (2.0, End(Absence((2,))))],
    ]
    world = TinyWorld(wait=PATIENT, faults=faults).run()
    assert world.log.changes == [
        *((1.0, "absence start"), (2.0, "slow_down start"), (2.0, "crash start"), (2.0, "absence end")),
    ]
    assert world.world.num_changes == 4


def test_change_at_time_zero_applies_from_the_start() -> None:
    cut = sides({0}, {1, 2})
    world = TinyWorld(
        latency_s=0.0,
        rounds=1,
        wait=PATIENT,
        faults=[[(0.0, Start(Partition(cut))), (0.0, Start(SlowDown((0,), 4.0)))]],
    )
    assert world.run().times(0) == [4.5]


# All together

clients = st.integers(0, 3)
spells = st.tuples(st.floats(0.0, 8.0), st.floats(0.0, 4.0))


@st.composite
def faults(draw: st.DrawFn) -> list[tuple[float, Change]]:
    (from_s, length_s), client = draw(spells), draw(clients)
    until_s, link = from_s + length_s, ((client, RING[client][0]),)
    begin, end = draw(
        st.sampled_from(
            [
                (Start(Crash((client,))), End(Crash((client,), fresh=False, catch_up=True))),
                (Start(Crash((client,))), End(Crash((client,), fresh=True, catch_up=False))),
                (
                    Start(Partition(sides({client}, {0, 1, 2, 3} - {client}))),
                    End(Partition(sides({client}, {0, 1, 2, 3} - {client}))),
                ),
                (Start(LinkOutage(link)), End(LinkOutage(link))),
                (Start(SlowDown((client,), 2.5)), End(SlowDown((client,), 2.5))),
                (Start(Absence((client,))), End(Absence((client,)))),
                (
                    Start(TopologyChange(((1, 2, 3), (0, 2), (0, 1), (0,)))),
                    Start(TopologyChange(tuple(RING))),
                ),
                (Start(Leave((client,))), None),
                (Start(Crash((client,), for_good=True)), None),
            ]
        )
    )
    return [(0.0 if isinstance(begin.fault, Absence) else from_s, begin)] + (
        [] if end is None else [(until_s, end)]
    )


@given(
    st.lists(faults(), max_size=6),
    st.sampled_from([PATIENT, NO_WAIT, Wait(0.5, 1.0)]),
    st.sampled_from([{}, {"duplication": 0.5}, {"transport": reliable(timeout_s=0.6)}]),
)
def test_every_run_ends_and_every_message_is_accounted_for(schedules, wait, network) -> None:
    world = TinyWorld(
        RING,
        compute=(1.0, 1.5, 0.7, 1.0),
        rounds=5,
        wait=wait,
        staleness=Staleness(1, 1.0),
        faults=schedules,
        **network,
    ).run()
    assert world.ended_at_s is not None
    gone = {
        client
        for schedule in schedules
        for _, change in schedule
        if isinstance(change.fault, Leave) or (isinstance(change.fault, Crash) and change.fault.for_good)
        for client in change.fault.clients
    }
    for client in world.clients:
        done = [round_ for _, round_ in rounds(world, client.id)]
        assert done == sorted(set(done)), "no round is finished twice"
        assert client.id in gone or client.state.phase is Phase.FINISHED
    assert world.network.num_in_flight == 0
    outcomes = sum(client.mailbox.outcomes.total() for client in world.clients)
    unread = sum(1 for client in world.clients for _ in client.mailbox.unread())
    assert world.network.num_delivered == outcomes + unread
    assert world.network.obstacles.clients_down == gone
    assert not world.network.obstacles.partitions
    assert not world.network.obstacles.links_down
    assert not any(world.world.training_times.slowdowns.values())
