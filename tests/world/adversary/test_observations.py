import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rdpfl_sim.world.adversary.adversary import MEMORY_ROUNDS, Observations, stacked


def update(value: float) -> Tensor:
    return torch.tensor([float(value)])


def knowing(client: int, *rounds: int) -> Observations:
    """Observations of one client's updates. Every update equals its round."""
    knowledge = Observations()
    for round_ in rounds:
        knowledge.add(client, round_, update(round_))
    return knowledge


@pytest.mark.parametrize(
    ("round_", "stamp"),
    [
        (3, 3),  # of the round itself
        (5, 3),  # or else the latest before
        (7, 7),
        (99, 7),
        (2, 3),  # or else the earliest after
    ],
)
def test_latest_is_of_the_round_or_before_it_or_else_the_earliest_after(round_: int, stamp: int) -> None:
    latest = knowing(4, 7, 3).latest(4, round_)
    assert latest == update(stamp)


def test_client_without_observations_has_no_update() -> None:
    assert knowing(4, 1).latest(5, 1) is None


def test_update_of_a_round_that_was_computed_again_replaces_the_first() -> None:
    knowledge = knowing(0, 1, 2)
    knowledge.add(0, 2, update(-2))
    assert knowledge.latest(0, 2) == update(-2)
    assert len(knowledge.updates[0]) == 2


def test_clients_without_observations_are_omitted_and_the_order_is_kept() -> None:
    knowledge = Observations()
    for client, round_ in [(2, 1), (0, 3), (2, 2)]:
        knowledge.add(client, round_, update(10 * client + round_))
    ids, updates = knowledge.of([2, 1, 0], round_=2)
    assert ids == [2, 0]
    assert [u.item() for u in updates] == [22, 3]


def test_only_the_latest_updates_of_each_client_are_kept() -> None:
    knowledge = Observations()
    for round_ in range(1, 201):
        for client in (0, 1):
            knowledge.add(client, round_, update(round_))
    assert [sorted(updates) for updates in knowledge.updates.values()] == [
        list(range(201 - MEMORY_ROUNDS, 201))
    ] * 2


def test_of_the_rounds_before_the_horizon_one_update_is_kept() -> None:
    knowledge = knowing(0, 1, 2, 3)
    knowledge.horizon = 5
    knowledge.add(0, 7, update(7))
    assert sorted(knowledge.updates[0]) == [3, 7]
    knowledge.add(0, 5, update(5))
    assert sorted(knowledge.updates[0]) == [5, 7]


def test_late_message_from_before_the_horizon_does_not_displace_a_newer_one() -> None:
    knowledge = knowing(0, 4)
    knowledge.horizon = 5
    knowledge.add(0, 2, update(2))
    assert knowledge.latest(0, 5) == update(4)


@given(
    st.lists(st.tuples(st.integers(1, 15), st.integers(0, 15)), max_size=15, unique_by=lambda add: add[0]),
    st.integers(0, 5),
)
def test_removing_old_updates_never_changes_an_answer(adds: list[tuple[int, int]], ahead: int) -> None:
    """This holds for any order of arrival and for rounds from the horizon on; the horizon only increases."""
    knowledge, everything = Observations(), {}
    for round_, horizon in adds:
        knowledge.horizon = max(knowledge.horizon, horizon)
        knowledge.add(0, round_, update(round_))
        everything[round_] = update(round_)
    asked = knowledge.horizon + ahead
    past = [round_ for round_ in everything if round_ <= asked]
    expected = max(past) if past else min(everything, default=None)
    latest = knowledge.latest(0, asked)
    assert (None if latest is None else latest.item()) == expected


def test_known_updates_are_rows_in_their_order() -> None:
    assert stacked([update(2), update(1)], otherwise=update(9)).tolist() == [[2.0], [1.0]]


def test_own_update_is_used_if_no_update_is_observed() -> None:
    assert stacked([], otherwise=torch.tensor([3.0, 4.0])).tolist() == [[3.0, 4.0]]
