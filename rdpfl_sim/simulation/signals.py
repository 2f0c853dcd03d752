"""Handle Ctrl-C: the first stops the run between two events, the second stops it immediately."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rdpfl_sim.errors import OUT_OF_MEMORY, PluginError, RunError, is_out_of_memory
from rdpfl_sim.files import UnsafeFileError
from rdpfl_sim.records.files import TRACEBACK

if TYPE_CHECKING:  # imports torch, but the process that starts workers must start quickly
    from rdpfl_sim.scenario.scenario import Scenario
    from rdpfl_sim.simulation.run_folder import RunFolder


@contextmanager
def on_interrupt(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on SIGINT or SIGTERM, so that a run ends between two events with complete records.

    A second signal has its usual effect. Signals that the process ignores (nohup) stay ignored. Outside the
    main thread, no handler is installed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: Any) -> None:
        restore()
        stop()

    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in numbers}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    try:
        yield
    finally:
        restore()


@contextmanager
def record_failure(files: RunFolder | None, scenario: Scenario) -> Iterator[None]:
    """Mark the run folder as failed on an error. Write a traceback unless it is a user's error."""
    try:
        yield
    except (Exception, SystemExit) as error:
        reported = _user_error(error, files, scenario)
        if isinstance(reported, SystemExit):  # not from a plug-in
            raise
        if files is not None:
            if isinstance(reported, PluginError) or not isinstance(reported, RunError):
                files.write_traceback(error)
            files.mark_failed(
                str(reported) if isinstance(reported, RunError) else f"{type(reported).__name__}: {reported}"
            )
        if reported is error:
            raise
        raise reported from error


def _user_error(
    error: Exception | SystemExit, files: RunFolder | None, scenario: Scenario
) -> Exception | SystemExit:
    """Return the error to report, with a message for users if memory, a plug-in or a file is the cause."""
    if is_out_of_memory(error):
        return RunError(OUT_OF_MEMORY)
    plugin_error = _plugin_error(error, scenario)
    if plugin_error is not None:
        place = ", ".join(["", *getattr(error, "__notes__", [])])
        where = "" if files is None else f"; see {files.path / TRACEBACK}"
        return PluginError(plugin_error.plugin, f"{plugin_error.flaw}{place}{where}")
    if isinstance(error, UnsafeFileError):
        return RunError(f"{error.filename}: {error.strerror}")
    if isinstance(error, OSError) and files is not None:
        return RunError(f"the run's files cannot be written to {files.path}: {error.strerror or error}")
    return error


def _plugin_error(error: BaseException, scenario: Scenario) -> PluginError | None:
    """Return an error that names the plug-in whose code failed, or None if no plug-in is involved."""
    if isinstance(error, PluginError):
        return error
    from rdpfl_sim.plugin_checks import plugins_in

    for _, component in plugins_in(scenario):
        plugin = type(component).plugin
        if plugin is not None and plugin.lines(error):
            return PluginError(plugin, f"raises {plugin.explain(error)}")
    return None
