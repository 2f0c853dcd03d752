"""Events as flat JSON objects, one a line, through structlog; and the digest of a run.

The digest covers every record but those of single messages, and the final models: it does not change
with how many message events are written. No record holds wall-clock time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, BinaryIO

import orjson
import structlog
from torch import Tensor
from typing_extensions import override

from rdpfl_sim.maths.types import Received
from rdpfl_sim.randomness import Streams, uniform
from rdpfl_sim.world.message import Message
from rdpfl_sim.world.observer import Observer


class Sink:
    """Where structlog's rendered lines go: a buffered file, a digest, or both."""

    def __init__(self, file: BinaryIO | None, digest: Callable[[bytes], None] | None) -> None:
        self.file = file
        self.digest = digest

    def info(self, line: bytes) -> None:
        """Take one line."""
        line += b"\n"
        if self.digest is not None:
            self.digest(line)
        if self.file is not None:
            self.file.write(line)


class Recorder(Observer):
    """Writes what the world tells to `events.jsonl`, and keeps the digest."""

    def __init__(
        self,
        now_s: Callable[[], float],
        streams: Streams,
        file: BinaryIO | None,
        message_fraction: float,
        byzantine: frozenset[int],
    ) -> None:
        self.now_s = now_s
        self.byzantine = byzantine
        self.honest_rounds: Counter[str] = Counter()
        self.message_key = streams.key("recorded messages")
        self.message_fraction = 0.0 if file is None else message_fraction
        self.digest = blake2b(digest_size=32)
        self.log = _logger(Sink(file, self.digest.update)).info
        self.log_message = _logger(Sink(file, None)).info

    def event(self, name: str, **fields: Any) -> None:
        """Record anything, at the current simulated time."""
        self.log(name, time_s=self.now_s(), **fields)

    def model(self, client: int, w: Tensor) -> None:
        """Take a final model into the digest."""
        self.digest.update(b"model %d\n" % client)
        self.digest.update(w.detach().cpu().contiguous().numpy().tobytes())

    @override
    def training_started(self, client: int, round_: int, duration_s: float) -> None:
        self.event("training_started", client=client, round=round_, duration_s=duration_s)

    @override
    def training_finished(self, client: int, round_: int, loss: float, num_steps: int) -> None:
        self.event("training_finished", client=client, round=round_, loss=loss, num_steps=num_steps)

    @override
    def round_finished(
        self, client: int, round_: int, received: Sequence[Received], diagnostics: Mapping[str, Any]
    ) -> None:
        oldest = max((message.age for message in received), default=None)
        self.event(
            "round_finished",
            client=client,
            round=round_,
            num_used=len(received),
            max_age=oldest,
            **diagnostics,
        )
        if client not in self.byzantine and "tau" in diagnostics:
            self.honest_rounds.update(
                ["all", *(key for key in ("clipped", "bounded") if diagnostics.get(key))]
            )

    def estimator_statistics(self) -> dict[str, float] | None:
        """In which fraction of the honest clients' rounds the clip and the bound G_d were active."""
        num_rounds = self.honest_rounds["all"]
        if num_rounds == 0:
            return None
        return {key: self.honest_rounds[key] / num_rounds for key in ("clipped", "bounded")}

    @override
    def message_sent(self, message: Message) -> None:
        self._message("message_sent", message, size_bytes=message.payload.size_bytes)

    @override
    def message_lost(self, message: Message) -> None:
        self._message("message_lost", message)

    @override
    def message_delivered(self, message: Message) -> None:
        self._message("message_delivered", message, delay_s=self.now_s() - message.sent_at_s)

    @override
    def message_used(self, message: Message, round_: int) -> None:
        self._message("message_used", message, age=round_ - message.round)

    @override
    def message_dropped(self, message: Message, fate: str, reason: str) -> None:
        self._message(f"message_{fate}", message, reason=reason)

    def _message(self, name: str, message: Message, **fields: Any) -> None:
        if self.message_fraction == 0.0:
            return
        if self.message_fraction < 1.0 and uniform(self.message_key, message.number) >= self.message_fraction:
            return
        self.log_message(
            name,
            time_s=self.now_s(),
            message=message.number,
            sender=message.sender,
            recipient=message.recipient,
            round=message.round,
            **fields,
        )


def _logger(sink: Sink) -> Any:
    return structlog.wrap_logger(
        sink,
        processors=[structlog.processors.JSONRenderer(serializer=_dumps)],
        wrapper_class=structlog.make_filtering_bound_logger(0),
        context_class=dict,
    ).bind()


def _dumps(record: dict[str, Any], **_: Any) -> bytes:
    # The event's name first, for people; NaN and infinity become null.
    return orjson.dumps({"event": record.pop("event"), **record})
