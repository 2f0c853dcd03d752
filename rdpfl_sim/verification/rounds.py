"""Checks of the records of rounds: waiting time and messages used."""

from __future__ import annotations

from rdpfl_sim.records.record_types import MessageUsed, RoundFinished, RunFinished
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.verification.check import Check, Needs
from rdpfl_sim.verification.clients import ClientChecks
from rdpfl_sim.verification.messages import MessageChecks


class RoundChecks:
    """Checks every round. It processes each record before `ClientChecks` and `MessageChecks`."""

    def __init__(
        self, scenario: Scenario, clients: ClientChecks, messages: MessageChecks, byzantine: frozenset[int]
    ) -> None:
        self.use = Check(
            "use",
            "A round uses exactly one message from every sender in the mailbox: the preferred one.",
            Needs.ALL_MESSAGES,
        )
        self.ages = Check(
            "ages",
            "No message is older than the scenario allows, and its age is correct.",
            Needs.MESSAGES,
        )
        self.waiting = Check(
            "waiting",
            "No honest client proceeds before enough messages have arrived, or waits past its timeout.",
            Needs.ALL_MESSAGES,
        )
        self.checks = [self.use, self.ages, self.waiting]
        timing = scenario.timing
        self.wait = timing.wait.bind()()
        self.max_age: int = timing.staleness.bind()().max_age
        self.prefer = timing.prefer
        self.capacity = timing.mailbox_per_sender
        self.exchanges: bool = getattr(type(scenario.method).target, "exchanges", True)
        self.clients, self.messages, self.byzantine = clients, messages, byzantine
        self.round: RoundFinished | None = None
        """The round whose message records follow."""
        self.pending: list[int] = []
        """The senders whose messages this round has not used yet, in reverse order."""
        self.next_line = 0
        self.oldest: int | None = None

    def round_finished(self, record: RoundFinished, line: int) -> None:
        """Check the mailbox and the waiting time at the end of a round."""
        self._finish_round()
        self.round, self.next_line, self.oldest = record, line + 1, None
        self._check_mailbox(record, line)

    def message_used(self, record: MessageUsed, line: int) -> None:
        """Check a used message; the messages of a round follow its record, sorted by sender."""
        self.ages.num_items += 1
        self.use.num_items += 1
        number, sender, stamp, age = record["message"], record["sender"], record["round"], record["age"]
        if self.round is None or self.round["client"] != record["recipient"]:
            self.use.violated(line, f"message {number} is used, but not at the end of a round")
            return
        round_ = self.round["round"]
        if age != round_ - stamp or age > self.max_age:
            self.ages.violated(
                line, f"a message with stamp {stamp} and recorded age {age} is used in round {round_}"
            )
        self.oldest = age if self.oldest is None else max(self.oldest, age)
        if line != self.next_line or not self.pending or self.pending.pop() != sender:
            self.use.violated(line, f"the message from {sender} is not the next one that this round uses")
        self.next_line = line + 1
        for other, stamp_held in self.messages.inboxes[record["recipient"]][sender].held.items():
            if other != number and self._is_better(stamp_held, stamp, round_):
                self.use.violated(line, f"round {round_} uses stamp {stamp} instead of {stamp_held}")

    def run_finished(self, record: RunFinished, line: int) -> None:
        """Finish the checks of the last round."""
        self._finish_round()

    def _finish_round(self) -> None:
        """Check that the previous round has used all of its messages."""
        if self.round is None:
            return
        line = self.next_line - 1
        if self.pending:
            sender = self.pending[-1]
            self.use.violated(line, f"the message from client {sender} was in the mailbox but was not used")
        if self.oldest != self.round["max_age"]:
            recorded = self.round["max_age"]
            self.use.violated(line, f"the oldest message is {self.oldest} rounds old, not {recorded}")
        self.round = None

    def _check_mailbox(self, record: RoundFinished, line: int) -> None:
        client, round_ = record["client"], record["round"]
        inboxes, neighbours = self.messages.inboxes[client], self.clients.neighbours[client]
        num_received = num_pending = 0
        senders = []
        for sender in neighbours:
            inbox = inboxes[sender]
            stamps = list(inbox.held.values())
            if stamps:
                senders.append(sender)
                if len(stamps) > self.capacity or len(set(stamps)) < len(stamps):
                    self.use.violated(line, f"the mailbox of {client} contains stamps {stamps} from {sender}")
            if inbox.last_removed >= round_ or round_ in stamps:
                num_received += 1
            elif inbox.last_rejected < round_:
                num_pending += 1
        self.pending = senders[::-1]
        if record["num_used"] != len(senders):
            self.use.violated(line, f"the mailbox contains messages from {len(senders)} neighbours")
        received_enough = num_pending == 0 or num_received >= self.wait.num_needed(len(neighbours))
        self._check_waiting(record, line, received_enough or not self.exchanges)

    def _check_waiting(self, record: RoundFinished, line: int, received_enough: bool) -> None:
        client, timeout_s = record["client"], self.wait.timeout_s
        if client in self.byzantine and timeout_s is not None:
            return  # the start of a Byzantine client's wait is not recorded
        self.waiting.num_items += 1
        since_s, now_s = self.clients.states[client].time_s, record["time_s"]
        if timeout_s is not None and now_s > since_s + timeout_s:
            self.waiting.violated(
                line, f"client {client} has waited since {since_s} s, longer than its timeout"
            )
        elif not received_enough and (timeout_s is None or now_s < since_s + timeout_s):
            self.waiting.violated(line, f"client {client} has not received enough messages since {since_s} s")

    def _is_better(self, stamp_held: int, used: int, round_: int) -> bool:
        """Return whether a message that stays in the mailbox should have been used or dropped."""
        if self.prefer == "newest":
            return stamp_held != used
        return stamp_held < used or used < stamp_held <= round_
