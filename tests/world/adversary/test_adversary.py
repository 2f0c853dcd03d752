"""Observations and messages of attackers: exact simulated times, directions computed by hand."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from math import inf, nan
from typing import Any

import pytest
import torch
from torch import Tensor

from rdpfl_sim.aggregators import mean
from rdpfl_sim.attacks import View, dissensus, ipm, mimic, min_max, noise, sign_flip
from rdpfl_sim.attacks.equivocation import mirrored, scaled
from rdpfl_sim.methods.base import (
    ClientView,
    Diagnostics,
    Inbox,
    Payload,
    RunInfo,
    State,
    Trained,
)
from rdpfl_sim.methods.direct import Direct
from rdpfl_sim.methods.dpsgd import Dpsgd
from rdpfl_sim.world.adversary.adversary import MEMORY_ROUNDS, Adversary, Plan
from rdpfl_sim.world.adversary.timing import delayed, flood, just_in_time, replay, wrong_stamp
from rdpfl_sim.world.faults.crash import Crash
from rdpfl_sim.world.faults.fault import Change, End, Start
from rdpfl_sim.world.faults.join_and_leave import Leave
from rdpfl_sim.world.staleness import Staleness
from rdpfl_sim.world.waiting import Wait
from tests.support import RING, TinyWorld, odd_payloads

RING6 = [(1, 5), (0, 2), (1, 3), (2, 4), (3, 5), (0, 4)]
COMPLETE = [(1, 2, 3), (0, 2, 3), (0, 1, 3), (0, 1, 2)]
COMPLETE5 = [tuple(j for j in range(5) if j != i) for i in range(5)]
STAR = [tuple(range(1, 9)), *[(0,)] * 8]
NO_WAITING = Wait(0.0, None)


@dataclass
class Seen:
    """One observation of an attack."""

    time_s: float
    own: float
    view: View

    @property
    def honest(self) -> dict[int, float]:
        """The first entry of the observed updates, by client."""
        return dict(zip(self.view.ids, self.view.honest[:, 0].tolist(), strict=True))


class SpyWorld(TinyWorld):
    """Attackers that record their observations and send their own updates.

    With `numbered`, client i's direction in round t is 100 i + t instead of i + 1, and clients ignore all
    messages, so a direction identifies its client and round.
    """

    def __init__(self, numbered: bool = False, method: Any = None, **world: Any) -> None:
        plan = {key: world.pop(key) for key in list(world) if key in Plan.__dataclass_fields__}
        self.seen: list[Seen] = []
        rounds = world.get("rounds", 2)
        if numbered:
            method = Direct(RunInfo(rounds=rounds), lambda_=0.0, aggregator=mean)
            world = {"direction": numbered_direction, **world}
        super().__init__(plan=Plan(self.look, **{"sees_honest": True, **plan}), method=method, **world)

    def run(self, until_s: float | None = None) -> "SpyWorld":
        super().run(until_s)
        return self

    def look(self, view: View) -> Tensor:
        self.seen.append(Seen(self.kernel.now, view.own[0].item(), view))
        return view.own

    def by(self, attacker: int) -> list[Seen]:
        """Return the observations of an attacker whose own direction is i + 1."""
        return [seen for seen in self.seen if abs(seen.own - attacker - 1) < 1e-5]  # models are rounded


def numbered_direction(client: int, round_: int, poisoned: bool) -> float:
    return 100 * client + round_


def sent(world: TinyWorld, sender: int) -> list[tuple[float, int, int, float]]:
    """Return the messages of a client: time, recipient, stamp, and the first entry of the vector."""
    return [
        (time_s, recipient, stamp, round(vector[0].item(), 4))
        for (time_s, who, recipient, stamp), vector in zip(world.log.sent, world.log.payloads, strict=True)
        if who == sender
    ]


def told(world: TinyWorld, sender: int, round_: int) -> dict[int, float]:
    """Return the values that a client sent in a round, by recipient."""
    return {recipient: value for _, recipient, stamp, value in sent(world, sender) if stamp == round_}


def restarts(client: int, at_s: float, after_s: float) -> Iterator[tuple[float, Change]]:
    """Return a fault: a client crashes and continues at its own round."""
    return iter(
        [
            (at_s, Start(Crash((client,)))),
            (at_s + after_s, End(Crash((client,), fresh=False, catch_up=False))),
        ]
    )


# Observations


def test_attack_without_a_declaration_receives_only_its_own_update() -> None:
    world = SpyWorld(byzantine=(2,), sees_honest=False, compute=(1.0, 9.0, 1.0), rounds=1).run()
    (seen,) = world.seen
    assert (seen.time_s, seen.own, seen.view.seen, list(seen.view.ids)) == (1.0, 3.0, None, [])
    assert (seen.view.victim, seen.view.expected, seen.view.num_byzantine) == (None, None, 1)
    with pytest.raises(TypeError, match="needs='honest'"):
        _ = seen.view.honest


@pytest.mark.parametrize(("collude", "num_byzantine"), [(True, 2), (False, 1)])
def test_omniscient_attackers_observe_all_honest_updates_with_or_without_collusion(
    collude: bool, num_byzantine: int
) -> None:
    world = SpyWorld(neighbours=RING6, byzantine=(1, 4), collude=collude, rounds=1).run()
    for attacker in (1, 4):
        (seen,) = world.by(attacker)
        assert seen.honest == {0: 1, 2: 3, 3: 4, 5: 6}
        assert (seen.time_s, seen.view.num_byzantine, seen.view.round) == (1.0, num_byzantine, 1)
        assert (seen.view.victim, seen.view.expected) == (None, None)


def test_single_neighbourhood_attacker_observes_the_updates_delivered_to_it() -> None:
    world = SpyWorld(
        neighbours=RING6, byzantine=(1, 4), knowledge="neighbourhood", collude=False, rounds=1
    ).run()
    assert [(s.time_s, s.honest, s.view.num_byzantine) for s in world.by(1)] == [(1.25, {0: 1, 2: 3}, 1)]
    assert [(s.time_s, s.honest, s.view.num_byzantine) for s in world.by(4)] == [(1.25, {3: 4, 5: 6}, 1)]


def test_colluding_neighbourhood_attackers_observe_the_updates_delivered_to_any_of_them() -> None:
    world = SpyWorld(neighbours=RING6, byzantine=(1, 4), knowledge="neighbourhood", rounds=1).run()
    for attacker in (1, 4):
        assert [(s.time_s, s.honest, s.view.num_byzantine) for s in world.by(attacker)] == [
            (1.25, {0: 1, 2: 3, 3: 4, 5: 6}, 2)
        ]


def test_messages_of_attackers_are_not_honest_updates() -> None:
    world = SpyWorld(neighbours=COMPLETE, byzantine=(2, 3), knowledge="neighbourhood").run()
    assert {tuple(seen.honest) for seen in world.seen} == {(0, 1)}
    assert {client for knowledge in (world.adversary.shared,) for client in knowledge.updates} == {0, 1}


def test_single_attacker_with_knowledge_of_its_own_update_does_not_wait() -> None:
    world = SpyWorld(
        neighbours=COMPLETE,
        byzantine=(2, 3),
        knowledge="own",
        collude=False,
        compute=(9.0, 9.0, 1.0, 2.0),
        rounds=1,
    ).run()
    assert [(s.time_s, s.honest, s.view.num_byzantine) for s in world.seen] == [
        (1.0, {2: 3}, 1),
        (2.0, {3: 4}, 1),
    ]


@pytest.mark.parametrize("collude", [True, False])
def test_attacker_with_knowledge_of_its_own_update_does_not_observe_messages(collude: bool) -> None:
    world = SpyWorld(neighbours=COMPLETE, byzantine=(2, 3), knowledge="own", collude=collude, rounds=3).run()
    assert [tuple(seen.honest) for seen in world.by(2)] == [(2, 3) if collude else (2,)] * 3


def test_colluding_attackers_with_knowledge_of_their_own_updates_wait_for_each_other() -> None:
    world = SpyWorld(
        neighbours=COMPLETE, byzantine=(2, 3), knowledge="own", compute=(9.0, 9.0, 1.0, 2.0), rounds=1
    ).run()
    assert [(s.time_s, s.own, s.honest, s.view.num_byzantine) for s in world.seen] == [
        (2.0, 4.0, {2: 3, 3: 4}, 2),
        (2.0, 3.0, {2: 3, 3: 4}, 2),
    ]


def test_attack_on_a_victim_observes_its_honest_neighbours_and_its_prediction() -> None:
    world = SpyWorld(neighbours=RING, byzantine=(3,), sees_victim=True, rounds=1).run()
    looks = [
        (s.honest, s.view.victim[0].item(), s.view.expected[0].item(), s.view.num_byzantine)
        for s in world.seen
        if s.view.victim is not None and s.view.expected is not None
    ]
    assert looks == [({1: 2.0}, 1.0, 100.0, 1), ({1: 2.0}, 3.0, 102.0, 1)]


def test_only_neighbours_of_a_victim_collude_against_it() -> None:
    world = SpyWorld(neighbours=RING6, byzantine=(1, 3, 4), sees_victim=True, rounds=1).run()
    # Client 1 attacks 0 and 2, client 3 attacks 2 (and attacker 4), client 4 attacks 5 (and attacker 3).
    assert [seen.view.num_byzantine for seen in world.by(1)] == [1, 2]
    assert [seen.view.num_byzantine for seen in world.by(3)] == [2, 1]


def test_attack_on_a_victim_without_honest_neighbours_observes_only_its_own_update() -> None:
    world = SpyWorld(neighbours=RING, byzantine=(1, 3), sees_victim=True, rounds=1).run()
    assert len(world.seen) == 4
    for seen in world.seen:
        assert list(seen.view.ids) == []
        assert seen.view.honest[:, 0].tolist() == [seen.own]
        assert seen.view.num_byzantine == 2, "both neighbours of each victim attack it"


def test_only_omniscient_attackers_observe_the_prediction_of_a_victim() -> None:
    world = SpyWorld(
        neighbours=RING, byzantine=(3,), sees_victim=True, knowledge="neighbourhood", rounds=1
    ).run()
    # It receives messages from its victims 0 and 2, but never from their other neighbour, client 1.
    victims = [seen.view.victim for seen in world.seen]
    assert [None if victim is None else victim[0].item() for victim in victims] == [1.0, 3.0]
    assert [seen.view.expected for seen in world.seen] == [None, None]
    assert [list(seen.view.ids) for seen in world.seen] == [[], []]


def test_update_of_a_victim_in_the_own_group_is_unknown() -> None:
    world = SpyWorld(neighbours=COMPLETE, byzantine=(2, 3), sees_victim=True, rounds=1).run()
    victims = [seen.view.victim for seen in world.by(3)]
    assert [None if victim is None else victim[0].item() for victim in victims] == [1.0, 2.0, None]


def test_attackers_without_collusion_attack_a_victim_separately() -> None:
    world = SpyWorld(neighbours=COMPLETE, byzantine=(2, 3), sees_victim=True, collude=False, rounds=1).run()
    assert {seen.view.num_byzantine for seen in world.seen} == {1}


def test_attackers_observe_the_updates_of_their_round_even_if_others_are_ahead() -> None:
    world = SpyWorld(numbered=True, byzantine=(2,), compute=(1.0, 1.0, 3.0), wait=NO_WAITING, rounds=5).run()
    assert [seen.time_s for seen in world.seen] == [3.0, 6.0, 9.0, 12.0, 15.0]
    assert [seen.honest for seen in world.seen] == [{0: t, 1: 100 + t} for t in range(1, 6)]


def test_attackers_observe_the_updates_of_their_round_even_if_a_group_member_is_ahead() -> None:
    world = SpyWorld(
        numbered=True,
        neighbours=COMPLETE,
        byzantine=(2, 3),
        compute=(1.0, 1.0, 1.0, 3.0),
        wait=NO_WAITING,
        rounds=4,
    ).run()
    for attacker in (2, 3):
        looks = [seen.honest for seen in world.seen if seen.own // 100 == attacker]
        assert looks == [{0: t, 1: 100 + t} for t in range(1, 5)]


def test_attacker_after_its_patience_uses_the_latest_observed_updates_and_its_own() -> None:
    world = SpyWorld(
        numbered=True, byzantine=(2,), compute=(2.0, 2.25, 1.0), wait=NO_WAITING, patience_s=0.0, rounds=5
    ).run()
    # At 1 no update exists; client 0's updates exist from 2 and 4 on, client 1's from 2.25 and 4.5 on. An
    # attacker without patience stops waiting after all other events of the instant.
    assert [
        (seen.time_s, seen.honest if seen.view.ids else seen.view.honest[0, 0].item()) for seen in world.seen
    ] == [
        (1.0, 201),
        (2.0, {0: 1}),
        (3.0, {0: 1, 1: 101}),
        (4.0, {0: 2, 1: 101}),
        (5.0, {0: 2, 1: 102}),
    ]


def test_diverged_client_is_not_observed_and_does_not_delay_attackers() -> None:
    def diverges(client: int, round_: int, poisoned: bool) -> float:
        return nan if client == 1 else numbered_direction(client, round_, poisoned)

    for knowledge in ("omniscient", "neighbourhood"):
        world = SpyWorld(
            neighbours=COMPLETE,
            numbered=True,
            byzantine=(3,),
            knowledge=knowledge,
            rounds=1,
            direction=diverges,
        )
        (seen,) = world.run().seen
        assert seen.honest == {0: 1, 2: 201}
        assert seen.time_s == (1.0 if knowledge == "omniscient" else 1.25)


@pytest.mark.parametrize("collude", [True, False])
def test_attacker_observes_only_messages_that_its_mailbox_accepts(collude: bool) -> None:
    world = SpyWorld(
        neighbours=RING, byzantine=(2,), knowledge="neighbourhood", collude=collude, latency_s=0.25
    )
    kinds = odd_payloads(Payload(torch.zeros(2)).form)
    rejected = {"nan", "inf", "nan where nothing is sent", "empty", "too long", "a matrix", "float64"}
    rejected |= {kind for kind in kinds if "mask" in kind and kind != "no mask"}
    for kind, payload in kinds.items():
        world.network.send(1, 1, payload, [2], stamp=2)  # before its own message of round 2
        assert (payload.form, payload.is_finite) == (kinds["tiny"].form, True) or kind in rejected
    for stamp in (-1, 0, 3, 10**9):
        world.network.send(3, 1, Payload(torch.ones(2)), [2], stamp=stamp)
    world.network.send(0, 1, Payload(torch.ones(2)), [2])  # not a neighbour
    world.run(until_s=0.5)
    knowledge = world.adversary.shared if collude else world.adversary.alone[2]
    known = {client: dict(updates) for client, updates in knowledge.updates.items()}
    assert known.keys() == {1}
    assert known[1].keys() == {2}
    assert torch.equal(known[1][2], kinds["no mask"].vector), "the last one that passes"
    assert world.log.dropped.count((2, "rejected")) == len(rejected)
    world.kernel.run()
    assert world.seen[0].honest == {1: 2, 3: 4}, "the messages of its own round"


def test_attack_memory_is_kept_between_rounds_and_separate_per_attacker() -> None:
    counts: dict[float, list[int]] = {3.0: [], 4.0: []}

    def counting(view: View) -> Tensor:
        view.memory["n"] = view.memory.get("n", 0) + 1
        counts[view.own[0].item()].append(view.memory["n"])
        return view.own

    TinyWorld(neighbours=COMPLETE, byzantine=(2, 3), plan=Plan(counting), rounds=2).run()
    assert counts == {3.0: [1, 2], 4.0: [1, 2]}


def test_every_message_has_a_separate_random_stream() -> None:
    world = SpyWorld(neighbours=COMPLETE, byzantine=(2, 3), sees_victim=True, rounds=3).run()
    assert len({seen.view.seed for seen in world.seen}) == len(world.seen) == 2 * 3 * 3


# Waiting for observations


def test_omniscient_attacker_waits_until_the_last_honest_update_is_computed() -> None:
    world = SpyWorld(neighbours=RING6, byzantine=(1, 4), compute=(1.0, 1.0, 2.0, 5.0, 9.0, 3.0), rounds=1)
    world.run()
    # Client 3 is the last at 5; no attacker waits for attacker 4, which finishes at 9.
    assert [(seen.time_s, seen.own) for seen in world.seen] == [(5.0, 2.0), (9.0, 5.0)]
    assert [entry[0] for entry in sent(world, 1)] == [5.0, 5.0]


def test_neighbourhood_attacker_waits_for_its_honest_neighbours_messages() -> None:
    world = SpyWorld(
        neighbours=RING6,
        byzantine=(1, 4),
        knowledge="neighbourhood",
        compute=(1.0, 1.0, 3.0, 9.0, 1.0, 1.0),
        rounds=1,
    ).run()
    assert [(s.time_s, s.own) for s in world.seen] == [(3.25, 2.0), (9.25, 5.0)]


def test_neighbourhood_attacker_does_not_wait_for_its_group() -> None:
    world = SpyWorld(
        neighbours=RING6,
        byzantine=(1, 2),
        knowledge="neighbourhood",
        compute=(1.0, 1.0, 9.0, 1.0, 1.0, 1.0),
        rounds=1,
    ).run()
    assert world.by(1)[0].time_s == 1.25
    assert world.by(2)[0].time_s == 9.0, "all that it wants to hear is there when its training ends"


def test_neighbourhood_attacker_does_not_wait_for_attackers_of_another_group() -> None:
    world = SpyWorld(byzantine=(2,), knowledge="neighbourhood", compute=(1.0, 9.0, 1.0), rounds=1)
    world.adversary.byzantine = frozenset({1, 2})
    world.run()
    assert [(seen.time_s, seen.honest) for seen in world.seen] == [(1.25, {0: 1})]


def test_message_delivered_before_the_training_ended_causes_no_wait() -> None:
    world = SpyWorld(byzantine=(2,), knowledge="neighbourhood", compute=(1.0, 1.0, 4.0), rounds=1).run()
    assert [(seen.time_s, seen.honest) for seen in world.seen] == [(4.0, {0: 1, 1: 2})]


def test_rejected_message_does_not_delay_a_neighbourhood_attacker() -> None:
    def diverges(client: int, round_: int, poisoned: bool) -> float:
        return -inf if client == 0 else 2

    world = SpyWorld(byzantine=(2,), knowledge="neighbourhood", rounds=1, direction=diverges)
    assert [(seen.time_s, seen.honest) for seen in world.run().seen] == [(1.25, {1: 2})]


@pytest.mark.parametrize(
    ("knowledge", "time_s", "honest"),
    [("omniscient", 1.5, {0: 1}), ("neighbourhood", 1.5, {0: 1})],
)
def test_patience_ends_the_wait(knowledge: str, time_s: float, honest: dict[int, float]) -> None:
    world = SpyWorld(
        byzantine=(2,), knowledge=knowledge, compute=(1.0, 5.0, 1.0), patience_s=0.5, rounds=1
    ).run()
    assert [(seen.time_s, seen.honest) for seen in world.seen] == [(time_s, honest)]
    assert [entry[0] for entry in sent(world, 2)] == [1.5, 1.5], "and what comes later makes it send no more"
    assert world.times(2) == [5.25], "nor does it cut short how long it waits for messages"


def test_patience_restarts_in_every_round() -> None:
    world = SpyWorld(byzantine=(2,), compute=(4.0, 4.0, 1.0), patience_s=0.5, wait=NO_WAITING, rounds=3).run()
    assert [seen.time_s for seen in world.seen] == [1.5, 3.0, 4.5]


def test_attacker_does_not_resume_for_updates_that_only_a_slower_group_member_needs() -> None:
    world = SpyWorld(
        neighbours=COMPLETE,
        byzantine=(2, 3),
        compute=(1.0, 4.0, 1.0, 100.0),
        patience_s=1.5,
        wait=NO_WAITING,
        rounds=2,
    ).run(until_s=7.0)
    # At 4 client 1 has computed its first update; client 2 waits for the second since 3.5.
    assert [seen.time_s for seen in world.by(2)] == [2.5, 5.0]


def test_unused_patience_does_not_delay_the_run() -> None:
    world = SpyWorld(byzantine=(2,), compute=(1.0, 2.0, 1.0), patience_s=9.0, rounds=2).run()
    assert [seen.time_s for seen in world.seen] == [2.0, 4.25]


def test_update_computed_when_patience_ends_is_observed() -> None:
    world = SpyWorld(byzantine=(2,), compute=(1.0, 1.5, 1.0), patience_s=0.5, rounds=1).run()
    assert [(seen.time_s, seen.honest) for seen in world.seen] == [(1.5, {0: 1, 1: 2})]


@pytest.mark.parametrize("patience_s", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("wait", [NO_WAITING, Wait(0.5, 3.0), Wait(1.0, 3.0)])
def test_no_update_is_observed_before_it_is_computed(patience_s: float, wait: Wait) -> None:
    world = SpyWorld(
        numbered=True,
        neighbours=RING6,
        byzantine=(1, 4),
        compute=(1.0, 0.7, 2.1, 3.3, 1.9, 0.4),
        latency_s=lambda u: 0.1 + 2 * u,
        patience_s=patience_s,
        wait=wait,
        rounds=8,
    ).run()
    # An honest client sends in the instant in which it has computed.
    computed = {(sender, stamp): time_s for time_s, sender, _, stamp in world.log.sent}
    looks = [(seen, *divmod(int(value), 100)) for seen in world.seen for value in seen.honest.values()]
    assert len(world.seen) == 16
    assert all(computed[client, round_] <= seen.time_s for seen, client, round_ in looks)
    assert {client for _, client, _ in looks} == {0, 2, 3, 5}
    for seen, client, round_ in looks:
        known = [r for r in range(1, seen.view.round + 1) if computed[client, r] < seen.time_s]
        assert round_ >= max(known, default=0), "and what it sees is the latest that fits"


@pytest.mark.parametrize("collude", [True, False])
@pytest.mark.parametrize("patience_s", [0.0, 0.5, 2.0])
def test_neighbourhood_attacker_observes_no_update_before_its_delivery(
    collude: bool, patience_s: float
) -> None:
    world = SpyWorld(
        numbered=True,
        neighbours=RING6,
        byzantine=(1, 4),
        compute=(1.0, 0.7, 2.1, 3.3, 1.9, 0.4),
        latency_s=lambda u: 0.1 + 2 * u,
        knowledge="neighbourhood",
        collude=collude,
        patience_s=patience_s,
        wait=Wait(0.5, 3.0),
        rounds=8,
    ).run()
    arrived = {(sender, stamp, to): time_s for time_s, sender, to, stamp in world.log.delivered}
    num_looks = 0
    for seen in world.seen:
        attacker = int(seen.own) // 100
        ears = (1, 4) if collude else (attacker,)
        for value in seen.honest.values() if seen.view.ids else ():
            client, round_ = divmod(int(value), 100)
            num_looks += 1
            assert min(arrived.get((client, round_, ear), 1e9) for ear in ears) <= seen.time_s
    assert num_looks > 16


# Messages


def test_forged_message_changes_the_model_of_the_victim() -> None:
    world = TinyWorld(
        COMPLETE, byzantine=(3,), plan=Plan(partial(ipm, epsilon=3.0), sees_honest=True), rounds=1
    ).run()
    # mu = (1 + 2 + 3) / 3 = 2, so client 3 sends -6.
    assert set(told(world, 3, 1).values()) == {-6.0}
    # w = -(own + mean of the others)
    assert [client.state.learning.w[0, 0].item() for client in world.clients[:3]] == pytest.approx(
        [-(1 + (2 + 3 - 6) / 3), -(2 + (1 + 3 - 6) / 3), -(3 + (1 + 2 - 6) / 3)]
    )


def test_attack_independent_of_recipients_sends_one_message_to_all() -> None:
    world = SpyWorld(neighbours=COMPLETE, byzantine=(3,), rounds=1).run()
    assert len(world.seen) == 1
    addresses = {
        vector.data_ptr()
        for (_, sender, _, _), vector in zip(world.log.sent, world.log.payloads, strict=True)
        if sender == 3
    }
    assert len(addresses) == 1


def test_attack_on_victims_sends_each_a_different_message() -> None:
    plan = Plan(dissensus, sees_honest=True, sees_victim=True)
    world = TinyWorld(COMPLETE, byzantine=(3,), plan=plan, rounds=1).run()
    # x - 2 (mean of the victim's two honest neighbours - x), for x = 1, 2, 3
    assert told(world, 3, 1) == {0: 1 - 2 * 1.5, 1: 2 - 2 * 0.0, 2: 3 - 2 * -1.5}


def star(equivocation: Any, rounds: int = 3, **plan: Any) -> TinyWorld:
    """Return a world: the hub (direction 1) attacks clients with directions 2 to 9; min_max is 9 - 7 = 2."""
    return TinyWorld(
        STAR,
        byzantine=(0,),
        plan=Plan(min_max, sees_honest=True, equivocation=equivocation, **plan),
        rounds=rounds,
    ).run()


def test_equivocator_sends_different_messages_with_fixed_factors_per_recipient() -> None:
    world = star(scaled)
    first = told(world, 0, 1)
    # 1 + s (2 - 1), s between 0.5 and 1.5
    assert len(set(first.values())) == 8
    assert all(1.5 <= value <= 2.5 for value in first.values())
    assert told(world, 0, 2) == told(world, 0, 3) == first


def test_mirroring_equivocator_sends_the_opposite_to_a_fixed_set_of_recipients() -> None:
    world = star(mirrored)
    first = told(world, 0, 1)
    assert set(first.values()) == {2.0, 0.0}
    assert told(world, 0, 2) == told(world, 0, 3) == first


def test_equivocators_have_different_draws() -> None:
    plan = Plan(sign_flip, equivocation=scaled)
    world = TinyWorld(COMPLETE, byzantine=(2, 3), plan=plan, rounds=1).run()
    # u + s (-u - u): s = (1 - told / u) / 2
    factors = [(1 - told(world, attacker, 1)[0] / (attacker + 1)) / 2 for attacker in (2, 3)]
    assert all(0.5 <= s <= 1.5 for s in factors)
    assert abs(factors[0] - factors[1]) > 1e-3


def test_delayed_equivocator_sends_each_recipient_a_different_message() -> None:
    late = star(scaled, timing=partial(delayed, seconds=0.5))
    assert told(late, 0, 1) == told(star(scaled), 0, 1)
    assert {time_s for time_s, _, stamp, _ in sent(late, 0) if stamp == 1} == {1.5}


def test_equivocator_replays_the_earlier_message_of_each_recipient() -> None:
    world = TinyWorld(
        COMPLETE,
        byzantine=(3,),
        plan=Plan(sign_flip, equivocation=scaled, timing=partial(replay, age=1), remembers=True),
        rounds=3,
        method=Direct(RunInfo(rounds=3), lambda_=0.0, aggregator=mean),
        direction=numbered_direction,
    )
    world.run()
    first = told(world, 3, 1)
    assert len(set(first.values())) == 3
    assert told(world, 3, 2) == first, "the first message again"
    for recipient, value in told(world, 3, 3).items():
        assert value == pytest.approx(first[recipient] * 302 / 301, rel=1e-5), "the second one"


def test_equivocator_scales_one_forged_message() -> None:
    looks: list[View] = []

    def look(view: View) -> Tensor:
        looks.append(view)
        return noise(view, sigma=1.0)

    plan = Plan(look, equivocation=scaled)
    world = TinyWorld(COMPLETE, byzantine=(3,), plan=plan, rounds=1).run()
    lies = [
        vector - 4.0  # its direction
        for (_, sender, _, _), vector in zip(world.log.sent, world.log.payloads, strict=True)
        if sender == 3
    ]
    assert len(looks) == 1
    for lie in lies[1:]:
        assert torch.cosine_similarity(lie, lies[0], dim=0).item() == pytest.approx(1.0)


def test_equivocation_updates_the_memory_of_an_attack_once_per_round() -> None:
    plan = Plan(partial(mimic, warmup=10), sees_honest=True, equivocation=scaled)
    world = TinyWorld(COMPLETE, byzantine=(3,), plan=plan, rounds=4).run()
    assert world.adversary.memories[3]["t"] == 4, "a step of its warm-up is a round"


def counted(attack: Callable[[View], Tensor], collective: bool, **world: Any) -> tuple[TinyWorld, int]:
    """Return a world in which clients 3 and 4 attack, and the number of computations of the attack."""
    num_calls = 0

    def count(view: View) -> Tensor:
        nonlocal num_calls
        num_calls += 1
        return attack(view)

    world = {"neighbours": COMPLETE5, "byzantine": (3, 4), "rounds": 6, **world}
    changes = {key: world.pop(key) for key in list(world) if key in Plan.__dataclass_fields__}
    plan = Plan(count, sees_honest=True, collective=collective, **changes)
    tiny = TinyWorld(plan=plan, **world)
    return tiny.run(), num_calls


def log_of(world: TinyWorld) -> dict[str, Any]:
    entries = {name: value for name, value in vars(world.log).items() if name != "kernel"}
    return {**entries, "payloads": [vector.tolist() for vector in world.log.payloads]}


def test_collective_attack_is_computed_once_per_round() -> None:
    cached, num_cached = counted(min_max, collective=True)
    uncached, num_uncached = counted(min_max, collective=False)
    assert (num_cached, num_uncached) == (6, 12)
    assert log_of(cached) == log_of(uncached)


def test_collective_attack_of_an_equivocator_is_computed_once_per_round() -> None:
    cached, num_cached = counted(min_max, collective=True, equivocation=scaled)
    uncached, _ = counted(min_max, collective=False, equivocation=scaled)
    assert num_cached == 6
    assert log_of(cached) == log_of(uncached)


@pytest.mark.parametrize("knowledge", ["own", "neighbourhood", "omniscient"])
@pytest.mark.parametrize("collude", [True, False])
@pytest.mark.parametrize("patience_s", [0.5, 1.5, None])
def test_collective_attack_equals_the_message_of_each_attacker(
    knowledge: str, collude: bool, patience_s: float | None
) -> None:
    """Attackers with different neighbours or rounds observe different updates."""

    def run(collective: bool) -> dict[str, Any]:
        world = SpyWorld(
            numbered=True,
            neighbours=RING6,
            byzantine=(1, 2),
            compute=(0.9, 1.0, 3.1, 1.7, 2.3, 1.1),
            latency_s=lambda u: 0.1 + u,
            rounds=6,
            wait=Wait(0.5, 3.0),
            knowledge=knowledge,
            collude=collude,
            patience_s=patience_s,
            collective=collective,
        )
        world.adversary.plan = replace(world.adversary.plan, attack=min_max)
        return log_of(world.run())

    assert run(collective=True) == run(collective=False)


@pytest.mark.parametrize("patience_s", [0.0, None])
def test_collective_attacker_without_observations_uses_its_own_update(patience_s: float | None) -> None:
    # No update exists at 1; or the two receive messages only from each other.
    if patience_s is None:
        neighbours, compute = [(), (2,), (1,)], (1.0, 1.0, 1.0)
    else:
        neighbours, compute = [(1,), (0, 2), (1,)], (9.0, 1.0, 1.0)
    world = TinyWorld(
        neighbours,
        compute=compute,
        byzantine=(1, 2),
        plan=Plan(
            min_max, sees_honest=True, collective=True, knowledge="neighbourhood", patience_s=patience_s
        ),
        rounds=1,
    ).run()
    assert (told(world, 1, 1)[2], told(world, 2, 1)[1]) == (2.0, 3.0)


class Eavesdropper(Direct):
    """Stores the messages that a method receives."""

    def __init__(self) -> None:
        super().__init__(RunInfo(rounds=3), lambda_=1.0, aggregator=mean)
        self.inboxes: list[Inbox] = []

    def update(
        self, state: State, trained: Trained, inbox: Inbox, clients: Sequence[ClientView]
    ) -> tuple[State, Diagnostics]:
        self.inboxes.append(inbox)
        return super().update(state, trained, inbox, clients)


@pytest.mark.parametrize("timing", [partial(wrong_stamp, offset=1), partial(flood, copies=3), delayed])
def test_methods_receive_only_vectors_masks_weights_and_degrees_of_messages(timing: Any) -> None:
    method = Eavesdropper()
    plan = Plan(min_max, sees_honest=True, equivocation=scaled, timing=timing)
    TinyWorld(
        byzantine=(2,),
        plan=plan,
        method=method,
        rounds=3,
        wait=Wait(1.0, 3.0),
        staleness=Staleness(2, 0.5),
    ).run()
    assert [field.name for field in fields(Inbox)] == ["vectors", "masks", "weight_rows", "degree_rows"]
    assert any(inbox.num_messages == 2 for inbox in method.inboxes)
    for inbox in method.inboxes:
        assert inbox.masks is None
        assert (inbox.vectors.shape[2], inbox.vectors.dtype, vars(inbox.vectors)) == (2, torch.float32, {})
        assert set(inbox.degrees.flatten().tolist()) <= {2}
        assert set(inbox.weights.flatten().tolist()) <= {1.0, 0.5, 0.25}


# Crashes and departures


def test_crashed_attacker_does_not_send_withheld_messages() -> None:
    plan = Plan(sign_flip, timing=partial(delayed, seconds=1.0))
    crash = iter([(1.5, Start(Crash((2,), for_good=True)))])
    world = TinyWorld(byzantine=(2,), plan=plan, wait=Wait(1.0, 2.0), faults=[crash], rounds=1).run()
    assert sent(world, 2) == []
    assert world.times(0) == [3.0]


def test_attacker_does_not_send_withheld_messages_to_departed_clients() -> None:
    plan = Plan(sign_flip, timing=partial(delayed, seconds=1.0))
    leave = iter([(1.5, Start(Leave((0,))))])
    world = TinyWorld(byzantine=(2,), plan=plan, wait=Wait(1.0, 2.0), faults=[leave], rounds=1).run()
    assert sent(world, 2) == [(2.0, 1, 1, -3.0)]


def test_attacker_that_crashes_while_it_waits_sends_nothing() -> None:
    crash = iter([(2.0, Start(Crash((2,), for_good=True)))])
    world = SpyWorld(
        byzantine=(2,), compute=(1.0, 4.0, 1.0), wait=Wait(1.0, 5.0), faults=[crash], rounds=1
    ).run(until_s=3.0)
    assert world.adversary.waiting == {}
    world.kernel.run()
    assert (world.seen, sent(world, 2)) == ([], [])
    assert world.times(0) == [6.0]


def test_attacker_that_crashes_while_it_waits_waits_again_after_its_recovery() -> None:
    world = SpyWorld(
        byzantine=(2,), compute=(1.0, 4.0, 1.0), wait=Wait(1.0, 5.0), faults=[restarts(2, 2.0, 0.5)], rounds=1
    ).run()
    assert [(seen.time_s, seen.honest) for seen in world.seen] == [(4.0, {0: 1, 1: 2})]


def test_withheld_messages_are_lost_in_a_crash() -> None:
    plan = Plan(sign_flip, timing=partial(delayed, seconds=2.0))
    world = TinyWorld(
        byzantine=(2,),
        plan=plan,
        compute=(1.0, 9.0, 1.0),  # so that the attacker is still in round 1 when it crashes
        wait=Wait(1.0, 20.0),
        faults=[restarts(2, at_s=1.5, after_s=0.5)],
        rounds=1,
    ).run()
    # It trains again from 2 to 3 and holds its message back until 5.
    assert [time_s for time_s, recipient, *_ in sent(world, 2) if recipient == 0] == [5.0]


def test_round_computed_twice_is_observed_once() -> None:
    world = SpyWorld(
        neighbours=COMPLETE,
        byzantine=(3,),
        compute=(1.0, 1.0, 5.0, 1.0),
        wait=Wait(1.0, 20.0),
        faults=[restarts(0, at_s=1.5, after_s=0.5)],
        rounds=1,
    ).run()
    assert [(seen.time_s, seen.honest) for seen in world.seen] == [(5.0, {0: 1, 1: 2, 2: 3})]


def test_recovered_attacker_does_not_wait_for_updates_observed_before() -> None:
    world = SpyWorld(
        byzantine=(2,), patience_s=10.0, wait=Wait(1.0, 20.0), faults=[restarts(2, 1.125, 0.5)], rounds=1
    ).run()
    assert [seen.time_s for seen in world.seen] == [1.0, 2.625]


def test_neighbourhood_attacker_stops_waiting_for_a_neighbour_that_leaves() -> None:
    world = SpyWorld(
        byzantine=(2,),
        knowledge="neighbourhood",
        compute=(1.0, 9.0, 1.0),
        patience_s=10.0,
        wait=Wait(1.0, 20.0),
        faults=[iter([(2.0, Start(Leave((1,))))])],
        rounds=1,
    ).run()
    assert [(seen.time_s, seen.honest) for seen in world.seen] == [(2.0, {0: 1})]


def test_omniscient_attacker_does_not_wait_for_a_client_that_has_left() -> None:
    world = SpyWorld(
        byzantine=(2,),
        compute=(1.0, 9.0, 1.0),
        patience_s=10.0,
        wait=Wait(1.0, 20.0),
        faults=[iter([(0.5, Start(Leave((1,))))])],
        rounds=2,
    ).run()
    assert [seen.time_s for seen in world.seen] == [1.0, 2.25]


def test_collective_attack_is_recomputed_after_an_update_was_recomputed() -> None:
    def run(collective: bool) -> dict[int, float]:
        num_trained = Counter[int]()

        def direction(client: int, round_: int, poisoned: bool) -> float:
            num_trained[client] += 1
            return 10 * client + num_trained[client]

        plan = Plan(min_max, sees_honest=True, collective=collective)
        world = TinyWorld(
            COMPLETE,
            compute=(1.0, 1.0, 1.0, 3.0),
            byzantine=(2, 3),
            plan=plan,
            wait=Wait(1.0, 20.0),
            faults=[restarts(0, at_s=1.125, after_s=0.5)],
            rounds=1,
            direction=direction,
        )
        return told(world.run(), 3, 1)

    # Client 2 attacks at 1, when client 0's update is 1; client 3 at 3, when it is 2.
    assert run(collective=False) == {0: 2.0, 1: 2.0, 2: 2.0}
    assert run(collective=True) == {0: 2.0, 1: 2.0, 2: 2.0}


# Memory


def sizes(adversary: Adversary) -> tuple[int, int, int]:
    """Return maximum updates per client, maximum messages per recipient, and number of counted rounds."""
    knowledge = [adversary.shared, *adversary.alone.values()]
    return (
        max([len(updates) for k in knowledge for updates in k.updates.values()], default=0),
        max([len(p) for of_one in adversary.past.values() for p in of_one.values()], default=0),
        len(adversary.seen_in),
    )


@pytest.mark.slow
@pytest.mark.parametrize("knowledge", ["own", "neighbourhood", "omniscient"])
@pytest.mark.parametrize("collude", [True, False])
def test_memory_does_not_grow_with_the_rounds(knowledge: Any, collude: bool) -> None:
    plan = Plan(
        min_max, sees_honest=True, timing=replay, remembers=True, knowledge=knowledge, collude=collude
    )
    world = TinyWorld(COMPLETE, byzantine=(2, 3), plan=plan, rounds=200).run()
    updates, messages, rounds = sizes(world.adversary)
    assert (1 <= updates <= 2, messages, rounds <= 2) == (True, MEMORY_ROUNDS, True)
    assert world.adversary.waiting == {}


def test_attack_without_replay_keeps_one_message_per_recipient() -> None:
    plan = Plan(min_max, sees_honest=True, equivocation=scaled)
    world = TinyWorld(byzantine=(2,), plan=plan, rounds=200).run()
    assert sizes(world.adversary)[1] == 1


@pytest.mark.parametrize("knowledge", ["neighbourhood", "omniscient"])
def test_memory_is_bounded_for_an_attacker_that_is_behind(knowledge: Any) -> None:
    plan = Plan(min_max, sees_honest=True, knowledge=knowledge, patience_s=0.5)
    world = TinyWorld(byzantine=(2,), plan=plan, compute=(1.0, 1.0, 300.0), wait=NO_WAITING, rounds=200).run(
        until_s=299.0
    )
    assert sizes(world.adversary)[0] == MEMORY_ROUNDS


def test_memory_is_bounded_for_an_attacker_that_is_ahead() -> None:
    plan = Plan(min_max, sees_honest=True, patience_s=0.5)
    world = TinyWorld(byzantine=(2,), plan=plan, compute=(50.0, 50.0, 1.0), wait=NO_WAITING, rounds=200).run(
        until_s=5000.0
    )
    updates, _, rounds = sizes(world.adversary)
    assert (updates, rounds) == (1, 0)


def test_memory_does_not_grow_after_an_attacker_departed() -> None:
    plan = Plan(min_max, sees_honest=True, patience_s=0.5)
    crash = iter([(1.5, Start(Crash((2,), for_good=True)))])
    world = TinyWorld(COMPLETE, byzantine=(2, 3), plan=plan, wait=Wait(1.0, 1.0), faults=[crash], rounds=200)
    updates, _, rounds = sizes(world.run().adversary)
    assert (updates <= 2, rounds <= 2) == (True, True)


# Determinism


@pytest.mark.parametrize("timing", [flood, partial(just_in_time, margin_s=0.5), replay])
def test_two_runs_write_the_same_log(timing: Any) -> None:
    def run() -> dict[str, Any]:
        plan = Plan(
            noise,
            sees_honest=True,
            knowledge="neighbourhood",
            equivocation=scaled,
            timing=timing,
            remembers=True,
            patience_s=0.5,
        )
        world = TinyWorld(
            RING6,
            byzantine=(1, 2),
            plan=plan,
            compute=(0.9, 1.0, 3.1, 1.7, 2.3, 1.1),
            latency_s=lambda u: 0.1 + u,
            wait=Wait(0.5, 2.0),
            staleness=Staleness(3, 0.5),
            faults=[restarts(0, 4.0, 1.0), restarts(1, 7.0, 1.0)],
            rounds=8,
        )
        return log_of(world.run())

    first, second = run(), run()
    assert first["sent"]
    assert first == second


def test_attack_on_models_measures_changes_from_the_attackers_own_model() -> None:
    # All clients start at (0, 0); client 1 trains to (-2, -2) and sends the opposite change.
    world = TinyWorld(
        [(1,), (0,)],
        rounds=1,
        byzantine=[1],
        plan=Plan(sign_flip),
        method=Dpsgd(RunInfo(rounds=1)),
    ).run()
    by_sender = {
        sender: p.tolist() for (_, sender, _, _), p in zip(world.log.sent, world.log.payloads, strict=True)
    }
    assert by_sender == {0: [-1.0, -1.0], 1: [2.0, 2.0]}
    assert world.clients[0].state.learning.w[0].tolist() == [0.5, 0.5]  # (-1 + 2) / 2


def test_second_round_of_an_attack_on_models_starts_from_the_mixed_model() -> None:
    world = TinyWorld(
        [(1,), (0,)],
        rounds=2,
        byzantine=[1],
        plan=Plan(sign_flip),
        method=Dpsgd(RunInfo(rounds=2)),
    ).run()
    # The attacker has mixed its own -2 with the other -1: from -1.5 it trains to -3.5, and sends 0.5.
    told = [
        p.tolist()
        for (_, sender, _, stamp), p in zip(world.log.sent, world.log.payloads, strict=True)
        if (sender, stamp) == (1, 2)
    ]
    assert told == [[0.5, 0.5]]
