"""A world whose updates are put off is the world whose updates are computed at once, whatever befalls it."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rdpfl_sim.methods.base import RunInfo
from rdpfl_sim.methods.dpsgd import Dpsgd
from rdpfl_sim.world.faults.churn import Leave
from rdpfl_sim.world.faults.crash import Crash
from rdpfl_sim.world.faults.fault import Change, End, Start
from rdpfl_sim.world.faults.topology_change import TopologyChange
from rdpfl_sim.world.waiting import Staleness, Wait
from tests.support import RING, TRIANGLE, TinyWorld
from tests.world.test_world import NO_WAIT, PATIENT, faults


def both(**options: Any) -> tuple[TinyWorld, TinyWorld]:
    return TinyWorld(**options).run(), TinyWorld(**options, together=True).run()


def assert_same(one: TinyWorld, other: TinyWorld) -> None:
    for name in ("sent", "lost", "delivered", "rounds", "used", "dropped", "changes"):
        assert getattr(one.log, name) == getattr(other.log, name), name
    for v, w in zip(one.log.payloads, other.log.payloads, strict=True):
        torch.testing.assert_close(v, w)
    for left, right in zip(one.clients, other.clients, strict=True):
        torch.testing.assert_close(left.state.learning.w, right.state.learning.w)
        assert left.state.round == right.state.round


def test_update_waits_until_the_next_training_is_due() -> None:
    world = TinyWorld(rounds=2, together=True).run(until_s=1.5)
    assert [client.state.round for client in world.clients] == [2, 2, 2], "round 1 ended at 1.25"
    assert [client.state.latest_update.is_known for client in world.clients] == [False, False, False]
    assert world.clients[0].state.learning.w[0].tolist() == [-3.5, -3.5]
    assert [client.state.latest_update.is_known for client in world.clients] == [True, True, True]


def test_rounds_and_models_are_the_same() -> None:
    assert_same(*both(compute=(1.0, 2.0, 4.0), rounds=4))
    assert_same(*both(compute=(1.0, 2.5, 4.0), rounds=4, wait=PATIENT))


@pytest.mark.parametrize("catch_up", [False, True])
@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("at_s", [1.25, 1.5, 2.25, 2.3])
def test_client_that_crashes_while_its_update_waits_recovers_with_the_same_model(
    at_s: float, fresh: bool, catch_up: bool
) -> None:
    faults = [[(at_s, Start(Crash((0,)))), (at_s + 0.125, End(Crash((0,), fresh=fresh, catch_up=catch_up)))]]
    assert_same(*both(rounds=4, wait=PATIENT, faults=faults))


def test_nothing_of_a_round_that_a_crash_has_ended_happens_later() -> None:
    # Client 0 crashes in its second training, before its update was computed, and begins afresh. Its training
    # is over at 2.7. Client 1 lets all that waits be computed at 2.9, when client 0 has not updated yet. The
    # next training of client 0 is due at 4.2, before anybody else's.
    faults: list[list[tuple[float, Change]]] = [
        [(1.6, Start(Crash((0,)))), (1.7, End(Crash((0,), fresh=True, catch_up=False)))]
    ]
    assert_same(*both(compute=(1.0, 1.2, 10.0), rounds=4, wait=PATIENT, faults=faults))


@pytest.mark.parametrize("change", [Start(TopologyChange(((1,), (0, 2), (1,)))), Start(Leave((2,)))])
def test_weights_are_those_of_the_graph_in_which_the_round_ended(change: Change) -> None:
    method = Dpsgd(RunInfo(learning_rate=1.0, rounds=3))
    assert_same(*both(neighbours=TRIANGLE, method=method, rounds=3, faults=[[(1.5, change)]]))


def test_client_that_crashes_for_good_keeps_its_last_model() -> None:
    assert_same(*both(rounds=3, wait=PATIENT, faults=[[(1.5, Start(Crash((1,), for_good=True)))]]))


@pytest.mark.slow
@given(
    st.lists(faults(), max_size=4),
    st.sampled_from([PATIENT, NO_WAIT, Wait(0.5, 1.0)]),
    st.sampled_from([None, Dpsgd(RunInfo(learning_rate=1.0, rounds=5))]),
)
def test_whatever_happens_nobody_can_tell_when_updates_are_computed(schedules, wait, method) -> None:
    assert_same(
        *both(
            neighbours=RING,
            compute=(1.0, 1.5, 0.7, 1.0),
            rounds=5,
            wait=wait,
            staleness=Staleness(1, 1.0),
            method=method,
            faults=schedules,
        )
    )
