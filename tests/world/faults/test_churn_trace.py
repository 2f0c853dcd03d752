from pathlib import Path

import pytest

from rdpfl_sim.world.faults.crash import Crash
from rdpfl_sim.world.faults.fault import End, Start
from rdpfl_sim.world.faults.join_and_leave import Absence
from tests.world.faults.schedules import refusal, schedule


def trace(folder: Path, *lines: str, header: str = "time_s,client,state") -> str:
    path = folder / "trace.csv"
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return str(path)


def test_trace_is_sorted_and_a_client_that_first_comes_up_was_absent(tmp_path):
    path = trace(
        tmp_path, "9,3,down", "5.5,0,up", "4, 0 ,down", "", "2,3,up", "1,1,fresh", "7,0,down", "8,0,fresh"
    )
    assert list(schedule("churn_trace", path=path, catch_up=False)) == [
        (0.0, Start(Absence((1, 3)))),
        (1.0, End(Absence((1,)))),
        (2.0, End(Absence((3,)))),
        (4.0, Start(Crash((0,)))),
        (5.5, End(Crash((0,), fresh=False, catch_up=False))),
        (7.0, Start(Crash((0,)))),
        (8.0, End(Crash((0,), fresh=True, catch_up=False))),
        (9.0, Start(Crash((3,), for_good=True))),
    ]


def test_client_that_is_up_at_time_zero_is_present_from_the_start(tmp_path):
    assert list(schedule("churn_trace", path=trace(tmp_path, "0,2,up", "3,2,down"))) == [
        (3.0, Start(Crash((2,), for_good=True)))
    ]


def test_simultaneous_rows_of_a_trace_keep_the_order_of_the_file(tmp_path):
    changes = schedule("churn_trace", path=trace(tmp_path, "3,4,down", "3,0,down", "3,4,up"))
    assert list(changes) == [
        (3.0, Start(Crash((4,)))),
        (3.0, Start(Crash((0,), for_good=True))),
        (3.0, End(Crash((4,), fresh=False, catch_up=True))),
    ]


def test_trace_may_begin_with_a_byte_order_mark_and_end_lines_as_windows_does(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_bytes(b"\xef\xbb\xbftime_s,client,state\r\n1,0,down\r\n")
    assert list(schedule("churn_trace", path=str(path))) == [(1.0, Start(Crash((0,), for_good=True)))]


def test_trace_without_rows_changes_nothing(tmp_path):
    assert list(schedule("churn_trace", path=trace(tmp_path))) == []


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["1,0,down", "soon,0,up"], "line 3: the time must be a non-negative number of seconds, not 'soon'"),
        (["-1,0,down"], "line 2: the time must be a non-negative number of seconds, not '-1'"),
        (["nan,0,down"], "line 2: the time must be a non-negative number of seconds, not 'nan'"),
        (["inf,0,down"], "line 2: the time must be a non-negative number of seconds, not 'inf'"),
        (["1,5,down"], "line 2: there is no client '5'; allowed: 0 to 4"),
        (["1,-1,down"], "line 2: there is no client '-1'; allowed: 0 to 4"),
        (["1,one,down"], "line 2: there is no client 'one'; allowed: 0 to 4"),
        (["1," + "1" * 5000 + ",down"], f"line 2: there is no client '{'1' * 5000}'; allowed: 0 to 4"),
        (["", "1,0,off"], "line 3: there is no state 'off'; allowed: down, up, fresh"),
        (["1,0"], "line 2: has 2 columns; needed: time_s,client,state"),
        (["5,0,fresh", "1,0,up"], "line 2: client 0 is already up at 5 s"),
        (["1,0,down", "2,1,down", "3,0,down"], "line 4: client 0 is already down at 3 s"),
    ],
)
def test_bad_line_of_a_trace_is_named(tmp_path, lines, message):
    assert refusal("churn_trace", path=trace(tmp_path, *lines)) == ("path", message)


def test_trace_needs_its_header(tmp_path):
    refused = ("path", "line 1: must be the header time_s,client,state")
    assert refusal("churn_trace", path=trace(tmp_path, header="1,0,down")) == refused
    (tmp_path / "empty.csv").touch()
    assert refusal("churn_trace", path=str(tmp_path / "empty.csv")) == refused


def test_trace_that_cannot_be_read_is_rejected(tmp_path):
    refused = ("path", "cannot be read: No such file or directory")
    assert refusal("churn_trace", path=str(tmp_path / "none.csv")) == refused
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    option, message = refusal("churn_trace", path=str(tmp_path / "binary.csv"))
    assert option == "path"
    assert message.startswith("is not a CSV file: 'utf-8' codec can't decode")
    assert refusal("churn_trace", path="\0") == (
        "path",
        "cannot be read: is not a valid path (embedded null byte)",
    )
