"""A stacked run defers updates but writes the records of an inline run, in the same order."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from rdpfl_sim.simulation.experiment import Experiment
from tests.runs import Lived, lived
from tests.support import small_scenario

EVERYTHING = {"output": {"message_events": 1.0}}
DEADLINE = {
    "wait": {"name": "deadline", "seconds": 0.6},
    "compute": {"name": "uniform", "low_s": 0.5, "high_s": 2.0},
    "staleness": {"name": "decay", "max_age": 3},
}
LOSSY = {"latency": {"name": "exponential", "mean_s": 0.3}, "loss": {"name": "bernoulli", "probability": 0.1}}


def crash(**options: Any) -> dict[str, Any]:
    """Crash clients 1 and 2 during local training, when their last updates are deferred."""
    return {"name": "crash", "clients": [1, 2], "at_s": 2.1, **options}


RUNS: dict[str, dict[str, Any]] = {
    "synchronous": {"adversary": {"ids": [1], "attack": "min_max"}},
    "asynchronous": {"timing": DEADLINE, "network": LOSSY, "adversary": {"ids": [1], "attack": "mimic"}},
    "crash, kept": {"timing": DEADLINE, "network": LOSSY, "faults": [crash(recover_after_s=0.2)]},
    "crash, fresh": {
        "timing": DEADLINE,
        "network": LOSSY,
        "faults": [crash(recover_after_s=0.2, state="fresh")],
    },
    "crash, fresh, without catching up": {
        "timing": DEADLINE,
        "faults": [crash(recover_after_s=1.0, state="fresh", catch_up=False)],
    },
    "crash for good": {"timing": DEADLINE, "faults": [crash()]},
    "crash, fresh, and then leave": {
        "timing": DEADLINE,
        "faults": [
            crash(recover_after_s=0.05, state="fresh"),
            {"name": "leave", "clients": [1], "at_s": 2.2},
        ],
    },
    "changing graph": {
        "timing": DEADLINE,
        "network": LOSSY,
        "topology": {"name": "erdos_renyi", "p": 0.6},
        "faults": [
            {"name": "resample_topology", "every_s": 1.3},
            {"name": "leave", "clients": [4], "at_s": 3},
        ],
    },
    "out of time": {"timing": {**DEADLINE, "max_time_s": 4.2}},
}
METHODS = ["rdpfl", "anchored", "direct", "dpsgd"]


def run(executor: str, **changes: Any) -> Lived:
    return lived(Experiment(small_scenario(**{**EVERYTHING, **changes}, execution={"executor": executor})))


def records(state: Lived) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in state.folder.events.getvalue().splitlines()]


def identity(record: dict[str, Any]) -> tuple[Any, ...]:
    """Return the fields that identify a record."""
    return tuple(
        record.get(key) for key in ("event", "time_s", "client", "round", "message", "kind", "phase")
    )


def assert_close(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for key, value in one.items():
        if isinstance(value, float):
            assert other[key] == pytest.approx(value, rel=1e-3, abs=1e-5), (identity(one), key)
        elif key != "blake2b":
            assert other[key] == value, (identity(one), key)


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, 4], ids=["evaluated every round", "evaluated at the end"])
@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("name", RUNS)
def test_records_are_those_of_an_inline_run_up_to_rounding(name: str, method: Any, every: int) -> None:
    changes = {"method": method, "evaluation": {"every": every}, **RUNS[name]}
    inline, stacked = run("inline", **changes), run("stacked", **changes)
    for left, right in zip(records(inline), records(stacked), strict=True):
        assert identity(left) == identity(right)
        assert_close(left, right)
    for left, right in zip(inline.folder.metrics, stacked.folder.metrics, strict=True):
        assert_close(left, right)


def test_records_are_in_the_order_of_simulated_time() -> None:
    times = [record["time_s"] for record in records(run("stacked", **RUNS["asynchronous"]))]
    assert times == sorted(times)


def test_digest_does_not_depend_on_which_messages_are_recorded() -> None:
    some = RUNS["crash, fresh"]
    digests = {
        run("stacked", **some, output={"message_events": fraction}).result.summary["digest"]
        for fraction in (0.0, 0.5, 1.0)
    }
    assert len(digests) == 1


@pytest.mark.parametrize("name", ["crash, fresh", "changing graph"])
def test_interrupted_run_with_faults_has_the_same_traces(name: str) -> None:
    options = {**EVERYTHING, "evaluation": {"every": 4}, "method": "dpsgd", **RUNS[name]}
    experiment = Experiment(small_scenario(**options, execution={"executor": "stacked"}))
    uninterrupted = lived(experiment)
    assert lived(experiment, leave_after=lambda event: event % 7 == 0).traces == uninterrupted.traces
