"""Runs and a listener for the tests of the runners."""

from rdpfl_sim.sweeps.plan import PlannedRun, plan_runs
from rdpfl_sim.sweeps.spec import SweepSpec
from tests.support import small_scenario

ENDLESS = 1_000_000


class RecordingListener:
    """Records the reports of a runner."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.fractions: dict[str, float] = {}
        self.errors: dict[str, str | None] = {}

    def started(self, run: PlannedRun) -> None:
        self.begun.append(run.key)

    def advanced(self, run: PlannedRun, fraction: float) -> None:
        assert 0 <= self.fractions.get(run.key, 0) <= fraction <= 1
        self.fractions[run.key] = fraction

    def ended(self, run: PlannedRun, error: str | None) -> None:
        self.errors[run.key] = error


def make_run(seed: int, rounds: int = 2, **changes) -> PlannedRun:
    """Return a quick run, unless it has many rounds."""
    base = small_scenario(**changes, rounds=rounds).to_dict()
    return plan_runs(SweepSpec.from_dict({"base": base, "seeds": [seed]}))[0]
