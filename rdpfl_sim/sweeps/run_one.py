"""One run of a sweep, in whichever process it happens."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

REPORT_EVERY_S = 0.5
LOG = "log.txt"


def attempt(raw: dict[str, Any], place: Path, report: Callable[[float], None]) -> str | None:
    """Run a scenario into a new folder within the new folder `place`; the error, if it fails.

    All that is printed meanwhile, and the traceback of an error, goes to log.txt there.
    """
    from rdpfl_sim.records.status import RunStatus
    from rdpfl_sim.scenario.scenario import Scenario
    from rdpfl_sim.simulation.simulation import simulate

    try:
        place.mkdir(parents=True)
        with (place / LOG).open("w", encoding="utf-8") as log, _output_to(log):
            scenario = Scenario.from_dict(raw)
            progress = _Fractions(report, scenario.rounds * scenario.clients.count)
            result = simulate(scenario, place, progress)
    except Exception as error:
        return _told(error)
    return "interrupted by a signal" if result.summary["status"] == RunStatus.INTERRUPTED else None


class _Fractions:
    """Reports the fraction of a run that is done, not too often."""

    def __init__(self, report: Callable[[float], None], total: int) -> None:
        self.report = report
        self.total = total
        self.last = time.monotonic()

    def update(self, rounds_done: int, time_s: float, accuracy: float | None, messages: int) -> None:
        """A client has finished the training of a round."""
        now = time.monotonic()
        if now - self.last >= REPORT_EVERY_S:
            self.last = now
            self.report(rounds_done / self.total)


@contextmanager
def _output_to(log: IO[str]) -> Iterator[None]:
    """Let the process, libraries in C included, print into a file; a traceback, too."""
    before = [(descriptor, os.dup(descriptor)) for descriptor in (1, 2)]
    for descriptor, _ in before:
        os.dup2(log.fileno(), descriptor)
    try:
        yield
    except Exception:
        traceback.print_exc(file=log)
        raise
    finally:
        for descriptor, original in before:
            os.dup2(original, descriptor)
            os.close(original)


def _told(error: Exception) -> str:
    """An error in one line, also one that cannot be turned into text."""
    message = str(traceback.TracebackException.from_exception(error))
    return f"{type(error).__name__}: {'; '.join(message.splitlines())}"
