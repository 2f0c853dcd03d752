import torch

from rdpfl_sim.maths.attacks import View, sees_honest, sees_victim
from rdpfl_sim.maths.types import Payload
from rdpfl_sim.randomness import Streams
from rdpfl_sim.world.adversary import MEMORY_ROUNDS, Adversary

RING = [(3, 1), (0, 2), (1, 3), (2, 0)]
OWN = Payload(torch.tensor([-1.0]))


class Spy:
    """An attack that remembers what it saw."""

    def __init__(self) -> None:
        self.views: list[View] = []

    def __call__(self, view: View) -> torch.Tensor:
        self.views.append(view)
        return view.own


def adversary(attack, byzantine=(3,), sees=sees_honest) -> Adversary:
    marked = sees(attack)
    return Adversary(
        attack,
        RING,
        byzantine,
        Streams(1),
        sees_honest=True,
        sees_victim=getattr(marked, "sees_victim", False),
        patience_s=None,
        expects=lambda victim: torch.tensor([100.0 + victim]),
    )


def update(value: float) -> Payload:
    return Payload(torch.tensor([value]))


def test_attacker_sees_the_honest_updates_of_its_round_even_if_others_are_ahead() -> None:
    spy = Spy()
    directed = adversary(spy)
    for client in (0, 1, 2):
        for round_ in (1, 2):
            directed.observe(client, round_, update(10.0 * client + round_))
    directed.messages(3, 1, OWN)
    directed.messages(3, 2, OWN)
    assert [view.honest.flatten().tolist() for view in spy.views] == [[1, 11, 21], [2, 12, 22]]


def test_attacker_falls_back_on_the_latest_earlier_update_and_then_on_its_own() -> None:
    spy = Spy()
    directed = adversary(spy)
    directed.messages(3, 1, OWN)
    directed.observe(0, 1, update(5.0))
    directed.messages(3, 2, OWN)
    assert [view.honest.flatten().tolist() for view in spy.views] == [[-1], [5]]


def test_attack_on_a_victim_sees_its_honest_neighbours_and_its_prediction() -> None:
    spy = Spy()
    directed = adversary(spy, byzantine=(3, 1), sees=sees_victim)
    for client in (0, 2):
        directed.observe(client, 1, update(float(client)))
    messages = directed.messages(3, 1, OWN)
    assert list(messages) == [2, 0]
    assert [view.expected.item() for view in spy.views] == [102.0, 100.0]
    assert [view.honest.flatten().tolist() for view in spy.views] == [[-1], [-1]], (
        "both neighbours of each lie"
    )


def test_one_message_serves_all_recipients_of_an_attack_that_does_not_look_at_them() -> None:
    spy = Spy()
    messages = adversary(spy).messages(3, 1, OWN)
    assert len(spy.views) == 1
    assert messages[0] is messages[2]


def test_attackers_are_woken_when_the_last_honest_update_exists() -> None:
    directed, woken = adversary(Spy()), []
    directed.notify(3, 1, lambda: woken.append("round 1"))
    for client in (0, 1):
        directed.observe(client, 1, update(0.0))
    assert not woken
    assert not directed.knows(1)
    directed.observe(2, 1, update(0.0))
    assert woken == ["round 1"]
    assert directed.knows(1)


def test_memory_is_bounded_whether_attackers_are_ahead_or_behind() -> None:
    directed = adversary(Spy())
    for round_ in range(1, 200):
        for client in (0, 1, 2):
            directed.observe(client, round_, update(float(round_)))
    assert {len(updates) for updates in directed.updates.values()} == {MEMORY_ROUNDS}
    directed.messages(3, 199, OWN)
    for round_ in range(200, 300):
        directed.observe(0, round_, update(0.0))
    assert len(directed.updates[0]) <= MEMORY_ROUNDS
    directed.messages(3, 299, OWN)
    directed.observe(0, 300, update(0.0))
    assert sorted(directed.updates[0]) == [299, 300]


def test_diverged_client_neither_spoils_the_view_nor_keeps_attackers_waiting() -> None:
    spy, woken = Spy(), []
    directed = adversary(spy)
    directed.notify(3, 1, lambda: woken.append(1))
    for client, value in enumerate((1.0, float("nan"), 3.0)):
        directed.observe(client, 1, update(value))
    directed.messages(3, 1, OWN)
    assert woken == [1]
    assert spy.views[0].honest.flatten().tolist() == [1, 3]
