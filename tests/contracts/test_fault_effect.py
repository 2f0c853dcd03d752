"""The effect of a fault must match its record, which reports and `verify` rely on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rdpfl_sim import Scenario, ScenarioError, simulate
from rdpfl_sim.contracts.fault_effect import effect_flaw
from rdpfl_sim.reports.html.tabs.faults import fault_cards
from rdpfl_sim.results import Run
from rdpfl_sim.verification.verify import verify
from rdpfl_sim.world.faults.fault import Condition, End, Fault, FaultTarget, Start
from rdpfl_sim.world.faults.timeline import fault_intervals
from tests.packages import Packages
from tests.support import small_scenario
from tests.world.faults.test_fault import EXAMPLES


@pytest.mark.parametrize("fault", EXAMPLES, ids=lambda fault: type(fault).__name__)
def test_built_in_fault_does_what_its_record_states(fault: Fault) -> None:
    assert effect_flaw(Start(fault)) is None
    if fault.ends():
        assert effect_flaw(End(fault)) is None


@dataclass(frozen=True)
class Blackout(Fault):
    """Clients stop, and continue in their own round."""

    KIND, CONDITION = "blackout", Condition.CRASHED

    clients: tuple[int, ...]
    catch_up: bool = False


def with_condition(condition: Condition | None) -> Fault:
    """Return a blackout with another condition and its own kind."""

    @dataclass(frozen=True)
    class Other(Blackout):
        KIND: ClassVar[str] = f"other {id(condition)}"
        CONDITION: ClassVar[Condition | None] = condition

    return Other((1,))


def test_fault_of_a_plug_in_is_accepted() -> None:
    assert effect_flaw(Start(Blackout((1,)))) is None
    assert effect_flaw(End(Blackout((1,)))) is None


@pytest.mark.parametrize(
    ("condition", "flaw"),
    [
        (None, "needs the field 'links' in its record: it has no CONDITION"),
        (Condition.LINK_DOWN, "needs the field 'links' in its record, because its CONDITION is down"),
        (Condition.SLOW, "needs the field 'factor' in its record, because its CONDITION is slow"),
    ],
)
def test_condition_without_its_fields_is_a_flaw(condition: Condition | None, flaw: str) -> None:
    assert effect_flaw(Start(with_condition(condition))) == flaw


@pytest.mark.parametrize(
    ("condition", "flaw"),
    [
        (replace(Condition.CRASHED, stops=False), "calls stop(), but its CONDITION states stops=False"),
        (replace(Condition.ABSENT, withdraws=False), "calls withdraw(), but its CONDITION states stops=True"),
        (replace(Condition.CRASHED, withdraws=True), "does not call withdraw(), but its CONDITION states"),
        (
            Condition("cut off", lambda target, fields: target.obstacles.take_down([(0, 1)])),
            "blocks links, but its CONDITION is neither LINK_DOWN nor PARTITIONED",
        ),
        (
            Condition("rewired", lambda target, fields: target.set_topology([])),
            "calls set_topology(), but its CONDITION states stops=False",
        ),
    ],
)
def test_condition_that_does_not_state_its_effect_is_a_flaw(condition: Condition, flaw: str) -> None:
    assert str(effect_flaw(Start(with_condition(condition)))).startswith(flaw)


def test_effect_of_its_own_beside_a_condition_is_a_flaw() -> None:
    @dataclass(frozen=True)
    class Stronger(Blackout):
        KIND: ClassVar[str] = "stronger"

        def start(self, target: FaultTarget) -> None:
            target.stop(self.clients, for_good=True)

    flaw = effect_flaw(Start(Stronger((1,))))
    assert flaw == "defines start() or end(), which follow from its CONDITION: remove them from Stronger"


def test_kind_of_another_fault_is_a_flaw() -> None:
    @dataclass(frozen=True)
    class Thief(Blackout):
        KIND: ClassVar[str] = "partition"

    flaw = effect_flaw(Start(Thief((1,))))
    assert flaw == "has the KIND 'partition' in the records, which Partition already uses"


def test_fault_without_a_kind_or_an_end_is_a_flaw() -> None:
    @dataclass(frozen=True)
    class Nameless(Fault):
        clients: tuple[int, ...]

    assert effect_flaw(Start(Nameless((1,)))) == "has no name for the records: set Nameless.KIND"
    assert effect_flaw(End(with_condition(Condition.DEPARTED))) == "never ends: its CONDITION is departed"


MODULE = """
from __future__ import annotations
from dataclasses import dataclass
from rdpfl_sim.plugins import Condition, End, Fault, FaultContext, Start, fault

@dataclass(frozen=True)
class Outage(Fault):
    KIND, CONDITION = "outage", Condition.{condition}

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
    packages.install("weather", MODULE.replace("{condition}", "CRASHED"), {"fault": ["storm"]})
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


def test_fault_class_of_a_plug_in_that_verify_cannot_check_is_rejected(packages: Packages) -> None:
    source = MODULE.replace("{condition}", "SLOW").replace('"outage"', '"other outage"')
    packages.install("weather", source, {"fault": ["storm"]})
    with pytest.raises(ScenarioError, match=r"the fault 'storm' .* needs the field 'factor'"):
        simulate(stormy())


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
