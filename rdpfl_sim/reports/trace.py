"""A run as a trace for the viewers of Perfetto and Chrome: a track for every client, an arrow a message.

The format is the Trace Event Format (Chromium project, 2016), as Perfetto's importer reads it: an arrow
begins and ends in the innermost slice that is open at its time, so messages leave and arrive in slices of no
duration. Of events with equal times the one that stands first in the file counts as the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, BinaryIO

import orjson

RUN, CLIENTS, ACCURACY = 1, 2, 3
"""The groups of tracks, which the format calls processes."""
FAULTS = 4
FIRST_CLIENT = 10
"""The number of the first client's track; Perfetto wants those of all groups to differ."""
ARRIVED, USED = 1, 2
PROGRESS_EVERY = 50_000
MANY = 20

Record = dict[str, Any]


@dataclass
class Track:
    """What a client is doing, since when, and the last moment that was marked on its track."""

    doing: str | None = None
    since: int = 0
    details: Record | None = None
    mark: tuple[str, int] | None = None
    num_down: int = 0


class Fates:
    """What became of every message, a byte each: only what arrives has an arrow."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._fates = bytearray()
        for line in lines:
            if line.startswith((b'{"event":"message_delivered"', b'{"event":"message_used"')):
                self._note(orjson.loads(line))

    def _note(self, record: Record) -> None:
        number = record["message"]
        if number >= len(self._fates):
            self._fates.extend(bytes(number + 1 - len(self._fates)))
        fate = USED if record["event"] == "message_used" else ARRIVED
        self._fates[number] = max(fate, self._fates[number])

    def __getitem__(self, number: int) -> int:
        return self._fates[number] if number < len(self._fates) else 0


class Trace:
    """Writes one event of the trace after the other, as the records of a run tell."""

    def __init__(self, file: BinaryIO, num_clients: int, byzantine: Iterable[int], fates: Fates) -> None:
        self._file = file
        self._byzantine = frozenset(byzantine)
        self._fates = fates
        self._tracks = [Track() for _ in range(num_clients)]
        self._accuracy: dict[int, float] = {}
        self._now = 0
        self._separator = b""
        self.num_arrows = 0

    def begin(self, title: str) -> None:
        """The head of the file: the names of all tracks."""
        self._file.write(b'{"displayTimeUnit":"ms","otherData":' + orjson.dumps({"run": title}))
        self._file.write(b',"traceEvents":[\n')
        for place, (group, name) in enumerate(((RUN, title), (CLIENTS, "clients"), (ACCURACY, "accuracy"))):
            self._name("process", group, group, name, place)
        self._name("thread", RUN, FAULTS, "faults", 0)
        for client in range(len(self._tracks)):
            self._name("thread", CLIENTS, FIRST_CLIENT + client, self._label(client), client)

    def see(self, record: Record) -> None:
        """One record of the run."""
        self._now = round(1e6 * record["time_s"])
        name = record["event"]
        if name.startswith("message_"):
            self._message(name.removeprefix("message_"), record)
        elif name == "training_started":
            self._start(record["client"], "training", {"round": record["round"]})
        elif name == "training_finished":
            self._stop(record["client"], _details(record))
            self._start(record["client"], "waiting", {"round": record["round"]})
        elif name == "round_finished":
            self._stop(record["client"])
            self._mark(record["client"], "update", **_details(record))
        elif name == "evaluation":
            self._evaluation(record)
        elif name == "fault":
            self._fault(record)

    def end(self) -> None:
        """The foot of the file; what goes on at the end of the records ends there."""
        for client in range(len(self._tracks)):
            self._stop(client)
        self._file.write(b"\n]}\n")

    def _message(self, what: str, record: Record) -> None:
        number, sender, recipient = record["message"], record["sender"], record["recipient"]
        fate = self._fates[number]
        if what in ("sent", "copied"):
            if fate:
                self.num_arrows += 1
                self._mark(sender, "send")
                self._arrow("s", sender, record)
        elif what == "delivered":
            self._mark(recipient, "receive")
            self._arrow("t" if fate == USED else "f", recipient, record)
        elif what == "used":
            self._mark(recipient, "update")
            self._arrow("f", recipient, record)
        else:
            self._instant(CLIENTS, FIRST_CLIENT + recipient, what, "message", _details(record))
            self._tracks[recipient].mark = None

    def _evaluation(self, record: Record) -> None:
        client, accuracy = record["client"], record["personal_accuracy"]
        if accuracy is None:
            return
        self._counter(self._label(client), accuracy)
        if client not in self._byzantine:
            self._accuracy[client] = accuracy
            if len(self._accuracy) == len(self._tracks) - len(self._byzantine):
                self._counter("honest mean", sum(self._accuracy.values()) / len(self._accuracy))

    def _fault(self, record: Record) -> None:
        change = record["change"]
        self._instant(RUN, FAULTS, change, "fault", _details(record))
        for client in record.get("clients", ()):
            track = self._tracks[client]
            if change in ("crash", "absent", "leave"):
                track.num_down += 1
                if track.num_down == 1:
                    self._stop(client, {"ended_by": change})
                    self._start(client, "down", {"fault": change})
            elif change in ("recover", "join"):
                track.num_down -= 1
                if track.num_down == 0:
                    self._stop(client)

    def _start(self, client: int, doing: str, details: Record) -> None:
        track = self._tracks[client]
        track.doing, track.since, track.details = doing, self._now, details

    def _stop(self, client: int, details: Record | None = None) -> None:
        """End what the client is doing; waiting for nothing is not worth a slice."""
        track = self._tracks[client]
        if track.doing is not None and (track.doing == "training" or self._now > track.since):
            self._slice(client, track.doing, track.since, {**(track.details or {}), **(details or {})})
        track.doing = None

    def _mark(self, client: int, what: str, **details: Any) -> None:
        """A slice of no duration, unless the last on this track is one of the same moment."""
        track = self._tracks[client]
        if track.mark != (what, self._now):
            self._slice(client, what, self._now, details)
            track.mark = what, self._now

    def _slice(self, client: int, name: str, since: int, details: Record) -> None:
        self._write(
            name=name,
            cat="client",
            ph="X",
            pid=CLIENTS,
            tid=FIRST_CLIENT + client,
            ts=since,
            dur=self._now - since,
            args=details,
        )

    def _arrow(self, phase: str, client: int, record: Record) -> None:
        kind = "Byzantine message" if record["sender"] in self._byzantine else "message"
        self._write(
            name=kind,
            cat="message",
            ph=phase,
            bp="e",
            id=record["message"],
            pid=CLIENTS,
            tid=FIRST_CLIENT + client,
            ts=self._now,
        )

    def _instant(self, group: int, track: int, name: str, category: str, details: Record) -> None:
        self._write(name=name, cat=category, ph="i", s="t", pid=group, tid=track, ts=self._now, args=details)

    def _counter(self, name: str, accuracy: float) -> None:
        self._write(name=name, ph="C", pid=ACCURACY, tid=ACCURACY, ts=self._now, args={"accuracy": accuracy})

    def _name(self, kind: str, group: int, track: int, name: str, place: int) -> None:
        for what, value in (("name", name), ("sort_index", place)):
            self._write(name=f"{kind}_{what}", ph="M", pid=group, tid=track, args={what: value})

    def _label(self, client: int) -> str:
        width = len(str(len(self._tracks) - 1))
        return f"client {client:0{width}} {'Byzantine' if client in self._byzantine else 'honest'}"

    def _write(self, **event: Any) -> None:
        self._file.write(self._separator + orjson.dumps(event))
        self._separator = b",\n"


def write_trace(
    lines: Callable[[], Iterable[bytes]],
    topology: Record,
    title: str,
    file: BinaryIO,
    progress: Callable[[int], None] = lambda num_records: None,
) -> int:
    """Write a run's trace into a file and return its number of arrows; `lines` is called twice."""
    trace = Trace(file, topology["num_clients"], topology["byzantine"], Fates(lines()))
    trace.begin(title)
    for number, line in enumerate(lines(), start=1):
        trace.see(orjson.loads(line))
        if number % PROGRESS_EVERY == 0:
            progress(number)
    trace.end()
    return trace.num_arrows


def _details(record: Record) -> Record:
    """What a record tells besides its name, time and track; of long lists only how long they are."""
    return {
        key: f"{len(value)} of them" if isinstance(value, list) and len(value) > MANY else value
        for key, value in record.items()
        if key not in ("event", "time_s", "client")
    }
