"""Timing attacks: their effect on one message, and on clients that wait for it."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor

from rdpfl_sim.attacks import View, min_max, sign_flip
from rdpfl_sim.components.schema import Component, OneOf, Strict
from rdpfl_sim.errors import OptionError, ScenarioError
from rdpfl_sim.methods.base import Payload
from rdpfl_sim.randomness import Streams
from rdpfl_sim.world.adversary.adversary import Plan
from rdpfl_sim.world.adversary.timing import (
    MEMORY_ROUNDS,
    TIMING_ATTACKS,
    ScheduledMessage,
    TimingAttack,
    TimingView,
    delayed,
    flood,
    immediate,
    just_in_time,
    replay,
    selective,
    silent,
    wrong_stamp,
)
from rdpfl_sim.world.faults.fault import Start
from rdpfl_sim.world.faults.slow_down import SlowDown
from rdpfl_sim.world.staleness import Staleness
from rdpfl_sim.world.waiting import Wait
from tests.support import TinyWorld, small_scenario

PAST = {round_: Payload(torch.tensor([float(round_)])) for round_ in range(1, 8)}


def occasion(**changes: Any) -> TimingView:
    """A message of round 7 that is due at 10 s, from a client that stores all its rounds."""
    facts = {"round": 7, "recipient": 1, "now_s": 10.0, "deadline_s": None, "past": PAST, "key": 5}
    return TimingView(**{**facts, "num_clients": 6, **changes})


def parcels(attack: TimingAttack, **changes: Any) -> list[tuple[float, int, float]]:
    """Return the sent messages: payload (equal to its round), stamp, delay."""
    return [
        (parcel.payload.vector.item(), parcel.stamp, parcel.delay_s) for parcel in attack(occasion(**changes))
    ]


def against(
    timing: TimingAttack,
    attack: Callable[[View], Tensor] = min_max,
    patience_s: float | None = None,
    remembers: bool = False,
    **world: Any,
) -> TinyWorld:
    """Return a triangle in which client 2 attacks with content and timing.

    The honest directions are 1 and 2, so client 2 sends 1 instead of 3: with two honest updates, the farthest
    value that min_max allows is the smaller of them.
    """
    plan = Plan(min_max, sees_honest=True, timing=timing, patience_s=patience_s, remembers=remembers)
    return TinyWorld(byzantine=(2,), plan=replace(plan, attack=attack), **world)


def sent(world: TinyWorld, sender: int = 2) -> list[tuple[float, int, int, float]]:
    """Return the messages of a client: time, recipient, stamp, and the first entry of the vector."""
    return [
        (time_s, recipient, stamp, round(vector[0].item(), 4))
        for (time_s, who, recipient, stamp), vector in zip(world.log.sent, world.log.payloads, strict=True)
        if who == sender
    ]


def drops(world: TinyWorld, stamp: int) -> list[str]:
    return [outcome for dropped, outcome in world.log.dropped if dropped == stamp]


# One message at a time


def test_prompt_timing_is_that_of_an_honest_client() -> None:
    assert parcels(immediate) == [(7.0, 7, 0.0)]


def test_silent_sends_nothing() -> None:
    assert parcels(silent) == []


def test_selective_is_silent_only_towards_its_victims() -> None:
    attack = partial(selective, victims="0..1, 4")
    spared = [recipient for recipient in range(6) if parcels(attack, recipient=recipient)]
    assert spared == [2, 3, 5]
    assert parcels(attack, recipient=2) == [(7.0, 7, 0.0)]


def test_selective_fraction_chooses_that_share_and_the_same_victims_in_every_round() -> None:
    attack = partial(selective, fraction=0.25)
    spared = [
        [recipient for recipient in range(400) if parcels(attack, recipient=recipient, round=round_)]
        for round_ in (1, 2, 7)
    ]
    assert spared[0] == spared[1] == spared[2]
    assert 270 < len(spared[0]) < 330


def test_selective_fraction_chooses_different_victims_per_attacker() -> None:
    keys = [Streams(0).key("timing attack", attacker) for attacker in range(2)]
    spared = [[r for r in range(100) if parcels(selective, recipient=r, key=key)] for key in keys]
    assert spared[0] != spared[1]


@pytest.mark.parametrize(("fraction", "num_spared"), [(0.0, 50), (1.0, 0)])
def test_selective_fraction_can_be_zero_or_one(fraction: float, num_spared: int) -> None:
    attack = partial(selective, fraction=fraction)
    assert sum(len(parcels(attack, recipient=recipient)) for recipient in range(50)) == num_spared


def test_selective_victims_take_precedence_over_the_fraction() -> None:
    assert parcels(partial(selective, victims=[0], fraction=1.0)) == [(7.0, 7, 0.0)]


def test_selective_victim_that_does_not_exist_is_rejected() -> None:
    with pytest.raises(OptionError) as raised:
        parcels(partial(selective, victims=[6]))
    assert raised.value.option == "victims"


@pytest.mark.parametrize(
    ("deadline_s", "delay_s"),
    [
        (12.0, 1.5),
        (10.5, 0.0),
        (10.25, 0.0),  # too late to be late
        (9.0, 0.0),
        (None, 0.0),  # not known
    ],
)
def test_just_in_time_is_a_margin_before_the_deadline(deadline_s: float | None, delay_s: float) -> None:
    assert parcels(partial(just_in_time, margin_s=0.5), deadline_s=deadline_s) == [(7.0, 7, delay_s)]


def test_delayed_has_a_constant_delay() -> None:
    assert parcels(partial(delayed, seconds=2.5)) == [(7.0, 7, 2.5)]


def test_replay_sends_an_old_message_with_a_new_or_its_old_stamp() -> None:
    assert parcels(partial(replay, age=3)) == [(4.0, 7, 0.0)]
    assert parcels(partial(replay, age=3, stamp="old")) == [(4.0, 4, 0.0)]


def test_replay_is_prompt_until_it_has_an_old_message() -> None:
    assert parcels(partial(replay, age=3), round=3) == [(3.0, 3, 0.0)]
    assert parcels(partial(replay, age=3), round=4) == [(1.0, 4, 0.0)]


@pytest.mark.parametrize("offset", [-3, 3, -1_000_000, 1_000_000])
def test_wrong_stamp_sends_the_stamp_of_another_round(offset: int) -> None:
    assert parcels(partial(wrong_stamp, offset=offset)) == [(7.0, 7 + offset, 0.0)]


def test_flood_sends_copies_for_this_round_or_one_for_each_from_now_on() -> None:
    assert parcels(partial(flood, copies=3)) == [(7.0, 7, 0.0), (7.0, 8, 0.0), (7.0, 9, 0.0)]
    assert parcels(partial(flood, copies=3, stamps="same")) == [(7.0, 7, 0.0)] * 3


@given(st.floats(0, 1e6), st.one_of(st.none(), st.floats(0, 1e6)), st.sampled_from(sorted(TIMING_ATTACKS)))
def test_nothing_is_sent_in_the_past(now_s: float, deadline_s: float | None, name: str) -> None:
    due = occasion(now_s=now_s, deadline_s=deadline_s)
    held_back: list[ScheduledMessage] = TIMING_ATTACKS[name](due)
    assert all(parcel.delay_s >= 0 for parcel in held_back)


def test_occasion_is_not_changed() -> None:
    past = dict(PAST)
    for attack in TIMING_ATTACKS.values():
        attack(occasion(past=past, deadline_s=12.0))
    assert past == PAST


class Section(Strict):
    timing: Annotated[Component, OneOf(TIMING_ATTACKS)]


@pytest.mark.parametrize(
    "options",
    [
        {"name": "replay", "age": 0},
        {"name": "replay", "age": MEMORY_ROUNDS},  # older than all stored rounds
        {"name": "flood", "copies": 10_001},
        {"name": "wrong_stamp", "offset": 1_000_001},
        {"name": "delayed", "seconds": -1.0},
        {"name": "just_in_time", "margin_s": -0.1},
        {"name": "selective", "fraction": 1.5},
    ],
)
def test_invalid_options_are_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Section.model_validate({"timing": options})


def test_attacks_that_withhold_messages_are_marked() -> None:
    marked = {name for name in TIMING_ATTACKS if TIMING_ATTACKS.facts(name).withholds}
    assert marked == {"silent", "selective", "just_in_time", "replay", "wrong_stamp"}
    assert [name for name in TIMING_ATTACKS if TIMING_ATTACKS.facts(name).needs_past] == ["replay"]


def test_victim_that_does_not_exist_is_reported_before_time_zero_with_its_path() -> None:
    with pytest.raises(ScenarioError, match=r"adversary\.timing\.victims"):
        small_scenario(
            adversary={"ids": [0], "timing": {"name": "selective", "victims": [99]}},
            timing={"wait": {"name": "deadline", "seconds": 1.0}},
        )


# In a world of three


def test_silent_attacker_delays_all_neighbours_until_the_deadline() -> None:
    world = against(silent, wait=Wait(1.0, 0.5)).run()
    assert sent(world) == []
    assert [world.times(i) for i in (0, 1)] == [[1.5, 3.0]] * 2
    assert world.used(0) == [(1, 1, 0), (2, 1, 0)]
    assert world.times(2) == [1.25, 2.75], "the attacker hears the others, and waits for nobody's deadline"


def test_selective_attacker_delays_only_its_victim() -> None:
    world = against(partial(selective, victims=[0]), wait=Wait(1.0, 0.5), rounds=1).run()
    assert sent(world) == [(1.0, 1, 1, 1.0)]
    assert (world.times(0), world.times(1)) == ([1.5], [1.25])
    assert (world.used(0), world.used(1)) == ([(1, 1, 0)], [(1, 0, 0), (1, 2, 0)])
    # w = -(own + mean of what was used)
    assert world.clients[0].state.learning.w[0].tolist() == [-(1 + 2.0)] * 2
    assert world.clients[1].state.learning.w[0].tolist() == pytest.approx([-(2 + (1 + 1) / 2)] * 2)


def test_selective_attacker_is_silent_towards_the_same_fraction_in_every_round() -> None:
    star = [tuple(range(1, 9)), *[(0,)] * 8]
    plan = Plan(sign_flip, timing=partial(selective, fraction=0.5))
    world = TinyWorld(star, byzantine=(0,), plan=plan, wait=Wait(1.0, 0.5), rounds=4).run()
    spared = [{r for _, r, stamp, _ in sent(world, 0) if stamp == round_} for round_ in range(1, 5)]
    assert spared[0] == spared[1] == spared[2] == spared[3]
    assert 0 < len(spared[0]) < 8
    for leaf in range(1, 9):
        # 1 of training, then the latency or the deadline
        assert world.times(leaf)[0] == (1.25 if leaf in spared[0] else 1.5)


def test_just_in_time_delays_all_neighbours_in_every_round() -> None:
    late = against(partial(just_in_time, margin_s=0.5), wait=Wait(1.0, 2.0), rounds=3).run()
    in_time = against(immediate, wait=Wait(1.0, 2.0), rounds=3).run()
    # Training ends 1 after the round began, the deadline is 2 after that; the message leaves 0.5 before it
    # and needs 0.25: a round takes 2.75.
    assert [late.times(i) for i in (0, 1)] == [[2.75, 5.5, 8.25]] * 2
    assert [in_time.times(i) for i in (0, 1)] == [[1.25, 2.5, 3.75]] * 2
    assert late.used(0) == [(r, sender, 0) for r in (1, 2, 3) for sender in (1, 2)], "it was in time"
    assert {value for *_, value in sent(late)} == {1.0}


def test_just_in_time_message_arrives_before_the_deadline_of_a_gathering_victim() -> None:
    world = against(
        partial(just_in_time, margin_s=0.5), compute=(1.0, 1.5, 2.0), wait=Wait(1.0, 2.0), rounds=1
    ).run()
    # They gather since 1 and since 1.5, until 3 and until 3.5.
    assert sent(world) == [(2.5, 0, 1, 1.0), (3.0, 1, 1, 1.0)]
    assert (world.times(0), world.times(1)) == ([2.75], [3.25])
    assert world.used(0) == [(1, 1, 0), (1, 2, 0)]


def test_just_in_time_message_arrives_before_the_deadline_of_a_training_victim() -> None:
    world = against(
        partial(just_in_time, margin_s=0.5),
        compute=(2.0, 1.0, 1.0),
        wait=Wait(1.0, 2.0),
        patience_s=0.5,
        rounds=1,
    ).run()
    # At 1.5 only client 1's direction 2 is known. Client 1 gathers until 3. Client 0 trains until 2 and will
    # then gather until 4.
    assert sent(world) == [(2.5, 1, 1, 2.0), (3.5, 0, 1, 2.0)]
    assert (world.times(0), world.times(1)) == ([3.75], [2.75])
    assert world.used(0) == [(1, 1, 0), (1, 2, 0)]


def test_just_in_time_accounts_for_a_slow_down_of_the_victim() -> None:
    world = against(
        partial(just_in_time, margin_s=0.5),
        attack=sign_flip,
        patience_s=0.0,
        wait=Wait(1.0, 2.0),
        faults=[iter([(0.0, Start(SlowDown((0,), 3.0)))])],
        rounds=1,
    ).run()
    assert (4.5, 0, 1, -3.0) in sent(world), "it trains until 3 and gathers until 5"
    assert world.times(0) == [4.75]


def test_just_in_time_is_prompt_towards_a_victim_that_is_ahead() -> None:
    world = against(
        partial(just_in_time, margin_s=0.5), compute=(1.0, 1.0, 5.0), wait=Wait(1.0, 2.0), rounds=2
    ).run()
    # At 5 the others, whose first round ended at its deadline 3, gather in their second.
    assert sent(world)[:2] == [(5.0, 0, 1, 1.0), (5.0, 1, 1, 1.0)]
    assert world.times(0) == [3.0, 6.0]
    assert drops(world, stamp=1) == ["stale", "stale"]


def test_just_in_time_is_prompt_towards_a_victim_that_is_behind() -> None:
    world = against(
        partial(just_in_time, margin_s=0.5),
        compute=(9.0, 1.0, 1.0),
        wait=Wait(1.0, 2.0),
        patience_s=0.5,
        rounds=2,
    ).run()
    # The attacker's first round ends at its own deadline 1.5 + 2; it trains until 4.5 and is patient until 5.
    # Client 0 is then still in its first round: it trains until 9 and gathers until 11.
    assert [entry for entry in sent(world) if entry[1] == 0] == [(5.0, 0, 2, 2.0), (10.5, 0, 1, 2.0)]
    assert world.times(0)[0] == 10.75


def test_just_in_time_without_a_deadline_is_prompt() -> None:
    world = against(just_in_time, wait=Wait(1.0, None)).run()
    assert world.times(0) == [1.25, 2.5]


def test_just_in_time_with_too_small_a_margin_is_too_late() -> None:
    world = against(partial(just_in_time, margin_s=0.125), wait=Wait(1.0, 2.0), rounds=1).run()
    assert sent(world)[0] == (2.875, 0, 1, 1.0)
    assert world.times(0) == [3.0]
    assert world.used(0) == [(1, 1, 0)]


def test_delayed_message_delays_all_neighbours_by_its_delay() -> None:
    world = against(partial(delayed, seconds=0.5)).run()
    assert sent(world) == [(1.5, 0, 1, 1.0), (1.5, 1, 1, 1.0), (3.25, 0, 2, 1.0), (3.25, 1, 2, 1.0)]
    assert world.times(0) == [1.75, 3.5]


def test_delayed_message_is_computed_from_updates_observed_before_the_delay() -> None:
    world = against(
        partial(delayed, seconds=5.0),
        compute=(1.0, 3.0, 1.0),
        patience_s=0.5,
        wait=Wait(1.0, 9.0),
        rounds=1,
    ).run()
    assert sent(world) == [(6.5, 0, 1, 1.0), (6.5, 1, 1, 1.0)], "at 1.5 client 1's direction was not known"


def test_delayed_message_can_arrive_after_its_sender_started_the_next_round() -> None:
    world = against(partial(delayed, seconds=2.0), attack=sign_flip, wait=Wait(0.0, None), rounds=3).run()
    assert world.times(2) == [1.0, 2.0, 3.0]
    assert [(time_s, stamp) for time_s, recipient, stamp, _ in sent(world) if recipient == 0] == [
        (3.0, 1),
        (4.0, 2),
        (5.0, 3),
    ]


class ReplayWorld(TinyWorld):
    """Client i's direction in round t is 10 i + t, so that in round t min_max sends t in place of 20 + t."""

    def __init__(self, timing: TimingAttack, **world: Any) -> None:
        plan = Plan(min_max, sees_honest=True, timing=timing, remembers=True)

        def direction(client: int, round_: int, poisoned: bool) -> float:
            return 10 * client + round_

        super().__init__(byzantine=(2,), plan=plan, rounds=5, direction=direction, **world)


def test_replayed_message_with_a_fresh_stamp_is_used_as_if_it_were_new() -> None:
    world = ReplayWorld(partial(replay, age=2)).run()
    to_first = [(stamp, value) for _, recipient, stamp, value in sent(world) if recipient == 0]
    assert to_first == [(1, 1.0), (2, 2.0), (3, 1.0), (4, 2.0), (5, 3.0)]
    assert world.times(0) == [1.25, 2.5, 3.75, 5.0, 6.25]
    assert [age for _, sender, age in world.used(0) if sender == 2] == [0] * 5


def test_replayed_message_with_its_old_stamp_delays_all_neighbours() -> None:
    world = ReplayWorld(
        partial(replay, age=2, stamp="old"), wait=Wait(1.0, 1.0), staleness=Staleness(2, 1.0)
    ).run()
    to_first = [(stamp, value) for _, recipient, stamp, value in sent(world) if recipient == 0]
    assert to_first == [(1, 1.0), (2, 2.0), (1, 1.0), (2, 2.0), (3, 3.0)]
    # From the third round on, all clients wait until the deadline, 1 after the training.
    assert world.times(0) == [1.25, 2.5, 4.5, 6.5, 8.5]
    # Stamp 1 arrives after 2 was used, 2 arrives a second time; 3 is new and two rounds old.
    assert [(r, age) for r, sender, age in world.used(0) if sender == 2] == [(1, 0), (2, 0), (5, 2)]
    assert (drops(world, stamp=1), drops(world, stamp=2)) == (["stale"] * 2, ["duplicate"] * 2)


def test_stamp_of_a_past_round_makes_a_message_late_with_an_age() -> None:
    world = against(
        partial(wrong_stamp, offset=-1), wait=Wait(1.0, 0.5), staleness=Staleness(1, 0.5), rounds=2
    ).run()
    assert [entry for entry in sent(world) if entry[1] == 0] == [(1.0, 0, 0, 1.0), (2.5, 0, 1, 1.0)]
    assert drops(world, stamp=0) == ["rejected", "rejected"]
    assert world.times(0) == [1.5, 3.0]
    assert world.used(0) == [(1, 1, 0), (2, 1, 0), (2, 2, 1)]
    # Round 1: -(1 + 2). Round 2: -(1 + (2 + 0.5 * 1) / 2).
    assert world.clients[0].state.learning.w[0].tolist() == pytest.approx([-3 - 2.25] * 2)


def test_stamp_of_a_future_round_is_treated_as_that_of_a_faster_neighbour() -> None:
    world = against(partial(wrong_stamp, offset=1), wait=Wait(1.0, 0.5), rounds=3).run()
    # No message has stamp 1. The message used in round 1 counts for round 2, and so on; round 4 is invalid.
    assert world.times(0) == [1.5, 2.75, 4.0]
    assert [(r, age) for r, sender, age in world.used(0) if sender == 2] == [(1, -1), (2, -1)]
    assert drops(world, stamp=4) == ["rejected", "rejected"]


@pytest.mark.parametrize("offset", [-1_000_000, 1_000_000])
def test_stamp_of_an_impossible_round_is_rejected_and_delays_all_neighbours(offset: int) -> None:
    world = against(partial(wrong_stamp, offset=offset), wait=Wait(1.0, 0.5)).run()
    assert world.times(0) == [1.5, 3.0]
    assert drops(world, stamp=1 + offset) == drops(world, stamp=2 + offset) == ["rejected"] * 2
    assert [world.clients[i].mailbox.outcomes for i in (0, 1)] == [{"used": 2, "rejected": 2}] * 2


def test_flood_of_copies_is_one_message_and_many_duplicates() -> None:
    world = against(partial(flood, copies=50, stamps="same")).run()
    assert len(sent(world)) == 2 * 2 * 50
    assert world.times(0) == [1.25, 2.5]
    assert world.used(0) == [(r, sender, 0) for r in (1, 2) for sender in (1, 2)]
    assert world.clients[0].mailbox.outcomes == {"used": 4, "duplicate": 2 * 49}


def test_flood_of_future_rounds_does_not_exceed_the_capacity_of_the_mailbox() -> None:
    world = against(partial(flood, copies=50), rounds=60).run(until_s=1.25 + 0.5)
    mailbox = world.clients[0].mailbox
    # Stamps 1 to 50 arrive at 1.25, in this order; each beyond the capacity of 4 displaces the oldest.
    assert world.used(0) == [(1, 1, 0), (1, 2, 1 - 47)]
    assert sorted(mailbox.queues[2].unread) == [48, 49, 50]
    assert mailbox.outcomes == {"used": 2, "stale": 46}
    assert world.times(0) == [1.25]


def test_flood_stays_bounded_over_many_rounds() -> None:
    world = against(partial(flood, copies=20), rounds=40).run()
    assert world.times(0)[-1] == 40 * 1.25
    assert world.network.num_delivered == 40 * (4 + 2 * 20)
    for mailbox in (client.mailbox for client in world.clients[:2]):
        assert len(list(mailbox.unread())) <= 4
        assert mailbox.outcomes.total() + len(list(mailbox.unread())) == 40 * (1 + 20)


@pytest.mark.parametrize("name", sorted(TIMING_ATTACKS))
def test_timing_attack_does_not_change_the_content_of_messages(name: str) -> None:
    timing = TIMING_ATTACKS[name]
    world = against(timing, wait=Wait(1.0, 2.0), rounds=8, remembers=TIMING_ATTACKS.facts(name).needs_past)
    values = {value for *_, value in sent(world.run())}
    assert values == (set() if name == "silent" else {1.0})
