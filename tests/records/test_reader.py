"""The reader of run folders."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from rdpfl_sim.errors import RunError
from rdpfl_sim.files import UnsafeFileError
from rdpfl_sim.records.metrics import HEADER, METRICS, parse_metrics
from rdpfl_sim.records.reader import RunReader
from rdpfl_sim.records.schema import SCHEMA
from tests.records.lines import record_line
from tests.results.run_folders import metrics_text, scores

STARTED = record_line("run_started", schema=SCHEMA) + b"\n"
VALUES = {"client": 3, "byzantine": 0, "round": 2, **scores(1.5, 0.75)}
_, ROW = metrics_text([{**VALUES, "trained_personal_loss": "nan", "mean_age": 0.5}]).splitlines()


def test_metrics_are_numbers_and_none_where_nothing_was_measured(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text(f"{HEADER}\n{ROW}\n")
    (row,) = RunReader(tmp_path).read_metrics()
    assert list(row) == list(METRICS)
    assert (row["client"], row["round"], row["hops"]) == (3, 2, None)
    assert (row["trained_time_s"], row["trained_personal_accuracy"]) == (1.5, 0.75)
    assert (row["updated_time_s"], row["updated_personal_accuracy"]) == (None, None)
    assert isinstance(row["round"], int)


def test_partly_written_last_line_is_omitted(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text(f"{HEADER}\n{ROW}\n{ROW[:9]}")
    (tmp_path / "events.jsonl").write_bytes(STARTED + b'{"event":"fau')
    reader = RunReader(tmp_path)
    assert len(reader.read_metrics()) == 1
    assert list(reader.record_lines()) == [STARTED]
    assert reader.last_record() == orjson.loads(STARTED)


def test_lines_without_a_header_are_rows() -> None:
    assert [row["client"] for row in parse_metrics([ROW, ROW])] == [3, 3]


@pytest.mark.parametrize("line", ["1.5,3", "x" + ROW, ROW + ",1"])
def test_damaged_row_is_an_error_that_names_the_file(tmp_path: Path, line: str) -> None:
    (tmp_path / "metrics.csv").write_text(f"{HEADER}\n{line}\n")
    with pytest.raises(RunError, match=r"metrics\.csv is damaged"):
        RunReader(tmp_path).read_metrics()


def test_missing_files_are_none_empty_or_an_error(tmp_path: Path) -> None:
    reader = RunReader(tmp_path)
    assert reader.read_summary() is None
    assert reader.read_provenance() is None
    assert reader.last_record() is None
    assert not reader.has_records()
    assert not reader.has_metrics()
    with pytest.raises(FileNotFoundError):
        reader.read_topology()
    with pytest.raises(RunError, match="has no records"):
        reader.record_lines()


@pytest.mark.parametrize("content", ["[]", "{", '{"num_clients": 3, "edges": []}'])
def test_damaged_topology_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "topology.json").write_text(content)
    with pytest.raises(RunError, match=r"topology\.json is damaged"):
        RunReader(tmp_path).read_topology()


def test_damaged_last_record_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text("{]\n")
    with pytest.raises(RunError, match=r"events\.jsonl is damaged"):
        RunReader(tmp_path).last_record()


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("{}")
    for name in ("summary.json", "metrics.csv", "events.jsonl"):
        (tmp_path / name).symlink_to(tmp_path / "elsewhere")
    reader = RunReader(tmp_path)
    for read in (reader.read_summary, reader.read_metrics, reader.has_records):
        with pytest.raises(UnsafeFileError):
            read()
