"""Write events.jsonl: one flat JSON object per line, in the format of structlog.

No record contains wall-clock time, so that two runs of a scenario write the same records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, BinaryIO

import orjson
import structlog
from torch import Tensor
from typing_extensions import override

from rdpfl_sim.methods.batching import ClientMessageStats
from rdpfl_sim.methods.deferred import Update
from rdpfl_sim.randomness import Streams, uniform
from rdpfl_sim.records.digest import Digest
from rdpfl_sim.records.telemetry import Telemetry
from rdpfl_sim.world.faults.fault import Change
from rdpfl_sim.world.network.links import ROUND
from rdpfl_sim.world.network.message import Message
from rdpfl_sim.world.observer import Observer

MESSAGE_STREAM = "recorded messages"
"""The random stream that decides which messages are recorded, by their numbers."""


class Sink:
    """Writes lines to the digest, and to a buffered file if there is one.

    Lines whose content is not known yet are deferred, and all later lines with them, to keep the order.
    """

    def __init__(self, file: BinaryIO | None, digest: Digest) -> None:
        self.file = file
        self.digest = digest
        self.deferred: list[Callable[[], None]] = []

    def info(self, line: bytes) -> None:
        """Write a line that the digest covers; structlog calls this method."""
        if self.deferred:
            self.deferred.append(partial(self.info, line))
            return
        self.digest.add(line)
        if self.file is not None:
            self.file.write(line)

    def write_undigested(self, line: bytes) -> None:
        """Write a line that the digest does not cover."""
        if self.deferred:
            self.deferred.append(partial(self.write_undigested, line))
        elif self.file is not None:
            self.file.write(line)

    def defer(self, write: Callable[[], None]) -> None:
        """Call `write` when the deferred lines are written."""
        self.deferred.append(write)

    def catch_up(self) -> None:
        """Write all deferred lines."""
        deferred, self.deferred = self.deferred, []
        for write in deferred:
            write()


class Recorder(Observer):
    """Observes a run: writes events.jsonl, updates the digest and collects telemetry."""

    def __init__(
        self,
        now_s: Callable[[], float],
        streams: Streams,
        file: BinaryIO | None,
        message_fraction: float,
        telemetry: Telemetry,
        inspects: bool,
    ) -> None:
        self.now_s = now_s
        self.file = file
        self.telemetry = telemetry
        self.inspects = inspects
        self.message_key = streams.key(MESSAGE_STREAM)
        self.message_fraction = 0.0 if file is None else message_fraction
        self.digest = Digest()
        self.sink = Sink(file, self.digest)
        self.log = _logger(self.sink).info

    def event(self, name: str, **fields: Any) -> None:
        """Write a record at the current simulated time."""
        self.log(name, time_s=self.now_s(), **fields)

    def model(self, client: int, w: Tensor) -> None:
        """Write the hash of a final model."""
        content = w.detach().cpu().contiguous().numpy().tobytes()
        self.event("final_model", client=client, blake2b=blake2b(content, digest_size=16).hexdigest())

    @override
    def training_started(self, client: int, round_: int, duration_s: float) -> None:
        self._round("training_started", self.now_s(), client, round_, {"duration_s": duration_s})

    @override
    def training_finished(self, client: int, round_: int, loss: float, num_steps: int) -> None:
        self._round("training_finished", self.now_s(), client, round_, {"loss": loss, "num_steps": num_steps})

    @override
    def round_finished(
        self,
        client: int,
        round_: int,
        messages: Sequence[Message],
        update: Update,
        inspection: ClientMessageStats | None,
    ) -> None:
        time_s = self.now_s()
        oldest = max([round_ - message.broadcast.round for message in messages], default=None)
        self._round("round_finished", time_s, client, round_, {"num_used": len(messages), "max_age": oldest})
        for message in messages:
            self._message("message_used", time_s, message, {"age": round_ - message.broadcast.round})
        write = partial(self._estimate, time_s, client, round_, messages, update, inspection)
        if update.is_known:
            write()
        else:
            self.sink.defer(write)

    def _estimate(
        self,
        time_s: float,
        client: int,
        round_: int,
        messages: Sequence[Message],
        update: Update,
        inspection: ClientMessageStats | None,
    ) -> None:
        diagnostics = update.diagnostics
        if diagnostics:
            self._round("estimate", time_s, client, round_, dict(diagnostics))
        self.telemetry.round_finished(client, round_, messages, diagnostics, inspection)
        if inspection is not None:
            for place, message in enumerate(messages):
                self._message("message_stats", time_s, message, _details(inspection, place))

    def catch_up(self) -> None:
        """Write the records of deferred updates, which have been computed."""
        self.sink.catch_up()

    @override
    def changed(self, fault: int, change: Change) -> None:
        self.event("fault", fault=fault, **change.fields)

    @override
    def message_sent(self, message: Message) -> None:
        if self.message_fraction > 0:
            broadcast = message.broadcast
            fields = {"true_round": message.draw // ROUND, "size_bytes": broadcast.size_bytes}
            self._message("message_sent", broadcast.sent_at_s, message, fields)

    @override
    def message_copied(self, message: Message, original: int) -> None:
        self._message("message_copied", self.now_s(), message, {"original": original})

    @override
    def message_lost(self, message: Message, reason: str) -> None:
        self._message("message_lost", self.now_s(), message, {"reason": reason})

    @override
    def message_delivered(self, message: Message) -> None:
        time_s = self.now_s()
        delay_s = time_s - message.broadcast.sent_at_s
        self.telemetry.delivered(delay_s)
        if self.message_fraction > 0:
            self._message("message_delivered", time_s, message, {"delay_s": delay_s})

    @override
    def message_dropped(self, message: Message, outcome: str, reason: str) -> None:
        self.telemetry.dropped(message, outcome)
        self._message(f"message_{outcome}", self.now_s(), message, {"reason": reason})

    # Records of rounds and messages bypass structlog, which takes several times as long for the same lines.

    def _round(self, name: str, time_s: float, client: int, round_: int, fields: dict[str, Any]) -> None:
        record = {"event": name, "time_s": time_s, "client": client, "round": round_, **fields}
        self.sink.info(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))

    def _message(self, name: str, time_s: float, message: Message, fields: dict[str, Any]) -> None:
        fraction = self.message_fraction
        if self.file is None or fraction == 0.0:
            return
        if fraction < 1.0 and uniform(self.message_key, message.number) >= fraction:
            return
        link = message.link
        record = {
            "event": name,
            "time_s": time_s,
            "message": message.number,
            "sender": link.sender,
            "recipient": link.recipient,
            "round": message.broadcast.round,
            **fields,
        }
        self.sink.write_undigested(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))


def _details(inspection: ClientMessageStats, place: int) -> dict[str, float | None]:
    """Return the statistics of one message of a round."""
    return {
        name: None if values is None else values[place]
        for name, values in (
            ("weight", inspection.weight),
            ("distance_to_own", inspection.distance_to_own),
            ("distance_to_predicted", inspection.distance_to_predicted),
        )
    }


def _logger(sink: Sink) -> Any:
    return structlog.wrap_logger(
        sink,
        processors=[structlog.processors.JSONRenderer(serializer=_dumps)],
        wrapper_class=structlog.make_filtering_bound_logger(0),
        context_class=dict,
    ).bind()


def _dumps(record: dict[str, Any], **_: Any) -> bytes:
    # The event's name comes first, for readability; NaN and infinity become null.
    return orjson.dumps({"event": record.pop("event"), **record}, option=orjson.OPT_APPEND_NEWLINE)
