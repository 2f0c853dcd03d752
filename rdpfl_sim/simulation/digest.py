"""The digest of a run: a hash of its records for comparing runs.

The digest covers every record except message records, so it does not depend on `output.message_events`. It
includes the hashes of the final models. Records contain no wall-clock time.
"""

from __future__ import annotations

from hashlib import blake2b


class Digest:
    """A hash chain over lines. Its only state is the latest value, which is stored in checkpoints."""

    STATE = ("value",)

    def __init__(self) -> None:
        self.value = b""

    def add(self, line: bytes) -> None:
        """Extend the chain by one line."""
        self.value = blake2b(self.value + line, digest_size=32).digest()
