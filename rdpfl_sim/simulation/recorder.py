"""The recorder of events.jsonl: one flat JSON object per line, in the format of structlog.

Records contain no wall-clock times, so two runs of a scenario write the same records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, BinaryIO, TypeAlias

import orjson
import structlog
from torch import Tensor
from typing_extensions import override

from rdpfl_sim.methods.batching import ClientMessageStats, Updated
from rdpfl_sim.randomness import Streams, uniform
from rdpfl_sim.simulation.digest import Digest
from rdpfl_sim.simulation.telemetry import Telemetry
from rdpfl_sim.world.faults.fault import Change
from rdpfl_sim.world.kernel import Kernel
from rdpfl_sim.world.network.message import Message
from rdpfl_sim.world.observer import Observer, UsedMessage

Fields: TypeAlias = Mapping[str, float | str | bool | None]
"""The fields of a record, without the fields common to all records of its kind."""

MESSAGE_STREAM = "recorded messages"
"""The random stream that selects the messages to record."""


class Sink:
    """Writes lines to the digest, and to a buffered file if there is one."""

    def __init__(self, file: BinaryIO | None, digest: Digest) -> None:
        self.file = file
        self.digest = digest

    def info(self, line: bytes) -> None:
        """Write a line and add it to the digest. The name is part of the interface of structlog."""
        self.digest.add(line)
        self.write_undigested(line)

    def write_undigested(self, line: bytes) -> None:
        """Write a line without adding it to the digest."""
        if self.file is not None:
            self.file.write(line)


class Recorder(Observer):
    """Observes a run: writes events.jsonl, updates the digest and collects telemetry."""

    def __init__(
        self,
        kernel: Kernel,
        streams: Streams,
        file: BinaryIO | None,
        message_fraction: float,
        telemetry: Telemetry,
    ) -> None:
        self.kernel = kernel
        self.file = file
        self.telemetry = telemetry
        self.message_key = streams.key(MESSAGE_STREAM)
        self.message_fraction = 0.0 if file is None else message_fraction
        self.digest = Digest()
        self.sink = Sink(file, self.digest)
        self.log = _logger(self.sink).info

    def event(self, name: str, **fields: Any) -> None:
        """Write a record at the current simulated time."""
        self.log(name, time_s=self.kernel.now, **fields)

    def model(self, client: int, w: Tensor) -> None:
        """Write the hash of a final model."""
        content = w.detach().cpu().contiguous().numpy().tobytes()
        self.event("final_model", client=client, blake2b=blake2b(content, digest_size=16).hexdigest())

    @override
    def training_started(self, client: int, round_: int, duration_s: float) -> None:
        self._round("training_started", client, round_, {"duration_s": duration_s})

    @override
    def training_finished(self, client: int, round_: int, loss: float, num_steps: int) -> None:
        self._round("training_finished", client, round_, {"loss": loss, "num_steps": num_steps})

    @override
    def round_finished(self, client: int, round_: int, messages: Sequence[UsedMessage]) -> None:
        ages = [round_ - message.round for message in messages]
        fields = {"num_used": len(messages), "max_age": max(ages, default=None)}
        self._round("round_finished", client, round_, fields)
        self.telemetry.round_finished(client, messages, ages)
        if self.message_fraction > 0:
            for message, age in zip(messages, ages, strict=True):
                self._message("message_used", message, {"age": age})

    @override
    def update_reported(
        self, client: int, round_: int, messages: Sequence[UsedMessage], updated: Updated
    ) -> None:
        diagnostics, stats = updated.diagnostics, updated.message_stats
        if diagnostics:
            self._round("estimate", client, round_, diagnostics)
        self.telemetry.update_reported(client, messages, diagnostics, None if stats is None else stats.weight)
        if stats is not None and self.message_fraction > 0:
            for place, message in enumerate(messages):
                self._message("message_stats", message, _stats_of(stats, place))

    @override
    def changed(self, fault: int, change: Change) -> None:
        self.event("fault", fault=fault, **change.fields)

    @override
    def message_sent(self, message: Message) -> None:
        if self.message_fraction > 0:
            broadcast = message.broadcast
            fields = {"true_round": message.true_round, "size_bytes": broadcast.size_bytes}
            self._message("message_sent", message, fields)

    @override
    def message_copied(self, message: Message, original: int) -> None:
        self._message("message_copied", message, {"original": original})

    @override
    def message_lost(self, message: Message, reason: str) -> None:
        self._message("message_lost", message, {"reason": reason})

    @override
    def message_delivered(self, message: Message) -> None:
        time_s = self.kernel.now
        delay_s = time_s - message.broadcast.sent_at_s
        self.telemetry.delivered(message.sender, message.recipient, delay_s)
        if self.message_fraction > 0:
            self._message("message_delivered", message, {"delay_s": delay_s})

    @override
    def message_dropped(self, message: Message, outcome: str, reason: str) -> None:
        self.telemetry.dropped(message.sender, message.recipient, outcome, reason)
        self._message(f"message_{outcome}", message, {"reason": reason})

    # Records of rounds and messages bypass structlog, which takes several times as long for the same lines.

    def _round(self, name: str, client: int, round_: int, fields: Fields) -> None:
        record = {"event": name, "time_s": self.kernel.now, "client": client, "round": round_, **fields}
        self.sink.info(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))

    def _message(self, name: str, message: Message | UsedMessage, fields: Fields) -> None:
        """Write a record outside the digest, so that the digest does not depend on `message_events`."""
        fraction = self.message_fraction
        if self.file is None or fraction == 0.0:
            return
        if fraction < 1.0 and uniform(self.message_key, message.number) >= fraction:
            return
        record = {
            "event": name,
            "time_s": self.kernel.now,
            "message": message.number,
            "sender": message.sender,
            "recipient": message.recipient,
            "round": message.round,
            **fields,
        }
        self.sink.write_undigested(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))


def _stats_of(stats: ClientMessageStats, place: int) -> Fields:
    """Return the statistics of one message of a round."""
    return {
        name: None if values is None else values[place]
        for name, values in (
            ("weight", stats.weight),
            ("distance_to_own", stats.distance_to_own),
            ("distance_to_predicted", stats.distance_to_predicted),
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
