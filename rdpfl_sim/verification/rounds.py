"""What the records say of every round: how long its client waited, which messages it used, and Lemma 3."""

from __future__ import annotations

from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.verification.check import Check, Needs, Record
from rdpfl_sim.verification.clients import Clients
from rdpfl_sim.verification.messages import Post

ROUNDING = 1e-5
"""Lemma 3 holds up to float32's rounding."""


class Rounds:
    """Checks every round against the scenario's rules, before `Clients` and `Post` take note of its end."""

    def __init__(self, scenario: Scenario, clients: Clients, post: Post, byzantine: frozenset[int]) -> None:
        self.use = Check(
            "use",
            "A round uses one message, the right one, of every neighbour of whom any waits.",
            Needs.ALL_MESSAGES,
        )
        self.ages = Check(
            "ages",
            "No message is older than the scenario allows, and its age is the true one.",
            Needs.MESSAGES,
        )
        self.waiting = Check(
            "waiting",
            "No honest client goes on before it has heard enough neighbours, or waits past its timeout.",
            Needs.ALL_MESSAGES,
        )
        self.lemma_3 = Check("lemma 3", "|d| <= G_d in every round of R-DPFL.", Needs.RECORDS)
        self.weights = Check(
            "weights",
            "Weights and distances are not negative, weights add up to 1 or less, and a message is clipped "
            "if its round is.",
            Needs.MESSAGES,
        )
        self.checks = [self.use, self.ages, self.waiting, self.weights, self.lemma_3]
        timing, method = scenario.timing, scenario.method
        self.wait = timing.wait.bind()()
        self.max_age: int = timing.staleness.bind()().max_age
        self.prefer = timing.prefer
        self.capacity = timing.mailbox_per_sender
        self.exchanges: bool = getattr(type(method).target, "exchanges", True)
        self.largest_norm: float | None = (
            getattr(method, "max_norm", None) if method.name == "rdpfl" else None
        )
        if self.largest_norm is None:
            self.lemma_3.unchecked = f"it is about R-DPFL; the method is {method.name}"
        self.clients, self.post, self.byzantine = clients, post, byzantine
        self.round: Record | None = None
        """The round whose messages follow."""
        self.owed: list[int] = []
        """The senders whose messages it still has to use, the last one first."""
        self.next_line = 0
        self.oldest: int | None = None
        self.weight = 0.0
        """How much the messages of the round have counted so far."""

    def round_finished(self, record: Record, line: int) -> None:
        """A round ends: look at what waits, before it is used."""
        self._settle()
        self.round, self.next_line, self.oldest, self.weight = record, line + 1, None, 0.0
        if self.largest_norm is not None:
            self.lemma_3.num_items += 1
            d_norm = record.get("d_norm")
            if d_norm is None or not d_norm <= self.largest_norm * (1 + ROUNDING):
                self.lemma_3.violated(line, f"|d| = {d_norm}, G_d = {self.largest_norm}")
        self._look_around(record, line)

    def message_used(self, record: Record, line: int) -> None:
        """The messages of a round follow it, sorted by sender."""
        self.ages.num_items += 1
        self.use.num_items += 1
        number, sender, stamp, age = record["message"], record["sender"], record["round"], record["age"]
        if self.round is None or self.round["client"] != record["recipient"]:
            self.use.violated(line, f"message {number} is used, but not at the end of a round")
            return
        round_ = self.round["round"]
        if age != round_ - stamp or age > self.max_age:
            self.ages.violated(
                line, f"a message of round {stamp}, said to be {age} rounds old, is used in round {round_}"
            )
        self.oldest = age if self.oldest is None else max(self.oldest, age)
        if line != self.next_line or not self.owed or self.owed.pop() != sender:
            self.use.violated(line, f"the message of {sender} is not the next that this round uses")
        self.next_line = line + 1
        self._weigh(record, line, self.round)
        for other, waits in self.post.boxes[record["recipient"]][sender].held.items():
            if other != number and self._is_better(waits, stamp, round_):
                self.use.violated(line, f"round {round_} uses stamp {stamp}, although {waits} was there")

    def run_finished(self, record: Record, line: int) -> None:
        """No round follows."""
        self._settle()

    def _weigh(self, record: Record, line: int, round_: Record) -> None:
        self.weights.num_items += 1
        if record["clipped"] is not round_.get("clipped"):
            self.weights.violated(line, f"clipped is {round_.get('clipped')} in the round")
        for key in ("weight", "distance_to_own", "distance_to_predicted"):
            value = record.get(key)
            if value is not None and value < 0:
                self.weights.violated(line, f"{key} is {value}")
        self.weight += record.get("weight") or 0.0
        if self.weight > 1 + ROUNDING:
            self.weights.violated(line, f"the weights of the round add up to {self.weight}")

    def _settle(self) -> None:
        """The round before has used all that it should."""
        if self.round is None:
            return
        line = self.next_line - 1
        if self.owed:
            self.use.violated(line, f"the message of {self.owed[-1]} waits, but is not used")
        if self.oldest != self.round["max_age"]:
            said = self.round["max_age"]
            self.use.violated(line, f"the oldest message is {self.oldest} rounds old, not {said}")
        self.round = None

    def _look_around(self, record: Record, line: int) -> None:
        client, round_ = record["client"], record["round"]
        boxes, around = self.post.boxes[client], self.clients.neighbours[client]
        num_heard = num_silent = 0
        waiting = []
        for sender in around:
            box = boxes[sender]
            stamps = list(box.held.values())
            if stamps:
                waiting.append(sender)
                if len(stamps) > self.capacity or len(set(stamps)) < len(stamps):
                    self.use.violated(line, f"the mailbox of {client} holds stamps {stamps} of {sender}")
            if box.gone >= round_ or round_ in stamps:
                num_heard += 1
            elif box.refused < round_:
                num_silent += 1
        self.owed = waiting[::-1]
        if record["num_used"] != len(waiting):
            self.use.violated(line, f"messages of {len(waiting)} neighbours wait")
        heard_enough = num_silent == 0 or num_heard >= self.wait.num_needed(len(around))
        self._check_waiting(record, line, heard_enough or not self.exchanges)

    def _check_waiting(self, record: Record, line: int, heard_enough: bool) -> None:
        client, timeout_s = record["client"], self.wait.timeout_s
        if client in self.byzantine and timeout_s is not None:
            return  # nobody knows when an attacker has begun to wait
        self.waiting.num_items += 1
        since_s, now_s = self.clients.lives[client].time_s, record["time_s"]
        if timeout_s is not None and now_s > since_s + timeout_s:
            self.waiting.violated(line, f"client {client} has waited since {since_s} s")
        elif not heard_enough and (timeout_s is None or now_s < since_s + timeout_s):
            self.waiting.violated(line, f"client {client} has not heard enough neighbours since {since_s} s")

    def _is_better(self, waits: int, used: int, round_: int) -> bool:
        """Whether a message that goes on waiting should have been used, or dropped, instead."""
        if self.prefer == "newest":
            return waits != used
        return waits < used or used < waits <= round_
