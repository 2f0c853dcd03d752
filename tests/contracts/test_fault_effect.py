"""The effect of a fault must match its record, which reports and `verify` rely on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rdpfl_sim import Scenario, ScenarioError, simulate
from rdpfl_sim.contracts.fault_effect import effect_flaw
from rdpfl_sim.frames import Run
from rdpfl_sim.reports.html.tabs.faults import fault_cards
from rdpfl_sim.verification.verify import verify
from rdpfl_sim.world.faults.fault import Condition, End, Fault, FaultTarget, Start
from tests.packages import Packages
from tests.support import small_scenario
from tests.world.faults.test_fault import EXAMPLES

DIFFERS = "has a different effect than its record states"


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

    def start(self, target: FaultTarget) -> None:
        target.stop(self.clients, for_good=False)

    def end(self, target: FaultTarget) -> None:
        target.restart(self.clients, fresh=False, catch_up=False)


def test_fault_of_a_plug_in_that_does_what_its_record_states_is_accepted() -> None:
    assert effect_flaw(Start(Blackout((1,)))) is None
    assert effect_flaw(End(Blackout((1,)))) is None


def test_effect_that_the_record_does_not_state_is_a_flaw() -> None:
    flaw = effect_flaw(End(Blackout((1,), catch_up=True)))
    assert flaw == f"{DIFFERS}: restart [1] False False, not restart [1] False True"


@pytest.mark.parametrize(
    ("condition", "flaw"),
    [
        (None, "needs the field 'links' in its record, because its CONDITION is None"),
        (Condition.LINK_DOWN, "needs the field 'links' in its record"),
        (Condition.DEPARTED, f"{DIFFERS}: stop [1] False, not stop [1] True; withdraw [1]"),
        (Condition.SLOW, f"{DIFFERS}: stop [1] False, not slow down [1] None"),
    ],
)
def test_wrong_condition_is_a_flaw(condition: Condition | None, flaw: str) -> None:
    @dataclass(frozen=True)
    class Wrong(Blackout):
        KIND: ClassVar[str] = f"wrong {condition}"
        CONDITION: ClassVar[Condition | None] = condition

    assert str(effect_flaw(Start(Wrong((1,))))).startswith(flaw)


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

        def start(self, target: FaultTarget) -> None:
            target.stop(self.clients, for_good=True)

    @dataclass(frozen=True)
    class Endless(Nameless):
        KIND = "endless"

    assert effect_flaw(Start(Nameless((1,)))) == "has no name for the records: set Nameless.KIND"
    assert effect_flaw(End(Endless((1,)))) == "never ends: define Endless.end()"


MODULE = """
from __future__ import annotations
from dataclasses import dataclass
from rdpfl_sim.plugins import Condition, End, Fault, FaultContext, FaultTarget, Start, fault

@dataclass(frozen=True)
class Outage(Fault):
    KIND, CONDITION = "outage", Condition.{condition}

    clients: tuple[int, ...]
    cause: str = "storm"

    def start(self, target: FaultTarget) -> None:
        target.stop(self.clients, for_good=False)

    def end(self, target: FaultTarget) -> None:
        target.restart(self.clients, fresh=False, catch_up=True)

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
    source = MODULE.replace("{condition}", "ABSENT").replace('"outage"', '"other outage"')
    packages.install("weather", source, {"fault": ["storm"]})
    with pytest.raises(ScenarioError, match=rf"the fault 'storm' .* {DIFFERS}"):
        simulate(stormy())
