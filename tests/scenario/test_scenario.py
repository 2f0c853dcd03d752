from pathlib import Path

import pytest

from rdpfl_sim.errors import ScenarioError
from rdpfl_sim.methods import METHODS
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.simulation.experiment import Experiment


def problems(raw: dict) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        Scenario.from_dict(raw)
    return [str(problem) for problem in caught.value.problems]


def write(folder: Path, text: str) -> Path:
    path = folder / "my_scenario.toml"
    path.write_text(text)
    return path


def test_empty_scenario_has_all_defaults() -> None:
    scenario = Scenario.from_dict({})
    assert scenario.method.name == "rdpfl"
    assert scenario.to_dict()["method"]["max_norm"] == 10.0
    assert scenario.to_dict()["timing"]["staleness"] == {"name": "keep", "max_age": 5}


def test_all_problems_are_listed_with_path_value_and_allowed_values() -> None:
    found = problems(
        {
            "rounds": 0,
            "sed": 3,
            "topology": {"name": "ringg"},
            "method": {
                "name": "rdpfl",
                "aggregator": {"name": "trimmed_mean", "trim": 2},
                "predictor": "bbb",
            },
            "network": {"loss": "bernoulli"},
            "training": {"learning_rate": "fast"},
        }
    )
    text = "\n".join(found)
    assert len(found) == 7
    assert "rounds: must be >= 1 (given: 0)" in found
    assert "sed: unknown key; did you mean 'seed'?" in text
    assert "topology: no topology is called 'ringg'; did you mean 'ring'?; allowed: complete, ring," in text
    assert "method.aggregator.trim: must be < 0.5" in text
    assert "method.predictor: must be 'bb', 'last' or 'none' (given: 'bbb')" in found
    assert "training.learning_rate: must be a valid number (given: 'fast')" in found
    assert "timing.wait: 'all' without timeout_s could wait forever" in text


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ({"clients": {"count": 3}, "adversary": {"ids": [3]}}, "adversary.ids"),
        ({"adversary": {"ids": [1, 1]}}, "adversary.ids"),
        ({"adversary": {"ids": [1], "fraction": 0.3}}, "adversary.ids"),
        ({"clients": {"count": 2}, "adversary": {"ids": [0, 1]}}, "adversary.ids"),
        ({"adversary": {"fraction": 1.0}}, "adversary.fraction"),
        ({"adversary": {"fraction": 0.05}}, "adversary.fraction"),
        ({"adversary": {"attack": "noise"}}, "adversary.attack"),
        ({"adversary": {"ids": [1], "placement": "spread"}}, "adversary.ids"),
        ({"clients": {"count": 100_000}, "topology": "complete"}, "topology"),
        ({"training": {"local_steps": 3, "local_epochs": 1}}, "training.local_steps"),
        ({"network": {"latency": {"name": "uniform", "low_s": 2.0, "high_s": 1.0}}}, "network.latency.low_s"),
        ({"timing": {"compute": {"name": "list", "seconds": [1.0]}}}, "timing.compute.seconds"),
        ({"timing": {"compute": {"name": "list"}}}, "timing.compute.seconds"),
        ({"timing": {"wait": {"name": "quorum", "fraction": 0.0}}}, "timing.wait.fraction"),
        ({"method": 3}, "method"),
        ({"method": {"name": "rdpfl", "lambda": float("nan")}}, "method.lambda"),
        ({"method": {"name": "rdpfl", "lambda_": 0.1}}, "method.lambda_"),
        ({"seed": -1}, "seed"),
        ({"seed": True}, "seed"),
        ({"name": "../escape"}, "name"),
        ({"clients": 10}, "clients"),
    ],
)
def test_impossible_combinations_are_rejected(raw: dict, path: str) -> None:
    assert [problem.partition(":")[0] for problem in problems(raw)] == [path]


@pytest.mark.parametrize("executor", ["processes", {"name": "processes", "workers": 2}])
def test_removed_executor_is_rejected_with_the_alternatives(executor: str | dict) -> None:
    [problem] = problems({"execution": {"executor": executor}})
    message = "the executor 'processes' was removed; use 'threads', 'stacked' or 'ray'"
    assert problem.startswith(f"execution.executor: {message} (given: ")


@pytest.mark.parametrize(
    "timing",
    [
        {"wait": "none"},
        {"wait": {"name": "deadline", "seconds": 2.0}},
        {"wait": {"name": "all", "timeout_s": 5.0}},
        {"wait": {"name": "quorum", "timeout_s": 5.0}},
    ],
)
def test_lossy_links_are_allowed_with_a_timeout(timing: dict) -> None:
    Scenario.from_dict({"network": {"loss": "bernoulli"}, "timing": timing})


def test_loss_with_probability_zero_needs_no_timeout() -> None:
    Scenario.from_dict({"network": {"loss": {"name": "bernoulli", "probability": 0.0}}})


def test_scenario_is_named_after_its_file_and_overrides_change_short_forms(tmp_path: Path) -> None:
    path = write(tmp_path, 'rounds = 3\n[method]\nname = "rdpfl"\naggregator = "trimmed_mean"\n')
    overrides = [
        "method.aggregator.trim=0.1",
        "timing.wait=none",
        "method.lambda=0.2",
        "network.loss.name=bernoulli",
    ]
    scenario = Scenario.load(path, overrides, seed=42)
    assert scenario.name == "my_scenario"
    assert scenario.seed == 42
    assert scenario.to_dict()["method"]["aggregator"] == {"name": "trimmed_mean", "trim": 0.1}
    assert scenario.to_dict()["method"]["lambda"] == 0.2
    assert scenario.timing.wait.name == "none"


@pytest.mark.parametrize("override", ["seed", "=3", "a..b=3", "rounds.x=3"])
def test_malformed_override_is_rejected(tmp_path: Path, override: str) -> None:
    with pytest.raises(ScenarioError):
        Scenario.load(write(tmp_path, "rounds = 3"), [override])


@pytest.mark.parametrize("content", ["rounds = ", b"\xff\xfe"])
def test_invalid_toml_is_rejected(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "broken.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ScenarioError, match="is not valid TOML"):
        Scenario.load(path)


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="cannot be read: No such file"):
        Scenario.load(tmp_path / "nowhere.toml")


def test_resolved_scenario_can_be_read_back_unchanged() -> None:
    scenario = Scenario.from_dict({"adversary": {"attack": {"name": "noise", "sigma": 3}, "fraction": 0.2}})
    assert Scenario.from_dict(scenario.to_dict()) == scenario


def test_schema_offers_every_component_by_name_and_by_table() -> None:
    schema = Scenario.model_json_schema()
    offered = schema["properties"]["method"]["anyOf"]
    assert {"enum": list(METHODS), "type": "string"} in offered
    rdpfl = schema["$defs"]["rdpfl_options"]["properties"]
    assert rdpfl["threshold"]["enum"] == ["lagged", "current"]
    assert rdpfl["lambda"]["minimum"] == 0
    assert "median" in rdpfl["aggregator"]["anyOf"][0]["enum"]


def test_table_without_a_name_is_the_default_component() -> None:
    scenario = Scenario.from_dict({"method": {"lambda": 0.7}, "network": {"latency": {"seconds": 0.5}}})
    assert (scenario.method.name, scenario.network.latency.name) == ("rdpfl", "constant")
    assert problems({"method": {"lamda": 1}})[0].startswith(
        "method.lamda: unknown key; did you mean 'lambda'?"
    )


def test_problem_of_a_choice_between_plain_values_is_listed_once() -> None:
    [problem] = problems({"method": {"name": "rdpfl", "step": "locl"}})
    assert problem.startswith("method.step: must be 'local' or must be a valid number")


@pytest.mark.parametrize("raw", [{"seed": 10**20}, {"method": {"lambda": 1e300}}])
def test_numbers_that_are_too_large_are_rejected(raw: dict) -> None:
    assert len(problems(raw)) == 1


@pytest.mark.parametrize(
    ("raw", "path", "words"),
    [
        ({"faults": {"name": "leave"}}, "faults", "[[double brackets]]"),
        (
            {"adversary": {"timing": "silent"}, "timing": {"wait": "none"}},
            "adversary.timing",
            "no attackers configured",
        ),
        ({"adversary": [{"ids": [1]}, {"ids": "0..1"}]}, "adversary[1].ids", "two groups"),
        ({"network": {"links": [{"from": [0], "to": [1]}]}}, "network.links[0]", "has no effect"),
        (
            {"network": {"links": [{"from": [0], "to": [1], "loss": "bernoulli"}]}},
            "timing.wait",
            "network.links[0].loss is 'bernoulli'",
        ),
        ({"faults": [{"name": "leave", "clients": [1], "at_s": 1.0}]}, "timing.wait", "faults[0] is 'leave'"),
        (
            {"adversary": {"ids": [1], "equivocation": {"name": "scaled", "low": 2.0}}},
            "adversary.equivocation.low",
            "must be at most high = 1.5",
        ),
        (
            {
                "adversary": {"ids": [1], "timing": {"name": "selective", "victims": [2], "fraction": 0.5}},
                "timing": {"wait": "none"},
            },
            "adversary.timing.victims",
            "not both",
        ),
        (
            {"adversary": {"ids": [1], "timing": "just_in_time"}, "timing": {"wait": "none"}},
            "adversary.timing",
            "deadline",
        ),
        (
            {"adversary": {"ids": [1], "schedule": {"name": "window", "from_round": 5, "until_round": 4}}},
            "adversary.schedule.until_round",
            "must be after from_round = 5",
        ),
    ],
)
def test_problem_with_networks_faults_and_adversaries_has_its_path(raw, path: str, words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        Scenario.from_dict(raw)
    assert [problem.path for problem in caught.value.problems] == [path]
    assert words in caught.value.problems[0].message


def test_override_can_change_entries_of_lists(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        """
        [[faults]]
        name = "leave"
        clients = [1]
        at_s = 3.0
        [timing]
        wait = "none"
        """
    )
    scenario = Scenario.load(path, ["faults[0].at_s=5.0"])
    assert scenario.faults[0].at_s == 5.0
    with pytest.raises(ScenarioError, match=r"faults: has no entry \[1\]"):
        Scenario.load(path, ["faults[1].at_s=5.0"])


def test_schema_allows_one_group_of_attackers_or_several() -> None:
    adversary = Scenario.model_json_schema()["properties"]["adversary"]
    assert {option.get("type", "table") for option in adversary["anyOf"]} == {"table", "array"}


def test_invalid_option_of_a_nested_topology_is_reported_with_its_value() -> None:
    fault = {"name": "change_topology", "at_s": 1.0, "topology": {"name": "k_regular", "k": 99}}
    with pytest.raises(ScenarioError) as caught:
        Experiment(Scenario.from_dict({"faults": [fault], "timing": {"wait": "none"}}))
    assert str(caught.value.problems[0]).startswith("faults[0].topology.k: ")
    assert "(given: 99)" in str(caught.value.problems[0])
