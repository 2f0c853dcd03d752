"""Statistics of a run so far, computed from its records for the dashboard."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import orjson

from rdpfl_sim.records.fault_timeline import FaultTimeline
from rdpfl_sim.records.metrics_file import parse_metrics
from rdpfl_sim.records.reader import Record
from rdpfl_sim.reports.text import fault_text

MESSAGE_PREFIX = b'{"event":"message_'
MAX_FAULTS = 100


@dataclass
class ClientStats:
    """The accuracy of one client at every evaluation, its round and its current activity."""

    accuracy: list[float] = field(default_factory=list)
    round: int = 0
    activity: str = ""
    is_byzantine: bool = False

    def add_evaluation(self, round_: int, accuracy: float | None) -> None:
        """Add one evaluation; if its accuracy is missing, update only the round."""
        self.round = max(self.round, round_)
        if accuracy is not None:
            self.accuracy.append(accuracy)


class LiveStats:
    """Statistics of a run, updated with lines of events.jsonl, or of metrics.csv if there are no events."""

    def __init__(self, num_clients: int) -> None:
        self.clients = [ClientStats() for _ in range(num_clients)]
        self.time_s = 0.0
        self.messages: Counter[str] = Counter()
        """Number of message records by kind, such as sent, lost and used."""
        self.num_estimates = self.num_clipped = 0
        """Rounds of honest clients with an estimate, and rounds in which the estimate was clipped."""
        self.faults: deque[tuple[float, str]] = deque(maxlen=MAX_FAULTS)
        """Times and descriptions of the latest faults."""
        self.status: str | None = None
        self._timeline = FaultTimeline()

    @property
    def num_faults(self) -> int:
        """Number of fault records."""
        return self._timeline.num_records

    @property
    def rounds_done(self) -> int:
        """Total number of rounds of all clients."""
        return sum(client.round for client in self.clients)

    @property
    def honest_accuracy(self) -> float | None:
        """Mean latest accuracy of the honest clients that were evaluated."""
        latest = [
            client.accuracy[-1] for client in self.clients if client.accuracy and not client.is_byzantine
        ]
        return sum(latest) / len(latest) if latest else None

    @property
    def clipped_share(self) -> float | None:
        """Share of honest rounds in which the estimate was clipped."""
        return self.num_clipped / self.num_estimates if self.num_estimates else None

    def message_share(self, kind: str, total: str) -> float | None:
        """Return the number of messages of one kind relative to another kind."""
        return self.messages[kind] / self.messages[total] if self.messages[total] else None

    def add_records(self, lines: Iterable[bytes]) -> None:
        """Add lines of events.jsonl; message records are only counted, because there are many."""
        start = len(MESSAGE_PREFIX)
        for line in lines:
            if line.startswith(MESSAGE_PREFIX):
                self.messages[line[start : line.index(b'"', start)].decode()] += 1
            else:
                self._add(orjson.loads(line))

    def add_metrics(self, lines: Iterable[bytes]) -> None:
        """Add lines of metrics.csv."""
        for row in parse_metrics(line.decode() for line in lines):
            self.time_s = row["time_s"]
            client = self.clients[row["client"]]
            client.is_byzantine = bool(row["byzantine"])
            client.add_evaluation(row["round"], row["personal_accuracy"])

    def _add(self, record: Record) -> None:
        self.time_s = record["time_s"]
        match record["event"]:
            case "run_started":
                for client in record["byzantine"]:
                    self.clients[client].is_byzantine = True
            case "training_started":
                self.clients[record["client"]].activity = "training"
            case "training_finished":
                client = self.clients[record["client"]]
                client.activity, client.round = "waiting", max(client.round, record["round"])
            case "round_finished":
                self.clients[record["client"]].activity = "done"
            case "estimate":
                self._add_estimate(record)
            case "evaluated":
                client = self.clients[record["client"]]
                client.add_evaluation(record["round"], record["personal_accuracy"])
            case "fault":
                self._add_fault(record)
            case "run_finished":
                self.status = record["status"]

    def _add_estimate(self, record: Record) -> None:
        if not self.clients[record["client"]].is_byzantine and "tau" in record:
            self.num_estimates += 1
            self.num_clipped += bool(record.get("clipped"))

    def _add_fault(self, record: Record) -> None:
        self.faults.append((record["time_s"], fault_text(record)))
        effect = self._timeline.apply(record)
        for client in effect.stopped:
            self.clients[client].activity = "down"
        for client in effect.resumed:
            self.clients[client].activity = ""
