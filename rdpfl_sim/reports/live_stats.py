"""How a run is doing, from its records so far."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

MESSAGE = b'{"event":"message_'
MAX_FAULTS = 100
MAX_IDS = 8


@dataclass
class ClientStats:
    """One client: its accuracy at every evaluation, its round, and what it is doing."""

    accuracy: list[float] = field(default_factory=list)
    round: int = 0
    doing: str = ""
    num_down: int = 0
    is_byzantine: bool = False


class LiveStats:
    """The state of a run, kept up to date by its records."""

    def __init__(self, num_clients: int) -> None:
        self.clients = [ClientStats() for _ in range(num_clients)]
        self.time_s = 0.0
        self.messages: Counter[str] = Counter()
        """How many records of each kind, such as sent, lost and used."""
        self.num_rounds = self.num_clipped = 0
        """Of honest clients, if the method has an estimator; a round without messages clips nothing."""
        self.num_faults = 0
        self.faults: deque[tuple[float, str]] = deque(maxlen=MAX_FAULTS)
        self.status: str | None = None

    @property
    def rounds_done(self) -> int:
        """The rounds of all clients together."""
        return sum(client.round for client in self.clients)

    @property
    def honest_accuracy(self) -> float | None:
        """The mean over the honest clients that were evaluated."""
        latest = [
            client.accuracy[-1] for client in self.clients if client.accuracy and not client.is_byzantine
        ]
        return sum(latest) / len(latest) if latest else None

    @property
    def clipped_share(self) -> float | None:
        """The share of honest rounds in which the method clipped."""
        return self.num_clipped / self.num_rounds if self.num_rounds else None

    def share(self, fate: str, of: str) -> float | None:
        """The share of messages with this fate among others."""
        return self.messages[fate] / self.messages[of] if self.messages[of] else None

    def see(self, lines: Iterable[bytes]) -> None:
        """Some lines of events.jsonl; of messages only the kind is looked at, as there are many."""
        start = len(MESSAGE)
        for line in lines:
            if line.startswith(MESSAGE):
                self.messages[line[start : line.index(b'"', start)].decode()] += 1
            else:
                self.record(orjson.loads(line))

    def record(self, record: Mapping[str, Any]) -> None:
        """One record that is not about a single message."""
        self.time_s = record["time_s"]
        look = getattr(self, f"_{record['event']}", None)
        if look is not None:
            look(record)

    def _run_started(self, record: Mapping[str, Any]) -> None:
        for client in record["byzantine"]:
            self.clients[client].is_byzantine = True

    def _training_started(self, record: Mapping[str, Any]) -> None:
        self.clients[record["client"]].doing = "training"

    def _training_finished(self, record: Mapping[str, Any]) -> None:
        client = self.clients[record["client"]]
        client.doing, client.round = "waiting", max(client.round, record["round"])

    def _round_finished(self, record: Mapping[str, Any]) -> None:
        client = self.clients[record["client"]]
        client.doing = "done"
        if not client.is_byzantine and "tau" in record:
            self.num_rounds += 1
            self.num_clipped += bool(record.get("clipped"))

    def _evaluation(self, record: Mapping[str, Any]) -> None:
        client = self.clients[record["client"]]
        client.round = max(client.round, record["round"])
        if record["personal_accuracy"] is not None:
            client.accuracy.append(record["personal_accuracy"])

    def _fault(self, record: Mapping[str, Any]) -> None:
        self.num_faults += 1
        change, clients = record["change"], record.get("clients", ())
        self.faults.append((record["time_s"], _in_words(record)))
        for client in (self.clients[client] for client in clients):
            if change in ("crash", "absent", "leave"):
                client.num_down += 1
                client.doing = "down"
            elif change in ("recover", "join"):
                client.num_down -= 1
                client.doing = "" if client.num_down == 0 else "down"

    def _run_finished(self, record: Mapping[str, Any]) -> None:
        self.status = record["status"]


def _in_words(record: Mapping[str, Any]) -> str:
    """A fault in a few words: what, and whom it concerns."""
    change = record["change"].replace("_", " ")
    if "clients" in record:
        ids = record["clients"]
        more = f" and {len(ids) - MAX_IDS} more" if len(ids) > MAX_IDS else ""
        factor = f", {record['factor']:g} times slower" if change == "slow" else ""
        return f"{change}: client{'s'[: len(ids) - 1]} {', '.join(map(str, ids[:MAX_IDS]))}{more}{factor}"
    if "sides" in record:
        return f"{change}: {' | '.join(f'{len(side)} clients' for side in record['sides'])}"
    links = record["links"]
    if change != "rewire" and len(links) <= 2:
        return f"{change}: {', '.join(f'{link[0]} to {link[1]}' for link in links)}"
    return f"{change}: {len(links):,} links"
