"""Examples that are held out for validation: their number, their use, and what they do not change."""

from __future__ import annotations

from itertools import combinations
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rdpfl_sim import Run, Scenario, ScenarioError, simulate
from rdpfl_sim.cli.main import main
from rdpfl_sim.errors import OptionError
from rdpfl_sim.learning.evaluation import evaluate
from rdpfl_sim.learning.partition import Indices, split_validation
from rdpfl_sim.randomness import Streams
from rdpfl_sim.results.compare import find_runs, group_runs
from rdpfl_sim.simulation.experiment import Experiment
from tests.support import small_scenario
from tests.verification.changed_runs import index, read, violated, write


def stream(client: int) -> np.random.Generator:
    return Streams(1).generator("validation", client)


def split(sizes: list[int], fraction: float) -> tuple[list[Indices], list[Indices]]:
    ends = np.cumsum(sizes)
    return split_validation(np.split(np.arange(ends[-1]), ends[:-1]), fraction, stream)


@pytest.mark.parametrize(
    ("fraction", "sizes", "expected"),
    [
        (0.2, [10, 11, 4, 2], [2, 3, 1, 1]),
        (0.07, [100, 101], [7, 8]),  # 0.07 * 100 is above 7 in floating point
        (1e-12, [10, 2], [1, 1]),
        (0.5, [2, 3, 7], [1, 2, 4]),
        (0.9, [100, 11], [90, 10]),
    ],
)
def test_number_is_rounded_up_and_at_least_one(
    fraction: float, sizes: list[int], expected: list[int]
) -> None:
    training, validation = split(sizes, fraction)
    assert [len(part) for part in validation] == expected
    assert [len(part) for part in training] == [n - k for n, k in zip(sizes, expected, strict=True)]
    for train, held_out, n in zip(training, validation, sizes, strict=True):
        first = min(train[0], held_out[0])
        assert sorted([*train, *held_out]) == list(range(first, first + n))
        assert list(train) == sorted(train)
        assert list(held_out) == sorted(held_out)


@pytest.mark.parametrize(("fraction", "size"), [(0.1, 1), (0.9, 2), (0.95, 10), (0.999, 999)])
def test_client_without_training_examples_is_rejected(fraction: float, size: int) -> None:
    examples = "example" if size == 1 else "examples"
    with pytest.raises(OptionError) as error:
        split([2000, size], fraction)
    assert error.value.option == "validation_fraction"
    assert error.value.message == f"leaves none for training: client 1 has {size} {examples}"


def test_every_pair_of_examples_is_drawn_and_clients_draw_independently() -> None:
    shards = [np.arange(5)] * 400
    _, validation = split_validation(shards, 0.4, stream)
    found = {tuple(part) for part in validation}
    assert found == set(combinations(range(5), 2))
    again = split_validation(shards[:3], 0.4, stream)[1]
    assert all(map(np.array_equal, again, validation)), "a client's draw does not depend on the others"


def validated(fraction: float = 0.2, **changes: Any) -> Scenario:
    return small_scenario(evaluation={"every": 2, "validation_fraction": fraction}, **changes)


def test_mistake_is_reported_before_time_zero_together_with_others() -> None:
    partition = {"name": "iid", "min_samples": 1}
    data = {"name": "synthetic", "shape": [8], "num_classes": 3, "num_train": 6, "num_test": 60}
    with pytest.raises(ScenarioError) as error:
        Experiment(validated(data=data, partition=partition, method={"name": "fedper", "head_layers": 9}))
    assert error.value.problems[0].path == "evaluation.validation_fraction"
    assert "client 0 has 1 example" in error.value.problems[0].message
    assert len(error.value.problems) == 2
    for fraction in (-0.1, 1.0, "20%"):
        with pytest.raises(ScenarioError, match=r"^evaluation\.validation_fraction: must be"):
            validated(fraction)  # type: ignore[arg-type]


def test_split_changes_neither_partition_nor_personal_test_sets() -> None:
    whole, part = Experiment(small_scenario()), Experiment(validated())
    for client in range(6):
        shard = whole.train_shards[client].indices
        train, held_out = part.train_shards[client], part.training_data.validation[client]
        assert len(held_out) == ceil(0.2 * len(shard) - 1e-9)
        assert torch.equal(torch.cat([train.indices, held_out.indices]).sort().values, shard)
        assert torch.equal(whole.personal_tests[client].indices, part.personal_tests[client].indices)
    assert whole.training_data.validation == []


def test_number_of_steps_counts_what_remains() -> None:
    scenario = validated(training={"batch_size": 1, "local_epochs": 2}, timing={"compute_per": "step"})
    experiment = Experiment(scenario)
    steps = [2 * len(shard) for shard in experiment.train_shards]
    assert steps != [2 * len(shard) for shard in Experiment(small_scenario()).train_shards]
    assert [experiment.computation.training_data.settings.num_steps(s // 2) for s in steps] == steps
    assert list(experiment.compute_times.base_s) == [float(num) for num in steps]


def test_training_does_not_see_the_validation_examples() -> None:
    # Examples held out are made useless: the models stay the same.
    experiment, changed = Experiment(validated()), Experiment(validated())
    for held_out in changed.training_data.validation:
        held_out.x[held_out.indices] = torch.nan
    ours, theirs = simulate(experiment), simulate(changed)
    assert all(map(torch.equal, ours.models.vectors, theirs.models.vectors))


@pytest.mark.parametrize("method", ["ubar", "bristle", "kd_pdfl", "dispfl"])
def test_tests_of_methods_on_own_batches_do_not_see_them(method: str) -> None:
    changed = Experiment(validated(method=method))
    for held_out in changed.training_data.validation:
        held_out.x[held_out.indices] = torch.nan
    ours, theirs = simulate(validated(method=method)), simulate(changed)
    assert all(map(torch.equal, ours.models.vectors, theirs.models.vectors))


def test_byzantine_clients_have_validation_examples_with_true_labels() -> None:
    experiment = Experiment(validated(adversary={"ids": [2], "attack": "label_flip"}))
    data = experiment.training_data
    held_out, poisoned = data.validation[2], data.poisoned[2]
    assert torch.equal(held_out.y, experiment.train_shards[2].y)
    assert not set(held_out.indices.tolist()) & set(poisoned.indices.tolist())
    rows = [row for row in simulate(experiment).metrics if row["client"] == 2]
    assert all(row["trained_validation_accuracy"] is not None for row in rows)
    assert all(row["updated_validation_accuracy"] is not None for row in rows)


@pytest.mark.parametrize("executor", ["inline", "stacked", "threads"])
def test_scores_are_those_of_one_evaluation_per_client(tmp_path: Path, executor: str) -> None:
    experiment = Experiment(validated(execution={"executor": executor}))
    result = simulate(experiment, tmp_path)
    assert result.folder is not None
    latest = Run(result.folder).latest
    for client, w in enumerate(result.models.vectors):
        scores = evaluate(experiment.model, w, experiment.training_data.validation[client])
        row = latest.row(client, named=True)
        assert row["validation_accuracy"] == scores.accuracy
        assert row["validation_loss"] == pytest.approx(scores.loss, rel=1e-5)
    mean = float(np.mean(latest["validation_accuracy"].to_numpy()))
    assert result.summary["accuracy"]["honest"]["validation"]["mean"] == pytest.approx(mean)


def test_inline_and_threads_write_the_same_records(tmp_path: Path) -> None:
    digests = {
        simulate(validated(execution={"executor": executor})).summary["digest"]
        for executor in ("inline", "threads")
    }
    assert len(digests) == 1


def test_zero_changes_no_record_and_leaves_the_columns_empty(tmp_path: Path) -> None:
    folder = simulate(small_scenario(), tmp_path).folder
    assert folder is not None
    assert b"validation" not in (folder / "events.jsonl").read_bytes()
    run = Run(folder)
    for moment in ("trained", "updated"):
        assert run.metrics[f"{moment}_validation_accuracy"].null_count() == run.metrics.height
    assert "validation" not in run.summary["accuracy"]["honest"]


def test_compare_reads_the_validation_accuracy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for method in ("rdpfl", "local"):
        for seed in (1, 2):
            simulate(validated(method=method, name=method, seed=seed), tmp_path)
    metric = "accuracy.honest.validation.mean"
    assert main(["compare", str(tmp_path), "--metric", metric]) == 0
    [row] = [line.split() for line in capsys.readouterr().out.splitlines() if metric in line]
    found = [
        [run.value(metric) for run in group.runs.values()] for group in group_runs(find_runs([tmp_path]))
    ]
    means = [sum(value or 0.0 for value in values) / 2 for values in found]
    assert row[1:3] == [f"{mean:.4f}" for mean in means]


def test_verify_reports_missing_and_unexpected_scores(tmp_path: Path) -> None:
    folder = simulate(validated(), tmp_path / "with").folder
    other = simulate(small_scenario(), tmp_path / "without").folder
    assert folder is not None
    assert other is not None
    assert violated(folder) == violated(other) == {}
    records = read(folder)
    del records[index(records, "evaluated")]["trained_validation_loss"]
    write(folder, records)
    assert "has the validation scores ['trained_validation_" in str(violated(folder)["evaluations"].first)
    records = read(other)
    records[index(records, "evaluated")] |= {"trained_validation_accuracy": 0.5}
    write(other, records)
    assert "evaluations" in violated(other)
