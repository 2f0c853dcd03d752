"""Every option of every component has an effect: some value changes the digest of a run.

The scenario of a kind has delays, losses, stragglers and attackers, so that most options matter in it.
Candidates for the value follow from the type of the option. `VALUES` has those of other options.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from rdpfl_sim import simulate
from rdpfl_sim.learning.models import MODELS
from rdpfl_sim.plugins import Positive, View, attack
from rdpfl_sim.scenario.component_list import KINDS
from tests.registries import temporary_components
from tests.support import small_scenario

pytestmark = pytest.mark.slow  # about 200 runs

LATE = {"wait": {"name": "deadline", "seconds": 1.2}, "staleness": "keep", "jitter": 0.3}
NETWORK = {
    "latency": {"name": "exponential", "mean_s": 0.4},
    "loss": {"name": "bernoulli", "probability": 0.3},
}
ATTACKED = {"fraction": 0.25, "attack": {"name": "noise", "sigma": 1.0}}
DIRECT = {"name": "direct", "lambda": 1.0}

NEEDED: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("topology", "file"): {"path": "links.edgelist"},
    ("data", "npz"): {"path": "images.npz", "layout": "NHWC"},
    ("method", "balance"): {"gamma": 2.0},
    ("attack_schedule", "intermittent"): {"rounds_on": 2, "rounds_off": 2},
    ("geography", "regions"): {"delays_s": [[0.0, 0.3], [0.6, 0.0]]},
    ("fault", "crash"): {"clients": [1], "at_s": 2.0, "recover_after_s": 3.0},
    ("fault", "random_crashes"): {"mean_time_to_fail_s": 4.0, "mean_time_to_recover_s": 3.0},
    ("fault", "late_join"): {"clients": [1], "at_s": 2.0},
    ("fault", "leave"): {"clients": [1], "at_s": 2.0},
    ("fault", "churn_trace"): {"path": "churn.csv"},
    ("fault", "link_outage"): {"links": [[0, 1]]},
    ("fault", "random_outages"): {"mean_time_to_fail_s": 4.0, "mean_time_to_heal_s": 3.0},
    ("fault", "partition"): {"sides": [[0, 1]]},
    ("fault", "random_partitions"): {"mean_time_to_fail_s": 4.0, "mean_time_to_heal_s": 3.0},
    ("fault", "slow_down"): {"clients": [1], "factor": 3.0},
    ("fault", "resample_topology"): {"every_s": 2.0},
    ("fault", "change_topology"): {"at_s": 2.0, "topology": "ring"},
    ("compute", "list"): {"seconds": [1.0] * 8},
    ("learning_rate_schedule", "step"): {"every": 2},
    ("wait", "all"): {"timeout_s": 2.0},
    ("wait", "quorum"): {"timeout_s": 2.0},
}
"""Options that a component needs, and those on which the effect of others depends."""

AGGREGATION: Mapping[str, Any] = {"pre_aggregators": ["nnm"], "step": 0.05}

VALUES: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("topology", "grid"): {"rows": 4},
    ("topology", "torus"): {"rows": 4},
    ("topology", "small_world"): {"k": 6},
    ("topology", "communities"): {"num": 3, "sizes": [4, 8]},
    ("topology", "file"): {"path": "others.edgelist", "format": "adjlist"},
    ("data", "synthetic"): {"shape": [10]},
    ("data", "npz"): {"path": "others.npz", "layout": "NCHW", "subset": 120, "subset_test": 40},
    ("model", "mlp"): {"hidden": [8]},
    ("model", "cnn"): {"width": 8, "hidden": 8},
    ("method", "rdpfl"): AGGREGATION,
    ("method", "anchored"): AGGREGATION,
    ("method", "direct"): AGGREGATION,
    ("method", "krum_gossip"): {"pre_aggregators": ["nnm"]},
    ("method", "balance"): {"gamma": 0.01, "kappa": 20.0},
    ("method", "clipped_gossip"): {"radius": 0.5},
    ("method", "fedper"): {"head_layers": 2},
    ("attack", "alie"): {"z": 1.0},
    ("attack", "mimic"): {"warmup": 1},
    ("timing_attack", "selective"): {"victims": "0..7"},
    ("attack_schedule", "window"): {"until_round": 3, "until_s": 3.0},
    ("attack_schedule", "sleeper"): {"messages": 5},
    ("geography", "regions"): {"delays_s": [[0.0, 0.1], [0.9, 0.0]], "members": [0, 0, 0, 0, 1, 1, 1, 1]},
    ("geography", "per_link"): {"low_s": 0.05},
    ("transport", "reliable"): {"max_attempts": 2},
    ("fault", "crash"): {"clients": [2], "fraction": {"clients": None, "fraction": 0.5}},
    ("fault", "random_crashes"): {"clients": [1]},
    ("fault", "late_join"): {"clients": [2], "fraction": {"clients": None, "fraction": 0.5}},
    ("fault", "leave"): {"clients": [2], "fraction": {"clients": None, "fraction": 0.5}},
    ("fault", "slow_down"): {
        "clients": [2],
        "fraction": {"clients": None, "fraction": 0.5},
        "until_s": 3.0,
    },
    ("fault", "churn_trace"): {"path": "others.csv"},
    ("fault", "link_outage"): {"links": [[1, 2]], "until_s": 3.0},
    ("fault", "partition"): {"sides": [[0, 1, 2]], "until_s": 3.0},
    ("fault", "change_topology"): {"topology": "star"},
    ("compute", "list"): {"seconds": [2.0] * 8},
    ("learning_rate_schedule", "constant"): {"warmup": 3},
    ("learning_rate_schedule", "step"): {"every": 1, "warmup": 3},
    ("learning_rate_schedule", "cosine"): {"warmup": 3},
    ("staleness", "keep"): {"max_age": 1},
    ("staleness", "decay"): {"max_age": 1},
    ("aggregator", "geometric_median"): {"iterations": 1},
    ("aggregator", "centred_clipping"): {"radius": 0.1},
    ("aggregator", "multi_krum"): {"keep": 0.2},
    ("aggregator", "mda"): {"max_subsets": 1},
    ("aggregator", "smea"): {"max_subsets": 1},
}
"""By component and option: the value, or a table with the value and other options that it needs."""

NOT_HERE = "the data set is not in the repository; tests/learning/datasets reads small files"
SPEED = "decides where jobs are computed, which must not change results; see tests/execution"
SMALL_SHARDS = "rejects a partition with smaller shards; see tests/learning/test_partition.py"

WEIGHTS = "needs a file that fits the model; see tests/simulation/test_models.py"

EXCEPTIONS: Mapping[tuple[str, str], str] = {
    **{(name, "weights"): WEIGHTS for name in MODELS},
    **{(name, "*"): NOT_HERE for name in ("cifar10", "cifar100", "mnist", "fashion_mnist")},
    **{(name, "*"): SPEED for name in ("ray", "threads", "auto")},
    **{(name, "min_samples"): SMALL_SHARDS for name in ("iid", "shards")},
}
"""Options without an effect on results, by component and option, and the reason. "*" is every option."""


def scenario_with(kind: str, component: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scenario that uses a component."""
    base: dict[str, Any] = {
        "rounds": 6,
        "clients": {"count": 8},
        "topology": "complete",
        "method": DIRECT,
        "network": NETWORK,
        "timing": LATE,
    }
    match kind:
        case "aggregator":
            return {**base, "clients": {"count": 12}, "method": {**DIRECT, "aggregator": component}}
        case "pre_aggregator":
            return {**base, "adversary": ATTACKED, "method": {**DIRECT, "pre_aggregators": [component]}}
        case "topology":
            return {**base, "clients": {"count": 12}, "topology": component}
        case "data":
            return {**base, "data": component, "partition": "iid"}
        case "model":
            image = {"name": "synthetic", "shape": [1, 8, 8], "num_train": 300, "num_test": 60}
            return {**base, "data": image, "model": component, "rounds": 2}
        case "attack" | "placement":
            training = {"learning_rate": 0.5, "batch_size": 4}
            attacked = {"topology": "small_world", "adversary": {**ATTACKED, kind: component}}
            return {**base, **attacked, "training": training}
        case "timing_attack" | "attack_schedule" | "equivocation":
            key = {"timing_attack": "timing", "attack_schedule": "schedule"}.get(kind, kind)
            return {**base, "adversary": {**ATTACKED, key: component}}
        case "latency" | "loss" | "geography" | "bandwidth" | "transport":
            return {**base, "network": {**NETWORK, kind: component}}
        case "compute" | "wait" | "staleness":
            network = {**NETWORK, "latency": {"name": "exponential", "mean_s": 2.0}}
            return {**base, "network": network, "timing": {**LATE, kind: component}}
        case "learning_rate_schedule":
            return {**base, "training": {"learning_rate": 0.5, "schedule": component}}
        case "fault":
            return {**base, "topology": "small_world", "faults": [component]}
        case "executor":
            return {**base, "execution": {"executor": component}}
        case "method":
            network = {**NETWORK, "loss": {"name": "bernoulli", "probability": 0.6}}
            model = {"name": "mlp", "hidden": [8, 8]}
            few = {"topology": "small_world", "network": network, "model": model, "rounds": 10}
            return {**base, **few, "adversary": ATTACKED, "method": component}
        case _:
            return {**base, kind: component}


@cache
def digest(kind: str, component: str) -> str:
    """Return the digest of a run with a component, which is given as JSON."""
    return str(simulate(small_scenario(**scenario_with(kind, json.loads(component)))).summary["digest"])


OPTIONS = [
    (kind, name, field.alias or key)
    for kind, choice in KINDS.items()
    for name in choice.registry
    for key, field in choice.table(name).model_fields.items()
    if key != "name"
]
TESTED = [each for each in OPTIONS if not {each[1:], (each[1], "*")} & EXCEPTIONS.keys()]


def candidates(kind: str, name: str, option: str, default: object) -> Iterator[Any]:
    """Yield values of an option that differ from its default."""
    facts = KINDS[kind].table(name).model_json_schema()["properties"][option]
    kinds = [facts, *facts.get("anyOf", [])]
    for each in kinds:
        yield from (value for value in each.get("enum", []) if value != default)
    if isinstance(default, bool):
        yield not default
    elif isinstance(default, int | float):
        whole = isinstance(default, int)
        yield from (default + 1, 2 * default) if whole else (0.5 * default, 2 * default, 0.9, 0.1)
        if whole and default > 1:
            yield default - 1


@pytest.fixture(scope="module", autouse=True)
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Write the files that some components read, and make their folder the current one."""
    folder: Path = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(1)
    y = np.arange(240) % 3
    x = rng.integers(0, 255, (240, 4, 4, 3)).astype(np.uint8)
    np.savez(folder / "images.npz", x_train=x[:160], y_train=y[:160], x_test=x[160:], y_test=y[160:])
    x[:160] = x[159::-1]
    np.savez(folder / "others.npz", x_train=x[:160], y_train=y[:160], x_test=x[160:], y_test=y[160:])
    links = "".join(f"{i} {(i + 1) % 12} {(i + 2) % 12}\n" for i in range(12))
    (folder / "links.edgelist").write_text(links)
    (folder / "others.edgelist").write_text("".join(f"0 {i}\n" for i in range(1, 12)))
    (folder / "churn.csv").write_text("time_s,client,state\n1,0,down\n4,0,up\n")
    (folder / "others.csv").write_text("time_s,client,state\n1,1,down\n4,1,up\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield


@pytest.mark.parametrize(("kind", "name", "option"), TESTED)
def test_option_has_an_effect(kind: str, name: str, option: str) -> None:
    needed = NEEDED.get((kind, name), {})
    given = VALUES.get((kind, name), {}).get(option)
    given = given if given is None or isinstance(given, dict) else {option: given}
    field = next(f for k, f in KINDS[kind].table(name).model_fields.items() if (f.alias or k) == option)
    default = needed.get(option, field.default)
    changes = [given] if given is not None else [{option: v} for v in candidates(kind, name, option, default)]
    before = digest(kind, json.dumps({"name": name, **needed}))
    assert any(digest(kind, json.dumps({"name": name, **needed, **change})) != before for change in changes)


def test_every_value_and_exception_belongs_to_an_option() -> None:
    assert {(kind, name, option) for (kind, name), values in VALUES.items() for option in values} <= {*TESTED}
    components = {(name, option) for _, name, option in OPTIONS}
    assert EXCEPTIONS.keys() <= components | {(name, "*") for name, _ in components}


def test_option_that_is_ignored_is_noticed() -> None:
    with temporary_components():

        @attack
        def deaf(view: View, *, strength: Positive = 1.0) -> Tensor:
            return -view.own

        with pytest.raises(AssertionError):
            test_option_has_an_effect("attack", "deaf", "strength")
