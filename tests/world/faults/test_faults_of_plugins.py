"""Fault classes of plug-ins have an effect, records, a place in reports, and are verified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rdpfl_sim import Scenario, simulate
from rdpfl_sim.reports.html.tabs.faults import fault_cards
from rdpfl_sim.results import Run
from rdpfl_sim.verification.verify import verify
from rdpfl_sim.world.faults.timeline import fault_intervals
from tests.packages import Packages
from tests.support import small_scenario

MODULE = """
from __future__ import annotations
from dataclasses import dataclass
from rdpfl_sim.plugins import Condition, End, Fault, FaultContext, Start, fault

@dataclass(frozen=True)
class Outage(Fault):
    KIND, CONDITION = "outage", Condition.CRASHED

    clients: tuple[int, ...]
    cause: str = "storm"

@fault
def storm(context: FaultContext, *, at_s: float = 1.5):
    \"\"\"Half of the clients are down for two seconds.\"\"\"
    outage = Outage(tuple(range(context.num_clients // 2)))
    return iter([(at_s, Start(outage)), (at_s + 2.0, End(outage))])
"""


def stormy(**changes: Any) -> Scenario:
    return small_scenario(faults=["storm"], timing={"wait": {"name": "all", "timeout_s": 0.5}}, **changes)


def test_run_with_a_fault_class_of_a_plug_in_has_no_violations(packages: Packages, tmp_path: Path) -> None:
    packages.install("weather", MODULE, {"fault": ["storm"]})
    run = simulate(stormy(), tmp_path / "runs").folder
    assert run is not None
    faults = Run(run).faults
    assert faults.select("time_s", "kind", "phase", "clients", "cause").rows() == [
        (1.5, "outage", "start", [0, 1, 2], "storm"),
        (3.5, "outage", "end", [0, 1, 2], "storm"),
    ]
    checks = {check.name: check for check in verify(run)}
    assert [check.as_dict() for check in checks.values() if check.outcome == "violated"] == []
    assert checks["faults"].num_items == 2
    assert "down" in str(fault_cards(faults, 10.0)[0].views)


NEW_CONDITION = """
from __future__ import annotations
from dataclasses import dataclass
from rdpfl_sim.plugins import Condition, Fault, FaultContext, Start, End, fault

def throttle(target, fields):
    for client in fields["clients"]:
        target.training_times.slow_down(client, fields["times"])

def release(target, fields):
    for client in fields["clients"]:
        target.training_times.end_slow_down(client, fields["times"])

@dataclass(frozen=True)
class Throttling(Fault):
    KIND, CONDITION = "throttling", Condition("throttled", throttle, release, detail="times")

    clients: tuple[int, ...]
    times: float

@fault(may_lose_messages=False)
def storm(context: FaultContext):
    \"\"\"Clients 0 and 1 train more slowly; the two periods overlap for client 1.\"\"\"
    first, second = Throttling((0, 1), 2.0), Throttling((1,), 4.0)
    return iter([(1.5, Start(first)), (2.5, Start(second)), (3.5, End(first)), (5.5, End(second))])
"""


def test_new_condition_reaches_world_records_report_and_verify(packages: Packages, tmp_path: Path) -> None:
    packages.install("weather", NEW_CONDITION, {"fault": ["storm"]})
    run = simulate(stormy(), tmp_path / "runs").folder
    assert run is not None
    by_client = Run(run).rounds.sort("round").group_by("client", maintain_order=True).agg("duration_s")
    durations_s = dict(by_client.collect().iter_rows())
    assert durations_s[0] == [1.0, 1.0, 2.0, 1.0]
    assert durations_s[1] == [1.0, 1.0, 2.0, 4.0]
    assert durations_s[2] == [1.0, 1.0, 1.0, 1.0]
    assert [check.as_dict() for check in verify(run) if check.outcome == "violated"] == []
    intervals = [*fault_intervals(Run(run).faults.iter_rows(named=True))]
    assert [(each.condition.label, *each[1:]) for each in intervals] == [
        ("throttled", 0, 1.5, 3.5),
        ("throttled", 1, 1.5, 5.5),
    ]
    assert "throttled" in str(fault_cards(Run(run).faults, 10.0)[0].views)
