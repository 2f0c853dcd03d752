"""The status of a run."""

from __future__ import annotations

import orjson
import pytest

from rdpfl_sim.errors import RunError
from rdpfl_sim.records.status import RunStatus


def test_only_a_run_that_reached_its_end_is_complete() -> None:
    assert {status for status in RunStatus if status.is_complete} == {"finished", "out of time"}


def test_run_that_is_not_complete_can_be_resumed() -> None:
    assert {status for status in RunStatus if status.can_resume} == {"interrupted", "failed", "unfinished"}


def test_run_without_a_summary_is_unfinished() -> None:
    assert RunStatus.of_summary(None) is RunStatus.UNFINISHED
    assert RunStatus.of_summary({"status": "out of time"}) is RunStatus.OUT_OF_TIME


@pytest.mark.parametrize("summary", [{}, {"status": "exploded"}, {"status": None}])
def test_unknown_status_is_an_error(summary: dict) -> None:
    with pytest.raises(RunError, match=r"summary\.json has no valid status"):
        RunStatus.of_summary(summary)


def test_files_contain_the_plain_string() -> None:
    assert orjson.dumps({"status": RunStatus.OUT_OF_TIME}) == b'{"status":"out of time"}'
