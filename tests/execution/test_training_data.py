"""Training jobs: model, momentum, mask and proximal term; batches of a client's own data."""

import torch

from rdpfl_sim.learning.training import train
from rdpfl_sim.methods.base import Trained, TrainingTask
from rdpfl_sim.simulation.experiment import Experiment
from tests.support import small_scenario

EXPERIMENT = Experiment(
    small_scenario(
        training={"momentum": 0.5, "weight_decay": 0.1, "batch_size": 8}, execution={"executor": "inline"}
    )
)
DATA = EXPERIMENT.training_data


def run(task: TrainingTask) -> Trained:
    """Train client 2 in round 3."""
    return DATA.train(EXPERIMENT.model, DATA.job(2, 3, task))


def trained(w: torch.Tensor, client: int = 2, round_: int = 3, momentum: float = 0.5, **options):
    shard = EXPERIMENT.train_shards[client]
    trained_w, _ = train(
        EXPERIMENT.model,
        w,
        shard,
        num_steps=-(-len(shard) // 8),
        batch_size=8,
        learning_rate=0.01,
        momentum=momentum,
        weight_decay=0.1,
        seed=EXPERIMENT.streams.key("training", client, round_),
        **options,
    )
    return trained_w[None]


def test_momentum_is_that_of_the_task_or_of_the_scenario() -> None:
    w = EXPERIMENT.initial_model(0)
    assert torch.equal(run(TrainingTask(w[None])).w, trained(w))
    for momentum in (0.0, 0.9):
        result = run(TrainingTask(w[None], momentum=momentum))
        assert torch.equal(result.w, trained(w, momentum=momentum))
        assert result.second_w is None


def test_second_model_is_trained_on_the_same_batches_with_a_proximal_term() -> None:
    w, v = EXPERIMENT.initial_model(0), EXPERIMENT.initial_model(0) * 2
    result = run(TrainingTask(w[None], second_w=v[None], proximal_mu=0.7))
    assert torch.equal(result.w, trained(w))
    assert torch.equal(result.second_w, trained(v, proximal_to=w, proximal_mu=0.7))


def test_mask_applies_to_both_models() -> None:
    w = EXPERIMENT.initial_model(0)
    mask = torch.arange(len(w)) % 2 == 0
    result = run(TrainingTask(w[None], mask=mask[None], second_w=w[None] * 2))
    assert torch.equal(result.w, trained(w, mask=mask))
    assert torch.equal(result.second_w[0, ~mask], 2 * w[~mask])


def test_batch_contains_own_data_and_differs_between_rounds() -> None:
    shard = EXPERIMENT.train_shards[1]
    batches = [EXPERIMENT.computation.batch(1, round_) for round_ in (1, 2, 1)]
    own = {tuple(x) for x in shard.x[shard.indices].tolist()}
    assert all(len(batch.x) == min(8, len(shard)) for batch in batches)
    assert all(tuple(x) in own for batch in batches for x in batch.x.tolist())
    assert torch.equal(batches[0].x, batches[2].x)
    assert not torch.equal(batches[0].x, batches[1].x)


def test_batch_of_a_client_with_few_examples_contains_all_of_them() -> None:
    experiment = Experiment(small_scenario(training={"batch_size": 1000}))
    assert len(experiment.computation.batch(0, 1).labels) == len(experiment.train_shards[0])
