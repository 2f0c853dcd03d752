"""Statistics on how honest recipients treat messages from honest and Byzantine senders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import frexp, isfinite

from rdpfl_sim.files import JsonObject
from rdpfl_sim.records.metrics import ROUND_RATIOS
from rdpfl_sim.records.summary import OUTCOMES
from rdpfl_sim.world.mailbox import MAILBOX_FULL, TOO_OLD
from rdpfl_sim.world.observer import UsedMessage


@dataclass
class Histogram:
    """A histogram of values >= 0 with eight bins per power of two; quantiles are accurate to 7 %."""

    bins: Counter[int] = field(default_factory=Counter)
    num: int = 0
    total: float = 0.0
    largest: float = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.num += 1
        self.total += value
        if value > self.largest:
            self.largest = value
        mantissa, exponent = frexp(value)  # value = mantissa 2^exponent, mantissa in [1/2, 1)
        self.bins[exponent * 8 + int(mantissa * 16) - 8 if value > 0 else -10_000] += 1

    def quantile(self, q: float) -> float:
        """Return the value that a fraction q of all values does not exceed."""
        needed = q * self.num
        for key in sorted(self.bins):
            needed -= self.bins[key]
            if needed <= 0:
                exponent, eighth = divmod(key, 8)
                return 0.0 if key == -10_000 else min((eighth + 8.5) / 16 * 2.0**exponent, self.largest)
        return self.largest

    def summary(self) -> dict[str, float] | None:
        """Return the mean, quantiles and maximum, or None if there are no values."""
        if self.num == 0:
            return None
        quantiles = {f"p{round(100 * q)}": self.quantile(q) for q in (0.5, 0.9, 0.99)}
        return {"mean": self.total / self.num, **quantiles, "max": self.largest}


@dataclass
class RoundStats:
    """Sums over the rounds of one client or of a group of clients."""

    num_rounds: int = 0
    num_used: int = 0
    sum_age: int = 0
    num_estimates: int = 0
    num_clipped: int = 0
    num_bounded: int = 0
    num_weighed: int = 0
    byzantine_weight: float = 0.0
    num_shares: int = 0
    neighbour_share: float = 0.0

    def means(self) -> dict[str, float | None]:
        """Return the `RoundMeans`; None where nothing was counted."""
        return {
            name: _ratio(getattr(self, amount), getattr(self, number))
            for name, (amount, number) in ROUND_RATIOS.items()
        }


@dataclass
class SenderStats:
    """Outcomes and weights of messages from honest or from Byzantine senders to honest recipients."""

    outcomes: Counter[str] = field(default_factory=Counter)
    num_weighed: int = 0
    num_ignored: int = 0
    relative_weight: float = 0.0

    def summary(self) -> JsonObject:
        """Return outcomes, the share of used messages with weight 0, and the mean weight relative to 1/n."""
        return {
            **{outcome: self.outcomes[outcome] for outcome in OUTCOMES},
            "ignored": _ratio(self.num_ignored, self.num_weighed),
            "relative_weight": _ratio(self.relative_weight, self.num_weighed),
        }


class Telemetry:
    """Statistics of the messages and rounds of honest clients, and the delays of all messages.

    `hops` is each client's distance to the nearest Byzantine client, or None if no path exists.
    `too_few(n)` returns whether n messages are too few for the options of the aggregator (`AggregatorFacts`).
    """

    STATE = (
        *("delays_s", "ages", "neighbour_shares", "treatment", "num_delivered", "discarded", "rounds"),
        *("num_trimmed_less", "by_hops", "recent"),
    )

    def __init__(
        self,
        byzantine: frozenset[int],
        hops: Sequence[int | None],
        too_few: Callable[[int], bool],
    ) -> None:
        self.byzantine = byzantine
        self.hops = hops
        self.too_few = too_few
        self.delays_s = Histogram()
        self.ages: Counter[int] = Counter()
        self.neighbour_shares = Histogram()
        """Values for honest clients' rounds; see `neighbour_share` in rdpfl_sim.methods.base."""
        self.treatment = {"honest": SenderStats(), "byzantine": SenderStats()}
        self.num_delivered = 0
        """Number of messages that honest clients delivered to honest clients."""
        self.discarded: Counter[str] = Counter()
        """Those of them that were dropped, by reason."""
        self.rounds = {"all": RoundStats(), "clean": RoundStats(), "attacked": RoundStats()}
        """Sums over honest clients' rounds. A round is attacked if it used a Byzantine client's message."""
        self.num_trimmed_less = 0
        """Number of honest clients' rounds with messages, but too few for the scenario's aggregator."""
        self.by_hops: dict[int | None, RoundStats] = {}
        self.recent: dict[int, RoundStats] = {}
        """Sums over each client's rounds since its last evaluation."""

    def delivered(self, sender: int, recipient: int, delay_s: float) -> None:
        """Count a message and its delay."""
        self.delays_s.add(delay_s)
        if sender not in self.byzantine and recipient not in self.byzantine:
            self.num_delivered += 1

    def dropped(self, sender: int, recipient: int, outcome: str, reason: str) -> None:
        """Count a message that its recipient dropped."""
        if recipient not in self.byzantine:
            self._treatment(sender).outcomes[outcome] += 1
            if sender not in self.byzantine:
                self.discarded[reason] += 1

    def round_finished(self, client: int, messages: Sequence[UsedMessage], ages: Sequence[int]) -> None:
        """Count a round and the messages that it used."""
        num_used, sum_age = len(messages), sum(ages)
        for stat in self._stats_of_round(client, messages):
            stat.num_rounds += 1
            stat.num_used += num_used
            stat.sum_age += sum_age
        if client in self.byzantine:
            return
        for age in ages:
            self.ages[age] += 1
        num_byzantine = self._num_byzantine(messages)
        if num_byzantine < num_used:
            self.treatment["honest"].outcomes["used"] += num_used - num_byzantine
        if num_byzantine > 0:
            self.treatment["byzantine"].outcomes["used"] += num_byzantine
        if num_used > 0 and self.too_few(num_used):
            self.num_trimmed_less += 1

    def update_reported(
        self,
        client: int,
        messages: Sequence[UsedMessage],
        diagnostics: Mapping[str, float | bool | None],
        weights: Sequence[float] | None,
    ) -> None:
        """Add the diagnostics of a finished round and, if known, the weights of its messages."""
        share = diagnostics.get("neighbour_share")
        if share is not None and client not in self.byzantine:
            self.neighbour_shares.add(share)
        if weights is not None and not isfinite(sum(weights)):
            weights = None
        byzantine_weight = None if weights is None else self._weigh(client, messages, weights)
        has_estimate = "tau" in diagnostics
        clipped, bounded = bool(diagnostics.get("clipped")), bool(diagnostics.get("bounded"))
        for stat in self._stats_of_round(client, messages):
            if has_estimate:
                stat.num_estimates += 1
                stat.num_clipped += clipped
                stat.num_bounded += bounded
            if byzantine_weight is not None:
                stat.num_weighed += 1
                stat.byzantine_weight += byzantine_weight
            if share is not None:
                stat.num_shares += 1
                stat.neighbour_share += share

    def _weigh(self, client: int, messages: Sequence[UsedMessage], weights: Sequence[float]) -> float:
        """Add the weights of messages; return the total weight of Byzantine clients' messages."""
        byzantine_weight = 0.0
        for message, weight in zip(messages, weights, strict=True):
            if message.sender in self.byzantine:
                byzantine_weight += weight
            if client not in self.byzantine:
                treatment = self._treatment(message.sender)
                treatment.num_weighed += 1
                treatment.num_ignored += weight == 0
                treatment.relative_weight += weight * len(messages)
        return byzantine_weight

    def _stats_of_round(self, client: int, messages: Sequence[UsedMessage]) -> list[RoundStats]:
        """Return all sums that include a round of this client with these messages."""
        if client not in self.recent:
            self.recent[client] = RoundStats()
        if client in self.byzantine:
            return [self.recent[client]]
        hops = self.hops[client]
        if hops not in self.by_hops:
            self.by_hops[hops] = RoundStats()
        kind = "attacked" if self._num_byzantine(messages) else "clean"
        return [self.recent[client], self.by_hops[hops], self.rounds["all"], self.rounds[kind]]

    def _num_byzantine(self, messages: Sequence[UsedMessage]) -> int:
        byzantine = self.byzantine
        return sum([message.sender in byzantine for message in messages]) if byzantine else 0

    def since_last_evaluation(self, client: int) -> dict[str, float | None]:
        """Return means over a client's rounds since the previous call."""
        return self.recent.pop(client, RoundStats()).means()

    def summary(self) -> JsonObject:
        """Return the section `telemetry` of summary.json."""
        honest = self.treatment["honest"]
        num_honest = honest.outcomes.total()
        return {
            "delay_s": self.delays_s.summary(),
            "age": dict(sorted(self.ages.items())),
            "neighbour_share": self.neighbour_shares.summary(),
            "messages_from": {who: treatment.summary() for who, treatment in self.treatment.items()},
            "false_rejections": _ratio(honest.outcomes["rejected"], num_honest),
            "too_old": _ratio(self.discarded[TOO_OLD], self.num_delivered),
            "mailbox_full": _ratio(self.discarded[MAILBOX_FULL], self.num_delivered),
            "rounds": {kind: {"num": stat.num_rounds, **stat.means()} for kind, stat in self.rounds.items()},
            "num_trimmed_less": self.num_trimmed_less,
            "by_hops": {
                str(hops): stat.means()
                for hops, stat in sorted(self.by_hops.items(), key=lambda item: item[0] or 0)
                if hops is not None
            },
        }

    def _treatment(self, sender: int) -> SenderStats:
        return self.treatment["byzantine" if sender in self.byzantine else "honest"]


def _ratio(amount: float, number: int) -> float | None:
    return amount / number if number else None
