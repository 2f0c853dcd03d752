"""The digest of a run: a hash of its records, by which two runs are compared.

It covers every record except those of single messages, so it does not depend on `output.message_events`. The
final models are part of it through their hashes. Records contain no wall-clock time.
"""

from __future__ import annotations

from hashlib import blake2b

MESSAGE_PREFIX = b'{"event":"message_'
"""The beginning of the records that the digest does not cover."""


class Digest:
    """A hash chain over lines; its only state is the latest value, which a checkpoint contains."""

    STATE = ("value",)

    def __init__(self) -> None:
        self.value = b""

    def add(self, line: bytes) -> None:
        """Extend the chain by one line."""
        self.value = blake2b(self.value + line, digest_size=32).digest()
