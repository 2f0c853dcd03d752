"""What the tests of the engines share."""

from rdpfl_sim.sweeps.plan import PlannedRun, SweepSpec
from tests.support import small_scenario

ENDLESS = 1_000_000


class Notes:
    """A watcher that remembers."""

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
    """A quick one, unless it has many rounds."""
    base = small_scenario(**changes, rounds=rounds).to_dict()
    return SweepSpec.from_dict({"base": base, "seeds": [seed]}).runs()[0]
