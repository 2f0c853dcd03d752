"""Results do not change by accident: digests of runs and the bytes of one record file are pinned.

The pins hold on every x86-64 processor with AVX2. If one fails on some processor only, an operation is not
portable: `test_building_blocks.py` and `make portable` help to find it. A change that is meant to alter
results writes new pins with `python -m tests.pinned.cases`.
"""

import pytest

from rdpfl_sim import Scenario
from tests.pinned.cases import EVENTS, EXECUTORS, VERSION, digest, events, pins, scenarios

PINS = pins()
CASES = dict(scenarios())

pytestmark = pytest.mark.skipif(PINS is None, reason=f"no pins for torch {VERSION}")


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", CASES)
def test_digest_is_pinned(name: str, executor: str) -> None:
    assert PINS is not None
    assert digest(CASES[name], executor) == PINS[name][executor]


@pytest.mark.parametrize("name", ["ring_30pct", "stress/everything", "method ditto"])
def test_threads_have_the_digest_of_inline(name: str) -> None:
    assert PINS is not None
    assert digest(CASES[name], "threads") == PINS[name]["inline"]


def test_every_pin_is_checked() -> None:
    assert PINS is not None
    assert PINS.keys() == CASES.keys()


def test_records_are_pinned() -> None:
    assert events() == EVENTS.read_bytes()


def test_a_digest_depends_on_the_seed() -> None:
    assert PINS is not None
    raw = CASES["ring_30pct"].to_dict() | {"seed": 12345}
    assert digest(Scenario.from_dict(raw), "inline") != PINS["ring_30pct"]["inline"]
