"""What a client's work becomes: which model is trained, with which momentum, mask and pull."""

import torch

from rdpfl_sim.learning.training import train
from rdpfl_sim.methods.base import TrainingTask
from rdpfl_sim.simulation.experiment import Experiment
from tests.support import small_scenario

BLUEPRINT = Experiment(
    small_scenario(
        training={"momentum": 0.5, "weight_decay": 0.1, "batch_size": 8}, execution={"executor": "inline"}
    )
)
TRAINER = BLUEPRINT.trainer


def trained(w: torch.Tensor, client: int = 2, round_: int = 3, momentum: float = 0.5, **bent):
    shard = BLUEPRINT.train_shards[client]
    return train(
        BLUEPRINT.model,
        w,
        shard,
        num_steps=-(-len(shard) // 8),
        batch_size=8,
        learning_rate=0.01,
        momentum=momentum,
        weight_decay=0.1,
        seed=BLUEPRINT.streams.key("training", client, round_),
        **bent,
    ).w


def test_work_is_trained_with_the_scenarios_momentum_or_with_its_own() -> None:
    w = BLUEPRINT.initial_model(0)
    assert torch.equal(TRAINER.submit(2, 3, TrainingTask(w[None])).result().w, trained(w))
    for momentum in (0.0, 0.9):
        result = TRAINER.submit(2, 3, TrainingTask(w[None], momentum=momentum)).result()
        assert torch.equal(result.w, trained(w, momentum=momentum))
        assert result.second_w is None


def test_companion_is_trained_on_the_same_batches_and_drawn_to_where_the_other_started() -> None:
    w, v = BLUEPRINT.initial_model(0), BLUEPRINT.initial_model(0) * 2
    result = TRAINER.submit(2, 3, TrainingTask(w[None], second_w=v[None], proximal_mu=0.7)).result()
    assert torch.equal(result.w, trained(w))
    assert torch.equal(result.second_w, trained(v, proximal_to=w, proximal_mu=0.7))


def test_mask_holds_for_the_model_and_its_companion() -> None:
    w = BLUEPRINT.initial_model(0)
    mask = torch.arange(len(w)) % 2 == 0
    result = TRAINER.submit(2, 3, TrainingTask(w[None], mask=mask[None], second_w=w[None] * 2)).result()
    assert torch.equal(result.w, trained(w, mask=mask))
    assert torch.equal(result.second_w[~mask], 2 * w[~mask])


def test_batch_is_of_the_clients_own_data_and_another_one_in_every_round() -> None:
    shard = BLUEPRINT.train_shards[1]
    batches = [TRAINER.batch(1, round_) for round_ in (1, 2, 1)]
    own = {tuple(x) for x in shard.x[shard.indices].tolist()}
    assert all(len(batch.x) == min(8, len(shard)) for batch in batches)
    assert all(tuple(x) in own for batch in batches for x in batch.x.tolist())
    assert torch.equal(batches[0].x, batches[2].x)
    assert not torch.equal(batches[0].x, batches[1].x)


def test_batch_of_a_client_with_few_examples_is_all_of_them() -> None:
    trainer = Experiment(small_scenario(training={"batch_size": 1000})).trainer
    assert len(trainer.batch(0, 1).labels) == len(trainer.training_data.shards[0])
