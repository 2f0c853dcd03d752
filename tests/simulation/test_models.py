"""Saved models: what a run leaves behind, what `load_model` returns, and runs that start from a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rdpfl_sim import Run, Scenario, ScenarioError, load_model, resume, simulate
from rdpfl_sim.errors import OptionError, RunError
from rdpfl_sim.learning.evaluation import evaluate
from rdpfl_sim.learning.models import FlatModel
from rdpfl_sim.plugins import Count, model
from rdpfl_sim.records.files import MODELS_FILE
from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.simulation.models import Architecture, BestModels, check_size, vector_of, weights_of
from rdpfl_sim.simulation.safetensors import TensorFile, header, numbers
from rdpfl_sim.simulation.simulation import Result
from rdpfl_sim.verification.replay import replay
from tests.registries import temporary_components
from tests.runs import interrupt, left, lived
from tests.simulation.test_snapshot import SMALL, assert_same
from tests.support import cheap, small_scenario
from tests.verification.changed_runs import violated

VALIDATED = {"every": 1, "validation_fraction": 0.2}
IMAGES = {"name": "synthetic", "shape": [2, 4, 4], "num_classes": 3, "num_train": 300, "num_test": 60}
CNN = {"data": IMAGES, "model": {"name": "cnn", "width": 2, "hidden": 3}}


def saving(models: str, **changes: Any) -> Scenario:
    output = {"models": models, "figures": False}
    return small_scenario(**{"evaluation": VALIDATED, "output": output, **changes})


def folder_of(result: Result) -> Path:
    assert result.folder is not None
    return result.folder


def parameters(module: nn.Module) -> list[Tensor]:
    return [p.detach() for p in module.parameters()]


def same(one: nn.Module, other: nn.Module) -> bool:
    names = [name for name, _ in one.named_parameters()]
    assert names == [name for name, _ in other.named_parameters()]
    return all(map(torch.equal, parameters(one), parameters(other)))


def tensors_of(path: Path) -> dict[str, Tensor]:
    with path.open("rb") as opened:
        file = TensorFile(opened)
        return {name: file.read(name) for name in file.entries}


def write(path: Path, tensors: Mapping[str, Tensor]) -> str:
    beginning = header([(name, t.dtype, t.shape) for name, t in tensors.items()])
    path.write_bytes(beginning + b"".join(map(numbers, tensors.values())))
    return str(path)


def test_run_keeps_no_models_by_default(tmp_path: Path) -> None:
    folder = folder_of(simulate(small_scenario(), tmp_path))
    assert not (folder / MODELS_FILE).exists()
    with pytest.raises(RunError, match=r"no saved models: output\.models is 'none'.*; allowed: final, best$"):
        load_model(folder, 0)


@pytest.mark.parametrize("changes", [{}, CNN], ids=["softmax", "cnn"])
def test_final_models_are_those_of_the_last_evaluation(tmp_path: Path, changes: dict[str, Any]) -> None:
    experiment = Experiment(saving("final", **changes))
    result = simulate(experiment, tmp_path)
    run = Run(folder_of(result))
    assert len(result.models) == 6
    for client, row in enumerate(run.latest.iter_rows(named=True)):
        loaded = load_model(run, client)
        assert same(loaded, result.models[client])
        assert not loaded.training
        test = experiment.personal_tests[client]
        logits = loaded(test.x[test.indices])  # in torch's own layout
        correct = (logits.argmax(dim=1) == test.y[test.indices]).float().mean().item()
        assert correct == pytest.approx(row["personal_accuracy"])
        assert experiment.model.shapes == {name: p.shape for name, p in loaded.named_parameters()}


@pytest.mark.parametrize(("precision", "channels_last"), [("float32", True), ("bfloat16", False)])
def test_saved_models_are_read_in_the_layout_of_the_training(precision: str, channels_last: bool) -> None:
    model = {"name": "resnet", "width": 2}
    scenario = saving("final", data=IMAGES, model=model, training={"precision": precision})
    assert Architecture.of(scenario, (2, 4, 4), 3).flat().channels_last == channels_last


def test_models_with_one_moment_are_those_of_this_moment(tmp_path: Path) -> None:
    results = {
        moments: simulate(saving("final", evaluation={**VALIDATED, "moments": moments}), tmp_path / moments)
        for moments in ("both", "trained", "updated")
    }
    both, trained, updated = results.values()
    assert all(map(torch.equal, both.models.vectors, trained.models.vectors))
    assert not any(map(torch.equal, both.models.vectors, updated.models.vectors))
    for moment, result in results.items():
        assert violated(folder_of(result)) == {}, moment


def test_file_has_the_models_of_all_clients_in_the_format_of_safetensors(tmp_path: Path) -> None:
    path = folder_of(simulate(saving("final", **CNN), tmp_path)) / MODELS_FILE
    content = path.read_bytes()
    table = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert table.pop("__metadata__") == {"shape": "[2,4,4]", "num_classes": "3"}
    assert table["0.0.weight"] == {"dtype": "F32", "shape": [2, 2, 3, 3], "data_offsets": [0, 144]}
    names = [name for name, _ in Experiment(saving("final", **CNN)).architecture.module().named_parameters()]
    assert [*table] == [f"{client}.{name}" for client in range(6) for name in names]


def test_saved_models_do_not_change_the_digest_and_are_the_same_in_memory(tmp_path: Path) -> None:
    results = [simulate(saving(models)) for models in ("none", "final", "best")]
    assert len({result.summary["digest"] for result in results}) == 1
    none, final, best = (result.models for result in results)
    assert all(map(torch.equal, none.vectors, final.vectors))
    assert not all(map(torch.equal, none.vectors, best.vectors))


def test_best_model_is_the_earliest_with_the_highest_validation_accuracy(tmp_path: Path) -> None:
    # With a high rate, accuracies rise and fall; with few examples, many are equal.
    experiment = Experiment(saving("best", rounds=6, training={"learning_rate": 2.0, "batch_size": 8}))
    result = simulate(experiment, tmp_path)
    by_client: dict[int, list[tuple[int, float]]] = {}
    for row in result.metrics:
        assert row["trained_validation_accuracy"] is not None
        by_client.setdefault(row["client"], []).append((row["round"], row["trained_validation_accuracy"]))
    chosen = set()
    for client, found in by_client.items():
        best = max(accuracy for _, accuracy in found)
        round_ = next(round_ for round_, accuracy in found if accuracy == best)
        chosen.add(round_)
        w = result.models.vectors[client]
        assert evaluate(experiment.model, w, experiment.training_data.validation[client]).accuracy == best
        [row] = [each for each in result.metrics if (each["client"], each["round"]) == (client, round_)]
        scores = evaluate(experiment.model, w, experiment.personal_tests[client])
        assert scores.accuracy == row["trained_personal_accuracy"]
        assert scores.loss == pytest.approx(row["trained_personal_loss"], rel=1e-5)  # of one model at a time
    assert len(chosen) > 1, "the example is of no interest"


def test_ties_keep_the_earlier_model_and_a_model_that_has_diverged_is_not_kept() -> None:
    best = BestModels()
    for accuracy, value in ((0.0, 1.0), (0.5, 2.0), (0.5, 3.0), (0.9, torch.nan), (0.4, 4.0)):
        best.observe(7, accuracy, torch.tensor([value]))
    assert (best.accuracies, best.models[7].item()) == ({7: 0.5}, 2.0)


def test_a_kept_model_does_not_keep_its_batch_in_memory() -> None:
    best, batch = BestModels(), torch.zeros(1000, 10)
    best.observe(0, 0.5, batch[0])
    assert best.models[0].untyped_storage().nbytes() == 40


@pytest.mark.parametrize("name", SMALL)
def test_run_restored_after_every_event_has_the_same_best_models(name: str) -> None:
    changes = {**SMALL[name], "rounds": 3, "evaluation": {**VALIDATED, "consensus": True}}
    experiment = cheap(saving("best", **changes))
    once = lived(experiment)
    assert once.folder.models
    assert_same(once, lived(experiment, leave_after=lambda event: True))


@pytest.mark.parametrize("models", ["final", "best"])
def test_resumed_run_leaves_the_same_models(tmp_path: Path, models: str) -> None:
    scenario = saving(models, checkpoint={"every_rounds": 1}, rounds=6, training={"learning_rate": 1.0})
    whole = folder_of(simulate(scenario, tmp_path / "whole"))
    folder = left(scenario, tmp_path / "left", 15, interrupt)
    assert not (folder / MODELS_FILE).exists()
    with pytest.raises(RunError, match="no saved models: the run is not complete"):
        load_model(folder, 0)
    resume(folder)
    assert (folder / MODELS_FILE).read_bytes() == (whole / MODELS_FILE).read_bytes()


def test_partial_file_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    scenario = saving("final", checkpoint={"every_rounds": 1})
    folder = left(scenario, tmp_path, 9, interrupt)
    partial = folder / f".{MODELS_FILE}.0123.partial"
    partial.write_bytes(b"half")
    resume(folder)
    assert not partial.exists()
    assert (folder / MODELS_FILE).exists()


def test_best_models_need_a_validation_split() -> None:
    with pytest.raises(ScenarioError, match=r"^output\.models: requires evaluation\.validation_fraction"):
        saving("best", evaluation={"every": 1})


@pytest.mark.parametrize("client", [-1, 6, True, "0"])
def test_unknown_client_is_one_sentence(tmp_path: Path, client: Any) -> None:
    folder = folder_of(simulate(saving("final"), tmp_path))
    with pytest.raises(RunError, match=r"has no client .*; allowed: 0 to 5$"):
        load_model(folder, client)


CHANGES: dict[str, tuple[Any, str]] = {
    "missing": (lambda t: t.pop("3.1.bias"), "has no parameter '3.1.bias'"),
    "unknown": (lambda t: t.update({"3.2.bias": torch.ones(3)}), "has '3.2.bias', which is not a parameter"),
    "shape": (lambda t: t.update({"3.1.weight": torch.ones(8, 3)}), "shape [8, 3], not [3, 8]"),
    "type": (lambda t: t.update({"3.1.weight": torch.ones(3, 8).half()}), "of type torch.float16"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changed_file_is_rejected_by_load_model_and_verify(tmp_path: Path, name: str) -> None:
    folder = folder_of(simulate(saving("final"), tmp_path))
    change, words = CHANGES[name]
    path = folder / MODELS_FILE
    with path.open("rb") as file:
        metadata = TensorFile(file).metadata
    tensors = tensors_of(path)
    change(tensors)
    beginning = header([(key, t.dtype, t.shape) for key, t in tensors.items()], metadata)
    path.write_bytes(beginning + b"".join(map(numbers, tensors.values())))
    with pytest.raises(RunError) as error:
        load_model(folder, 3)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert words in str(violated(folder)["models"].first)


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({}, "has no metadata with shape"),
        ({"shape": "[8", "num_classes": "3"}, "has no metadata with shape"),
        ({"shape": "[-8]", "num_classes": "3"}, "has invalid metadata"),
        ({"shape": "[8]", "num_classes": "1000000000"}, "has no parameter for 1000000000 classes"),
        ({"shape": "[9]", "num_classes": "3"}, "shape [3, 8], not [3, 9]"),
        ({"shape": "[4000000000000]", "num_classes": "3"}, "does not fit the model"),
    ],
)
def test_wrong_metadata_is_rejected(tmp_path: Path, metadata: dict[str, str], words: str) -> None:
    folder = folder_of(simulate(saving("final"), tmp_path))
    tensors = tensors_of(folder / MODELS_FILE)
    beginning = header([(key, t.dtype, t.shape) for key, t in tensors.items()], metadata)
    (folder / MODELS_FILE).write_bytes(beginning + b"".join(map(numbers, tensors.values())))
    with pytest.raises(RunError) as error:
        load_model(folder, 3)
    assert words in str(error.value)
    assert "models" in violated(folder)


def test_file_is_not_followed_if_it_is_a_link(tmp_path: Path) -> None:
    folder = folder_of(simulate(saving("final"), tmp_path))
    (folder / MODELS_FILE).rename(tmp_path / "elsewhere")
    (folder / MODELS_FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="symbolic link"):
        load_model(folder, 0)


@pytest.mark.parametrize("models", ["final", "best"])
def test_verify_accepts_saved_models_and_a_replay_has_the_same(tmp_path: Path, models: str) -> None:
    folder = folder_of(simulate(saving(models, **CNN), tmp_path))
    assert violated(folder) == {}
    assert replay(folder).first is None


def test_verify_reports_a_changed_weight_and_a_missing_or_additional_file(tmp_path: Path) -> None:
    folder = folder_of(simulate(saving("final", **CNN), tmp_path))
    path = folder / MODELS_FILE
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    assert "the model of client 5 has the hash" in str(violated(folder)["models"].first)
    assert replay(folder).first == f"{MODELS_FILE} differs"
    path.unlink()
    assert "no saved models" in str(violated(folder)["models"].first)
    assert replay(folder).first == f"{MODELS_FILE} is missing"
    other = folder_of(simulate(small_scenario(), tmp_path))
    (other / MODELS_FILE).write_bytes(content)
    assert violated(other)["models"].first == f"there is a {MODELS_FILE}, but output.models is none"


def test_verify_reports_a_best_model_that_is_not_finite(tmp_path: Path) -> None:
    path = folder_of(simulate(saving("best"), tmp_path)) / MODELS_FILE
    content = bytearray(path.read_bytes())
    content[-4:] = b"\x00\x00\x80\x7f"  # infinity
    path.write_bytes(content)
    assert violated(path.parent)["models"].first == "the best model of client 5 is not finite"


def test_weights_and_vector_are_inverse_for_every_layout() -> None:
    model = FlatModel(lambda: nn.Sequential(nn.Conv2d(2, 3, 2), nn.Flatten(), nn.Linear(3, 2)))
    w = torch.randn(model.num_parameters)
    weights = weights_of(model, w)
    assert [*weights] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert all(tensor.is_contiguous() for tensor in weights.values())
    assert torch.equal(vector_of(model, weights), w)
    model.load(torch.zeros_like(w))
    assert torch.equal(weights["2.bias"], w[-2:]), "the weights do not share memory with the model"


def test_file_that_would_be_too_large_to_read_is_rejected_before_time_zero() -> None:
    model = FlatModel(lambda: nn.Linear(2, 2))
    check_size(model, 100_000)
    with pytest.raises(OptionError) as error:
        check_size(model, 1_000_000)
    assert error.value.message == "one file cannot have the models of 1,000,000 clients"


# Initial weights


def started_from(path: str, **changes: Any) -> Experiment:
    model = changes.pop("model", "softmax")
    named = {"name": model} if isinstance(model, str) else model
    return Experiment(small_scenario(**{"model": {**named, "weights": path}, **changes}))


def test_all_clients_start_from_one_model(tmp_path: Path) -> None:
    weights = {"1.weight": torch.randn(3, 8), "1.bias": torch.randn(3)}
    experiment = started_from(write(tmp_path / "w", dict(reversed(weights.items()))))
    expected = torch.cat([weights["1.weight"].flatten(), weights["1.bias"]])
    for client in range(6):
        assert torch.equal(experiment.initial_state(client).w[0], expected)
    assert experiment.initial_state(0).w.data_ptr() == experiment.initial_state(5).w.data_ptr()


@pytest.mark.parametrize("changes", [{}, CNN], ids=["softmax", "cnn"])
def test_every_client_starts_from_its_own_model_of_a_run(tmp_path: Path, changes: dict[str, Any]) -> None:
    before = simulate(saving("final", **changes), tmp_path)
    path = str(folder_of(before) / MODELS_FILE)
    experiment = started_from(path, **changes)
    for client, w in enumerate(before.models.vectors):
        assert torch.equal(experiment.initial_state(client).w[0], w)
    after = simulate(experiment, tmp_path)
    end = {row["client"]: row["trained_personal_loss"] for row in before.metrics}
    assert {row["client"]: row["trained_personal_loss"] for row in after.metrics if row["round"] == 0} == end
    assert replay(folder_of(after)).first is None


def test_restarted_client_gets_the_initial_weights_again(tmp_path: Path) -> None:
    path = write(tmp_path / "w", {"1.weight": torch.ones(3, 8), "1.bias": torch.ones(3)})
    fault = {"name": "crash", "clients": [0], "at_s": 1.5, "recover_after_s": 1.0, "state": "fresh"}
    changes = {"faults": [fault], "timing": {"wait": {"name": "all", "timeout_s": 2.0}}, "rounds": 3}
    experiment = started_from(path, **changes)
    once = lived(experiment)
    (tmp_path / "w").unlink()  # the weights are in memory
    assert_same(once, lived(experiment, leave_after=lambda event: True))


def test_model_of_a_plug_in_starts_from_a_file_and_is_saved(tmp_path: Path) -> None:
    with temporary_components():

        @model
        def layered(shape: Sequence[int], num_classes: int, *, depth: Count = 1) -> nn.Module:
            hidden = [nn.Linear(shape[0], shape[0]) for _ in range(depth)]
            return nn.Sequential(*hidden, nn.Linear(shape[0], num_classes))

        weights = {name: p.detach() for name, p in layered([8], 3, depth=2).named_parameters()}
        path = write(tmp_path / "w", weights)
        experiment = started_from(path, model={"name": "layered", "depth": 2}, output={"models": "final"})
        expected = torch.cat([p.flatten() for p in weights.values()])
        assert torch.equal(experiment.initial_state(3).w[0], expected)
        result = simulate(experiment, tmp_path)
        assert same(load_model(folder_of(result), 3), result.models[3])


def test_option_of_a_plug_in_must_not_be_called_weights() -> None:
    with temporary_components():

        @model
        def weighted(shape: Sequence[int], num_classes: int, *, weights: Count = 1) -> nn.Module:
            raise AssertionError

        with pytest.raises(ScenarioError, match="has an option 'weights' that must have a different name"):
            small_scenario(model="weighted")


GOOD = {"1.weight": torch.ones(3, 8), "1.bias": torch.ones(3)}
BAD: dict[str, tuple[dict[str, Tensor], str]] = {
    "no parameter": ({"1.weight": GOOD["1.weight"]}, "has no parameter '1.bias'"),
    "another": (GOOD | {"2.bias": torch.ones(3)}, "has '2.bias', which is not a parameter of the model"),
    "shape": (GOOD | {"1.bias": torch.ones(4)}, "has '1.bias' of shape [4], not [3]"),
    "type": (GOOD | {"1.bias": torch.ones(3).double()}, "has '1.bias' of type torch.float64"),
    "nan": (GOOD | {"1.bias": torch.tensor([1.0, torch.nan, 1.0])}, "has NaN or infinity in '1.bias'"),
    "inf": (GOOD | {"1.weight": torch.full((3, 8), torch.inf)}, "has NaN or infinity in '1.weight'"),
    "fewer clients": (
        {f"{client}.{name}": w for client in range(5) for name, w in GOOD.items()},
        "has models of 5 clients; the scenario has 6",
    ),
    "more clients": (
        {f"{client}.{name}": w for client in range(7) for name, w in GOOD.items()},
        "has models of 7 clients; the scenario has 6",
    ),
    "one client without bias": (
        {f"{c}.{name}": w for c in range(6) for name, w in GOOD.items() if (c, name) != (4, "1.bias")},
        "has no parameter '4.1.bias'",
    ),
    "empty": ({}, "has no parameter '1.weight'"),
}


@pytest.mark.parametrize("name", BAD)
def test_weights_that_do_not_fit_are_one_sentence_before_time_zero(tmp_path: Path, name: str) -> None:
    tensors, words = BAD[name]
    path = write(tmp_path / "w", tensors)
    with pytest.raises(ScenarioError) as error:
        started_from(path)
    [problem] = error.value.problems
    assert (problem.path, problem.value) == ("model.weights", path)
    assert words in problem.message


def test_file_that_is_missing_or_no_safetensors_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "pickle.pt").write_bytes(b"PK\x03\x04" + bytes(100))
    for name, words in (
        ("nowhere", "cannot be read: No such file"),
        (".", "cannot be read: Is a directory"),
        ("pickle.pt", "is not a safetensors file"),
    ):
        with pytest.raises(ScenarioError, match=f"^model.weights: {words}"):
            started_from(str(tmp_path / name))


def test_path_is_relative_to_the_scenario_file(tmp_path: Path) -> None:
    write(tmp_path / "start.safetensors", GOOD)
    text = 'model = { name = "softmax", weights = "start.safetensors" }\n'
    (tmp_path / "mine.toml").write_text(text)
    scenario = Scenario.load(tmp_path / "mine.toml")
    assert scenario.model.weights == str(tmp_path / "start.safetensors")
    assert scenario.to_dict()["model"]["weights"] == scenario.model.weights
    assert "weights" not in small_scenario().to_dict()["model"]


def test_different_starts_have_no_effect_with_weights() -> None:
    with pytest.raises(ScenarioError, match=r"^training\.start: has no effect: model\.weights"):
        small_scenario(model={"name": "mlp", "weights": "w"}, training={"start": "different"})


@pytest.mark.parametrize("executor", ["inline", "stacked", "threads"])
def test_every_executor_starts_from_the_weights(tmp_path: Path, executor: str) -> None:
    path = write(tmp_path / "w", GOOD)
    experiment = started_from(path, execution={"executor": executor}, evaluation=VALIDATED)
    first = [row for row in simulate(experiment).metrics if row["round"] == 0]
    assert all(row["trained_personal_loss"] == pytest.approx(torch.tensor(3.0).log().item()) for row in first)
