"""A run as a trace for Perfetto and Chrome: one track per client, one arrow per message.

The format is the Trace Event Format (Chromium project, 2016), as interpreted by Perfetto's importer. An arrow
starts and ends in the innermost slice that is open at its time, so messages are sent and delivered in slices
of zero duration. Events with equal times are processed in the order of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import BinaryIO

import orjson

from rdpfl_sim.records.metrics import MOMENTS
from rdpfl_sim.records.reader import Record, Topology, parse_record
from rdpfl_sim.reports.text import change_text
from rdpfl_sim.world.faults.timeline import FaultTimeline

RUN, CLIENTS, ACCURACY = 1, 2, 3
"""Groups of tracks, which the format calls processes."""
FAULT_TRACK = 4
FIRST_CLIENT_TRACK = 10
"""Perfetto requires track numbers to be unique across groups."""
DELIVERED, USED = 1, 2
PROGRESS_EVERY = 50_000
MAX_LIST = 20


@dataclass
class Track:
    """The activity of a client, its start, and the last slice of zero duration on its track."""

    activity: str | None = None
    start_us: int = 0
    details: Record | None = None
    mark: tuple[str, int] | None = None


class MessageOutcomes:
    """One byte per message: delivered, used, or neither. Messages with neither have no arrow."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._outcomes = bytearray()
        for line in lines:
            if line.startswith((b'{"event":"message_delivered"', b'{"event":"message_used"')):
                self._add(parse_record(line))

    def _add(self, record: Record) -> None:
        number = record["message"]
        if number >= len(self._outcomes):
            self._outcomes.extend(bytes(number + 1 - len(self._outcomes)))
        outcome = USED if record["event"] == "message_used" else DELIVERED
        self._outcomes[number] = max(outcome, self._outcomes[number])

    def __getitem__(self, number: int) -> int:
        return self._outcomes[number] if number < len(self._outcomes) else 0


class TraceWriter:
    """Writes the events of a trace from the records of a run, in order."""

    def __init__(self, file: BinaryIO, topology: Topology, outcomes: MessageOutcomes, moment: str) -> None:
        self._file = file
        self._moment = moment
        self._byzantine = frozenset(topology["byzantine"])
        self._outcomes = outcomes
        self._tracks = [Track() for _ in range(topology["num_clients"])]
        self._honest_accuracy: dict[int, float] = {}
        self._timeline = FaultTimeline()
        self._now_us = 0
        self._separator = b""
        self.num_arrows = 0

    def write_header(self, title: str) -> None:
        """Write the names of all tracks."""
        self._file.write(b'{"displayTimeUnit":"ms","otherData":' + orjson.dumps({"run": title}))
        self._file.write(b',"traceEvents":[\n')
        accuracy = f"accuracy {MOMENTS[self._moment]}"
        for order, (group, name) in enumerate(((RUN, title), (CLIENTS, "clients"), (ACCURACY, accuracy))):
            self._name("process", group, group, name, order)
        self._name("thread", RUN, FAULT_TRACK, "faults", 0)
        for client in range(len(self._tracks)):
            self._name("thread", CLIENTS, FIRST_CLIENT_TRACK + client, self._label(client), client)

    def write_record(self, record: Record) -> None:
        """Write the events of one record."""
        self._now_us = round(1e6 * record["time_s"])
        event = record["event"]
        if event.startswith("message_"):
            self._write_message(event.removeprefix("message_"), record)
        elif event == "training_started":
            self._start(record["client"], "training", {"round": record["round"]})
        elif event == "training_finished":
            self._stop(record["client"], _details(record))
            self._start(record["client"], "waiting", {"round": record["round"]})
        elif event == "round_finished":
            self._stop(record["client"])
            self._mark(record["client"], "update", **_details(record))
        elif event == "estimate":
            self._client_instant(record["client"], "estimate", "client", record)
        elif event == "evaluated":
            self._write_evaluation(record)
        elif event == "fault":
            self._write_fault(record)

    def write_footer(self) -> None:
        """End the activities that continue after the last record, and finish the file."""
        for client in range(len(self._tracks)):
            self._stop(client)
        self._file.write(b"\n]}\n")

    def _write_message(self, kind: str, record: Record) -> None:
        sender, recipient = record["sender"], record["recipient"]
        outcome = self._outcomes[record["message"]]
        if kind in ("sent", "copied"):
            if outcome:
                self.num_arrows += 1
                self._mark(sender, "send")
                self._arrow("s", sender, record)
        elif kind == "delivered":
            self._mark(recipient, "receive")
            self._arrow("t" if outcome == USED else "f", recipient, record)
        elif kind == "used":
            self._mark(recipient, "update")
            self._arrow("f", recipient, record)
        elif kind != "stats":
            self._client_instant(recipient, kind, "message", record)

    def _write_evaluation(self, record: Record) -> None:
        client, accuracy = record["client"], record[f"{self._moment}_personal_accuracy"]
        if accuracy is None:
            return
        evaluated_us = round(1e6 * record[f"{self._moment}_time_s"])
        self._counter(self._label(client), accuracy, evaluated_us)
        if client not in self._byzantine:
            self._honest_accuracy[client] = accuracy
            num_evaluated = len(self._honest_accuracy)
            if num_evaluated == len(self._tracks) - len(self._byzantine):
                mean = sum(self._honest_accuracy.values()) / num_evaluated
                self._counter("honest mean", mean, self._now_us)

    def _write_fault(self, record: Record) -> None:
        change = change_text(record)
        place = {"pid": RUN, "tid": FAULT_TRACK, "ts": self._now_us}
        self._write(name=change, cat="fault", ph="i", s="t", **place, args=_details(record))
        effect = self._timeline.apply(record)
        for client in effect.stopped:
            self._stop(client, {"ended_by": change})
            self._start(client, "down", {"fault": change})
        for client in effect.resumed:
            self._stop(client)

    def _start(self, client: int, activity: str, details: Record) -> None:
        track = self._tracks[client]
        track.activity, track.start_us, track.details = activity, self._now_us, details

    def _stop(self, client: int, details: Record | None = None) -> None:
        """Write a slice for the client's activity. Zero durations are omitted, except training."""
        track = self._tracks[client]
        if track.activity == "training" or (track.activity is not None and self._now_us > track.start_us):
            self._slice(client, track.activity, track.start_us, {**(track.details or {}), **(details or {})})
        track.activity = None

    def _mark(self, client: int, name: str, **details: object) -> None:
        """Write a slice of zero duration, unless the last one on this track has the same name and time."""
        track = self._tracks[client]
        if track.mark != (name, self._now_us):
            self._slice(client, name, self._now_us, details)
            track.mark = name, self._now_us

    def _slice(self, client: int, name: str, start_us: int, details: Record) -> None:
        duration_us = self._now_us - start_us
        self._on_client(client, name=name, cat="client", ph="X", ts=start_us, dur=duration_us, args=details)

    def _arrow(self, phase: str, client: int, record: Record) -> None:
        name = "Byzantine message" if record["sender"] in self._byzantine else "message"
        number = record["message"]
        self._on_client(client, name=name, cat="message", ph=phase, bp="e", id=number, ts=self._now_us)

    def _client_instant(self, client: int, name: str, category: str, record: Record) -> None:
        details = _details(record)
        self._on_client(client, name=name, cat=category, ph="i", s="t", ts=self._now_us, args=details)
        self._tracks[client].mark = None

    def _on_client(self, client: int, **event: object) -> None:
        self._write(**event, pid=CLIENTS, tid=FIRST_CLIENT_TRACK + client)

    def _counter(self, name: str, accuracy: float, time_us: int) -> None:
        place = {"pid": ACCURACY, "tid": ACCURACY, "ts": time_us}
        self._write(name=name, ph="C", **place, args={"accuracy": accuracy})

    def _name(self, kind: str, group: int, track: int, name: str, order: int) -> None:
        for key, value in (("name", name), ("sort_index", order)):
            self._write(name=f"{kind}_{key}", ph="M", pid=group, tid=track, args={key: value})

    def _label(self, client: int) -> str:
        width = len(str(len(self._tracks) - 1))
        return f"client {client:0{width}} {'Byzantine' if client in self._byzantine else 'honest'}"

    def _write(self, **event: object) -> None:
        self._file.write(self._separator + orjson.dumps(event))
        self._separator = b",\n"


def write_trace(
    lines: Callable[[], Iterable[bytes]],
    topology: Topology,
    title: str,
    file: BinaryIO,
    progress: Callable[[int], None] = lambda num_records: None,
    moment: str = "trained",
) -> int:
    """Write the trace of a run and return its number of arrows; `lines` is called twice.

    `moment` selects the accuracies to show.
    """
    trace = TraceWriter(file, topology, MessageOutcomes(lines()), moment)
    trace.write_header(title)
    for number, line in enumerate(lines(), start=1):
        trace.write_record(parse_record(line, topology["num_clients"]))
        if number % PROGRESS_EVERY == 0:
            progress(number)
    trace.write_footer()
    return trace.num_arrows


def _details(record: Record) -> Record:
    """Return the fields of a record to show with its event; long lists are replaced with their length."""
    return {
        key: f"{len(value)} items" if isinstance(value, list) and len(value) > MAX_LIST else value
        for key, value in record.items()
        if key not in ("event", "time_s", "client")
    }
