import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from rdpfl_sim.learning.datasets.dataset import Shard
from rdpfl_sim.learning.evaluation import loss_stats
from rdpfl_sim.learning.models import FlatModel


def test_statistics_are_those_of_the_loss_on_the_whole_shard() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(10, 3), torch.arange(10) % 2
    module = nn.Linear(3, 2)
    model = FlatModel(lambda: module)
    w = model.vector.clone()
    stats = loss_stats(model, w, Shard(x, y, torch.arange(10)), batch_size=4)

    def gradient(part: slice) -> tuple[float, torch.Tensor]:
        weight, bias = (w[:6].view(2, 3).clone().requires_grad_(), w[6:].clone().requires_grad_())
        loss = cross_entropy(x[part] @ weight.T + bias, y[part])
        loss.backward()
        return loss.item(), torch.cat([weight.grad.flatten(), bias.grad])

    loss, whole = gradient(slice(0, 10))
    batches = [gradient(slice(a, b))[1] for a, b in ((0, 4), (4, 8), (8, 10))]
    squares = sum(n / 10 * (g @ g).item() for n, g in zip((4, 4, 2), batches, strict=True))
    spread = sum(n / 10 * (g - whole).square().sum().item() for n, g in zip((4, 4, 2), batches, strict=True))
    assert stats.loss == pytest.approx(loss, rel=1e-5)
    torch.testing.assert_close(stats.gradient, whole)
    assert stats.mean_square == pytest.approx(squares, rel=1e-4)
    assert stats.variance == pytest.approx(spread, rel=1e-4)
    assert torch.equal(model.vector, w), "the model keeps its weights"
