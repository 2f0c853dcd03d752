import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rdpfl_sim.methods.base import Payload
from rdpfl_sim.world.mailbox import Mailbox
from rdpfl_sim.world.network.links import Link, lossless
from rdpfl_sim.world.network.message import Broadcast, Message
from rdpfl_sim.world.observer import Observer

GOOD = Payload(torch.zeros(3))


class Drops(Observer):
    def __init__(self) -> None:
        self.reasons: list[tuple[int, str, str]] = []

    def message_dropped(self, message: Message, outcome: str, reason: str) -> None:
        self.reasons.append((message.round, outcome, reason))


def mailbox(prefer: str = "round", capacity: int = 4) -> Mailbox:
    return Mailbox(
        [1, 2],
        Drops(),
        form=GOOD.form,
        num_rounds=10,
        capacity=capacity,
        prefer=prefer,
        num_required=2,
        on_ready=lambda: None,
    )


def masked_mailbox() -> Mailbox:
    """Return the mailbox of a client that expects masked messages from one neighbour."""
    return Mailbox(
        [1],
        Drops(),
        form=Payload(torch.zeros(3), MASK).form,
        num_rounds=10,
        capacity=4,
        prefer="round",
        num_required=1,
        on_ready=lambda: None,
    )


def message(sender: int, stamp: int, payload: Payload = GOOD) -> Message:
    link = Link(sender, 0, key=0, latency=lambda u: 0.0, loses=lossless)
    return Message(0, link, Broadcast(sender, stamp, payload, payload.size_bytes, sent_at_s=0.0), 0, print)


def num_answered(box: Mailbox) -> int:
    return len(box.queues) - len(box.pending) - box.num_rejected


def taken(box: Mailbox, round_: int, max_age: int) -> list[tuple[int, int]]:
    return [(m.sender, m.round) for m in box.take(round_, max_age)]


def test_messages_of_the_own_round_are_taken_sorted_by_sender() -> None:
    box = mailbox()
    box.put(message(2, 4))
    box.put(message(1, 4))
    assert taken(box, 4, max_age=0) == [(1, 4), (2, 4)]
    assert box.outcomes == {"used": 2}


def test_own_round_is_preferred_to_a_neighbour_that_is_ahead() -> None:
    box = mailbox()
    for stamp in (5, 4, 3):
        box.put(message(1, stamp))
    assert taken(box, 4, max_age=3) == [(1, 4)]
    assert box.outcomes == {"used": 1, "stale": 1}, "round 3 is superseded, round 5 still waits"
    assert taken(box, 5, max_age=3) == [(1, 5)]


def test_newest_is_taken_if_preferred() -> None:
    box = mailbox("newest")
    for stamp in (3, 7, 4):
        box.put(message(1, stamp))
    assert taken(box, 4, max_age=3) == [(1, 7)]
    assert box.outcomes == {"used": 1, "stale": 2}


def test_newest_older_message_replaces_a_missing_one() -> None:
    box = mailbox()
    for stamp in (1, 3):
        box.put(message(1, stamp))
    assert taken(box, 5, max_age=2) == [(1, 3)]


def test_message_beyond_the_maximum_age_is_stale() -> None:
    box = mailbox()
    box.put(message(1, 2))
    assert taken(box, 5, max_age=2) == []
    assert box.observer.reasons == [(2, "stale", "too old")]


@pytest.mark.parametrize("newer", [5, 6])
def test_old_message_is_not_lost_if_a_newer_one_from_its_sender_is_used(newer: int) -> None:
    box = mailbox()
    box.put(message(1, 2))
    box.put(message(1, newer))
    assert taken(box, 5, max_age=2) == [(1, newer)]
    assert box.observer.reasons == [(2, "stale", "newer message chosen")]


def test_earliest_later_message_is_used_if_no_other_exists() -> None:
    box = mailbox()
    for stamp in (9, 7):
        box.put(message(1, stamp))
    assert taken(box, 5, max_age=0) == [(1, 7)]


def test_message_older_than_the_last_used_one_is_stale() -> None:
    box = mailbox()
    box.put(message(1, 5))
    box.take(4, 0)
    box.put(message(1, 4))
    assert box.observer.reasons == [(4, "stale", "newer message already used")]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (message(3, 1), "unknown sender"),
        (message(1, 0), "no such round"),
        (message(1, -7), "no such round"),
        (message(1, 11), "no such round"),
        (message(1, 1, Payload(torch.zeros(4))), "wrong shape or type"),
        (message(1, 1, Payload(torch.zeros(0))), "wrong shape or type"),
        (message(1, 1, Payload(torch.zeros(3, 1))), "wrong shape or type"),
        (message(1, 1, Payload(torch.zeros(3, dtype=torch.float64))), "wrong shape or type"),
        (message(1, 1, Payload(torch.zeros(3, dtype=torch.int64))), "wrong shape or type"),
        (message(1, 1, Payload(torch.tensor([0.0, float("nan"), 0.0]))), "not finite"),
        (message(1, 1, Payload(torch.tensor([0.0, 0.0, float("-inf")]))), "not finite"),
    ],
)
def test_invalid_message_is_rejected_with_a_reason(bad: Message, reason: str) -> None:
    box = mailbox()
    box.put(bad)
    assert [(outcome, why) for _, outcome, why in box.observer.reasons] == [("rejected", reason)]
    assert list(box.unread()) == []


def test_huge_but_finite_entries_are_accepted() -> None:
    box = mailbox()
    box.put(message(1, 1, Payload(torch.full((3,), 3e38))))
    assert taken(box, 1, 0) == [(1, 1)]


def test_second_message_of_a_sender_for_a_round_is_a_duplicate_before_and_after_use() -> None:
    box = mailbox()
    box.put(message(1, 3))
    box.put(message(1, 3))
    box.take(3, 0)
    box.put(message(1, 3))
    assert box.outcomes == {"used": 1, "duplicate": 2}


def test_a_flood_only_evicts_messages_of_its_sender() -> None:
    box = mailbox(capacity=2)
    box.put(message(2, 1))
    for stamp in range(1, 11):
        box.put(message(1, stamp))
    assert sorted((m.sender, m.round) for m in box.unread()) == [(1, 9), (1, 10), (2, 1)]


def test_neighbour_is_not_pending_after_a_valid_or_a_rejected_message() -> None:
    box = mailbox()
    box.start_round(2)
    assert (num_answered(box), box.pending) == (0, {1, 2})
    box.put(message(1, 3))
    assert (num_answered(box), box.pending) == (0, {1, 2}), (
        "a later message does not replace the one for this round"
    )
    box.put(message(1, 2))
    assert (num_answered(box), box.pending) == (1, {2})
    box.put(message(2, 2, Payload(torch.full((3,), float("nan")))))
    assert (num_answered(box), box.pending) == (1, set()), (
        "a rejected message is no answer, and nothing better will follow"
    )
    box.take(2, 0)
    box.start_round(3)
    assert (num_answered(box), box.pending) == (1, {2})


def test_pending_senders_do_not_depend_on_whether_messages_arrive_before_the_round_starts() -> None:
    stream = [message(1, 3), message(1, 2), message(2, 4), message(2, 1)]
    for first in range(len(stream) + 1):
        box = mailbox()
        for m in stream[:first]:
            box.put(m)
        box.start_round(2)
        for m in stream[first:]:
            box.put(m)
        assert (num_answered(box), box.pending) == (1, {2})


def test_a_former_neighbours_messages_are_stale_and_its_history_is_kept_for_its_return() -> None:
    box = mailbox()
    box.put(message(1, 3))
    box.take(3, 0)
    box.put(message(1, 4))
    box.put(message(2, 4))
    box.set_neighbours([2, 5], 2)
    assert box.observer.reasons == [(4, "stale", "no longer a neighbour")]
    box.put(message(1, 5))
    assert box.observer.reasons[-1] == (5, "stale", "no longer a neighbour")
    box.put(message(5, 4))
    assert taken(box, 4, 0) == [(2, 4), (5, 4)]
    box.set_neighbours([1, 2], 2)
    box.put(message(1, 3))
    assert box.observer.reasons[-1] == (3, "duplicate", "same sender and round")


def test_pending_senders_follow_a_change_of_neighbourhood() -> None:
    box = mailbox()
    box.start_round(2)
    box.put(message(1, 2))
    box.set_neighbours([1], 1)
    box.start_round(2)
    assert (num_answered(box), box.pending) == (1, set())
    box.set_neighbours([1, 2, 3], 3)
    box.start_round(2)
    assert (num_answered(box), box.pending) == (1, {2, 3})


def test_cleared_mailbox_has_dropped_unread_messages() -> None:
    box = mailbox()
    box.put(message(1, 2))
    box.clear("recipient restarted with a new model")
    assert box.outcomes == {"stale": 1}
    assert list(box.unread()) == []


vectors = st.sampled_from(
    [
        torch.zeros(3),
        torch.full((3,), 1e38),
        torch.full((3,), float("inf")),
        torch.zeros(0),
        torch.zeros(2, 2),
    ]
)


@given(
    st.lists(st.tuples(st.integers(-1, 4), st.integers(-3, 13), vectors)),
    st.integers(1, 10),
    st.integers(0, 3),
)
def test_every_message_has_exactly_one_outcome_and_the_mailbox_stays_bounded(stream, round_, max_age) -> None:
    box = mailbox(capacity=3)
    for sender, stamp, vector in stream:
        box.put(message(sender, stamp, Payload(vector)))
    used = box.take(round_, max_age)
    left_over = list(box.unread())
    assert sum(box.outcomes.values()) + len(left_over) == len(stream)
    assert len(left_over) <= 2 * 3
    assert len(used) == box.outcomes["used"] == len({m.sender for m in used})
    assert all(m.payload.is_finite and m.payload.vector.shape == (3,) for m in used)


MASK = torch.tensor([True, False, True])


@pytest.mark.parametrize(
    "mask",
    [None, MASK[:2], MASK.unsqueeze(0), MASK.float(), MASK.to(torch.uint8)],
    ids=["no mask", "too short", "a matrix", "float", "uint8"],
)
def test_mask_of_another_form_is_rejected(mask: torch.Tensor | None) -> None:
    box = masked_mailbox()
    box.put(message(1, 4, Payload(torch.zeros(3), mask)))
    assert box.outcomes == {"rejected": 1}


@pytest.mark.parametrize("mask", [MASK, ~MASK, MASK & ~MASK, MASK | ~MASK])
def test_mask_of_the_right_form_is_accepted_and_nan_is_rejected_under_it_or_outside(
    mask: torch.Tensor,
) -> None:
    box = masked_mailbox()
    box.put(message(1, 4, Payload(torch.zeros(3), mask)))
    box.put(message(1, 5, Payload(torch.tensor([0.0, torch.nan, 0.0]), mask)))
    assert taken(box, 4, max_age=0) == [(1, 4)]
    assert box.outcomes == {"used": 1, "rejected": 1}


def test_masked_message_is_rejected_if_models_are_dense() -> None:
    box = mailbox()
    box.put(message(1, 4, Payload(torch.zeros(3), MASK)))
    assert box.outcomes == {"rejected": 1}


def test_used_messages_are_counted_per_sender() -> None:
    box = mailbox()
    for round_ in (1, 2, 3):
        box.put(message(1, round_))
        if round_ != 2:
            box.put(message(2, round_))
        box.take(round_, 0)
    assert (box.num_used_from(1), box.num_used_from(2), box.num_used_from(3)) == (3, 2, 0)


def after_rounds(last: int) -> Mailbox:
    """Return a mailbox that has used all messages of the rounds up to `last`."""
    box = mailbox()
    for round_ in range(1, last + 1):
        for sender in (1, 2):
            box.put(message(sender, round_))
        box.take(round_, 0)
    return box


@pytest.mark.parametrize("last", [3, 10])
def test_message_of_a_used_round_is_a_duplicate_and_an_older_one_is_stale(last: int) -> None:
    box = after_rounds(last)
    box.put(message(1, last))
    box.put(message(2, last - 1))
    assert [outcome for _, outcome, _ in box.observer.reasons] == ["duplicate", "stale"]


def test_message_of_the_next_round_is_stored_and_one_after_the_last_round_is_rejected() -> None:
    next_one, none = after_rounds(3), after_rounds(10)
    next_one.put(message(1, 4))
    none.put(message(1, 11))
    assert [m.round for m in next_one.unread()] == [4]
    assert [m.round for m in none.unread()] == []
    assert none.observer.reasons[-1][1:] == ("rejected", "no such round")


def test_ready_is_reported_once_enough_messages_have_arrived() -> None:
    calls: list[int] = []
    box = Mailbox(
        [1, 2, 3],
        Drops(),
        form=GOOD.form,
        num_rounds=10,
        capacity=4,
        prefer="round",
        num_required=2,
        on_ready=lambda: calls.append(num_answered(box)),
    )
    box.put(message(1, 1))
    assert (calls, box.is_ready) == ([], False)
    box.put(message(3, 1))
    assert (calls, box.is_ready) == ([2], True)


def test_ready_is_reported_when_no_neighbour_is_pending() -> None:
    calls: list[str] = []
    box = mailbox()
    box.on_ready = lambda: calls.append("ready")
    box.put(message(1, 1))
    box.put(message(2, 1, Payload(torch.full((3,), torch.nan))))
    assert (calls, box.is_ready, num_answered(box)) == (["ready"], True, 1)
