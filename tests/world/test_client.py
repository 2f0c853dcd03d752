"""The rounds of a client on the kernel, with a fake trainer and constant links: exact simulated times."""

import pytest
from torch import Tensor

from rdpfl_sim.attacks import min_max
from rdpfl_sim.methods.base import RunInfo
from rdpfl_sim.methods.local import Local
from rdpfl_sim.world.adversary.adversary import Plan
from rdpfl_sim.world.client import Phase
from rdpfl_sim.world.staleness import Staleness
from rdpfl_sim.world.waiting import Wait
from tests.support import TinyWorld


def test_waiting_for_all_takes_the_slowest_neighbour_and_the_latency() -> None:
    world = TinyWorld(compute=(1.0, 2.0, 4.0)).run()
    assert [world.times(i) for i in range(3)] == [[4.25, 8.25], [4.25, 8.25], [4.0, 8.0]]
    assert {num_used for *_, num_used in world.log.rounds} == {2}


def test_personalised_step_uses_own_and_neighbours_directions() -> None:
    world = TinyWorld(rounds=1).run()
    # w = 0 - (u_i + mean of the other two)
    assert [client.state.learning.w[0].tolist() for client in world.clients] == [
        [-3.5] * 2,
        [-4.0] * 2,
        [-4.5] * 2,
    ]


def test_quorum_does_not_wait_for_the_straggler() -> None:
    world = TinyWorld(compute=(1.0, 1.0, 10.0), wait=Wait(0.5, None)).run()
    assert world.times(0) == [1.25, 2.5]
    assert world.times(2) == [10.0, 20.0]


def test_deadline_ends_the_wait_and_a_message_at_that_instant_is_in_time() -> None:
    world = TinyWorld(compute=(1.0, 1.0, 2.0), latency_s=0.5, wait=Wait(1.0, 1.5), rounds=1).run()
    assert world.times(0) == [2.5]
    assert [used for *_, used in world.log.rounds if used != 2] == []


def test_after_the_deadline_the_round_uses_the_messages_in_the_mailbox() -> None:
    world = TinyWorld(compute=(1.0, 1.0, 9.0), wait=Wait(1.0, 0.5), rounds=1).run()
    assert world.log.rounds[0] == (1.5, 0, 1, 1)


def test_without_waiting_the_round_uses_the_messages_in_the_mailbox() -> None:
    world = TinyWorld(
        compute=(1.0, 1.0, 3.5), wait=Wait(0.0, None), rounds=3, staleness=Staleness(5, 1.0)
    ).run()
    assert world.times(0) == [1.0, 2.0, 3.0]
    assert [used for who, _, _, used in [(c, t, r, n) for t, c, r, n in world.log.rounds] if who == 0] == [
        0,
        1,
        1,
    ]


def test_late_message_is_counted_and_dropped() -> None:
    world = TinyWorld(compute=(1.0, 1.0, 1.9), wait=Wait(1.0, 0.5), rounds=2).run()
    # Client 2's round-1 message reaches client 0 at 2.15, when client 0 (from 1.5 on) is in round 2.
    assert (1, "stale") in world.log.dropped
    assert world.log.rounds[0] == (1.5, 0, 1, 1)


def test_late_message_is_used_with_its_age_if_staleness_allows() -> None:
    world = TinyWorld(
        compute=(1.0, 1.0, 1.9), wait=Wait(1.0, 0.5), staleness=Staleness(1, 0.5), rounds=2
    ).run()
    assert (0, 2, 2, 1) in world.log.used


def test_client_without_neighbours_trains_locally() -> None:
    world = TinyWorld(neighbours=[(1,), (0,), ()]).run()
    assert world.times(2) == [1.0, 2.0]
    assert world.clients[2].state.learning.w[0].tolist() == [-6.0, -6.0]


def test_local_training_neither_sends_nor_waits() -> None:
    world = TinyWorld(method=Local(RunInfo(2)), compute=(1.0, 5.0, 9.0)).run()
    assert world.network.num_sent == 0
    assert world.times(0) == [1.0, 2.0]
    assert world.clients[0].state.phase is Phase.FINISHED


def test_run_with_a_deadline_ends_if_all_messages_are_lost() -> None:
    world = TinyWorld(loses=lambda link, draw, now_s: True, wait=Wait(1.0, 2.0)).run()
    assert world.times(0) == [3.0, 6.0]
    assert world.network.num_lost == world.network.num_sent == 12


def test_omniscient_attacker_waits_for_the_slowest_honest_client() -> None:
    world = TinyWorld(
        compute=(1.0, 4.0, 1.0), byzantine=(2,), plan=Plan(min_max, sees_honest=True), rounds=1
    ).run()
    sent = {(s, r): t for t, s, r in [(4.25, 2, 0)]}
    assert world.times(0) == [sent[2, 0]]
    # Honest directions are 1 and 2: mu = 1.5, sigma = 0.5, so m = mu - 1 sigma = 1 is the farthest allowed.
    assert world.clients[0].state.learning.w[0].tolist() == pytest.approx([-(1 + (2 + 1) / 2)] * 2)


def test_attacker_uses_its_observations_when_its_patience_ends() -> None:
    plan = Plan(min_max, sees_honest=True, patience_s=0.5)
    world = TinyWorld(compute=(3.0, 4.0, 3.0), byzantine=(2,), plan=plan, rounds=1).run()
    # At 3.5 only client 0's direction 1 is known, so that is what client 2 sends, in place of its own 3.
    assert [entry for entry in world.log.sent if entry[1] == 2] == [(3.5, 2, 0, 1), (3.5, 2, 1, 1)]
    assert world.clients[1].state.learning.w[0].tolist() == pytest.approx([-(2 + (1 + 1) / 2)] * 2)


def test_rejected_message_does_not_delay_a_client() -> None:
    def poison(view) -> Tensor:
        return view.own * float("nan")

    world = TinyWorld(byzantine=(2,), plan=Plan(poison)).run()
    assert world.times(0) == [1.25, 2.5]
    assert {used for _, client, _, used in world.log.rounds if client == 0} == {1}


def test_broadcast_shares_one_payload() -> None:
    world = TinyWorld(rounds=1).run()
    vectors: dict[int, set[int]] = {}
    for (_, sender, _, _), vector in zip(world.log.sent, world.log.payloads, strict=True):
        vectors.setdefault(sender, set()).add(vector.data_ptr())
    assert [len(addresses) for addresses in vectors.values()] == [1, 1, 1]


def test_unused_deadlines_do_not_accumulate() -> None:
    world = TinyWorld(rounds=50, wait=Wait(1.0, 1e6)).run(until_s=60.0)
    assert world.times(0)[-1] < 63
    assert len(world.kernel._queue) <= 2 * len(world.clients) + 6


def test_stale_message_counts_by_the_weight_of_its_age() -> None:
    world = TinyWorld(
        neighbours=[(1,), (0,), ()],
        compute=(1.0, 1.9, 1.0),
        wait=Wait(1.0, 0.5),
        staleness=Staleness(1, 0.5),
        rounds=2,
    ).run()
    # Client 1's direction 2 of round 1 reaches client 0 in its round 2 and counts half.
    # w = -(1) - (1 + 0.5 * 2)
    assert (0, 2, 1, 1) in world.log.used
    assert world.clients[0].state.learning.w[0].tolist() == [-3.0, -3.0]


def test_state_has_the_phase_the_round_and_the_end_of_the_wait() -> None:
    world = TinyWorld(compute=(1.0, 1.0, 9.0), wait=Wait(1.0, 4.0)).run(until_s=0.5)
    state = world.clients[0].state
    assert (state.phase, state.round, state.until_s) == (Phase.TRAINING, 1, 1.0)
    world.kernel.run(until=2.0)
    assert (state.phase, state.round, state.until_s) == (Phase.GATHERING, 1, 5.0)
    assert world.clients[0].mailbox.pending == {2}


def test_rejected_messages_do_not_count_for_a_quorum() -> None:
    def poison(view) -> Tensor:
        return view.own * float("nan")

    world = TinyWorld(
        compute=(1.0, 3.0, 1.0), byzantine=(2,), plan=Plan(poison), wait=Wait(0.5, None), rounds=1
    ).run()
    assert world.times(0) == [3.25], "client 0 needs one valid message and waits for client 1's"
