"""Changed records of clients and faults."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from rdpfl_sim.verification.check import INVARIANTS, Check
from rdpfl_sim.verification.clients import ClientChecks
from rdpfl_sim.world.faults.fault import End, Fault
from tests.verification.changed_runs import index, read, violated, write
from tests.world.faults.test_fault import EXAMPLES


def test_activity_of_a_stopped_client_is_reported(run: Path) -> None:
    records = read(run)
    crash = records.pop(index(records, "fault", kind="crash", phase="start"))
    records.insert(index(records, "training_started"), {**crash, "time_s": 0.0})
    write(run, records)
    found = violated(run)
    assert "is down" in str(found["faults"].first)
    assert "is down" in str(found["links"].first)


ENDS = {
    "Partition": "the condition 'partitioned' of the network ends, but has not started",
    "LinkOutage": "the condition 'down' of the link from 0 to 1 ends, but has not started",
    "Crash": "the condition 'down' of client 1 ends, but has not started",
    "Absence": "the condition 'not yet joined' of client 2 ends, but has not started",
    "SlowDown": "the condition 'slow' of client 0 ends, but has not started",
}


@pytest.mark.parametrize("fault", [f for f in EXAMPLES if f.ends()], ids=lambda fault: type(fault).__name__)
def test_end_of_a_fault_that_has_not_started_is_a_violation(fault: Fault) -> None:
    checks = ClientChecks({name: Check(name) for name in INVARIANTS}, 3, [(0, 1), (1, 2)], num_rounds=4)
    record: Any = {"time_s": 1.0, **orjson.loads(orjson.dumps(End(fault).fields))}
    checks.fault(record, 1)
    assert checks.faults.first == ENDS[type(fault).__name__]
