"""Failed runs: the error message for users, and the status of the run folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rdpfl_sim.contracts.plugin_check import plugins_in
from rdpfl_sim.errors import OUT_OF_MEMORY, PluginError, RunError, is_out_of_memory
from rdpfl_sim.records.run_folder import TRACEBACK, RunFolder
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.system.files import UnsafeFileError


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
    for _, component in plugins_in(scenario):
        plugin = type(component).plugin
        if plugin is not None and plugin.lines(error):
            return PluginError(plugin, f"raises {plugin.explain(error)}")
    return None
