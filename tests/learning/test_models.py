from __future__ import annotations

import pickle
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Literal, TypeAlias

import pytest
import torch
from torch import Tensor, nn

from rdpfl_sim.components.schema import OneOf
from rdpfl_sim.errors import OptionError
from rdpfl_sim.learning.models import (
    MODELS,
    FlatModel,
    SeededDropout,
    cnn,
    mlp,
    resnet,
    softmax,
    torchvision_model,
)

Build: TypeAlias = Callable[[list[int], int], nn.Module]


def gradient(p: nn.Parameter) -> Tensor:
    assert p.grad is not None
    return p.grad


def test_softmax_is_one_linear_layer() -> None:
    assert FlatModel(lambda: softmax([1, 8, 8], 10)).num_parameters == 64 * 10 + 10


def test_mlp_has_the_requested_hidden_layers() -> None:
    shapes = FlatModel(lambda: mlp([6], 3, hidden=[5, 4])).shapes
    assert list(shapes.values()) == [(5, 6), (5,), (4, 5), (4,), (3, 4), (3,)]


def test_cnn_for_cifar_has_122570_parameters() -> None:
    assert FlatModel(lambda: cnn([3, 32, 32], 10)).num_parameters == 122_570


@pytest.mark.parametrize(
    ("shape", "num_pixels"),
    [([1, 1, 1], 1), ([1, 3, 9], 27), ([1, 8, 8], 4), ([1, 28, 28], 9), ([3, 32, 32], 16), ([3, 64, 48], 48)],
)
def test_cnn_halves_the_image_while_it_is_at_least_four_pixels_wide(
    shape: list[int], num_pixels: int
) -> None:
    model = FlatModel(lambda: cnn(shape, 7, width=2, hidden=3))
    assert (3, 4 * num_pixels) in model.shapes.values()
    assert model(torch.zeros(5, *shape)).shape == (5, 7)


def test_cnn_rejects_vectors() -> None:
    with pytest.raises(OptionError, match=r"needs images .* shape is \[64\]"):
        cnn([64], 10)


@pytest.mark.parametrize("name", MODELS)
def test_default_options_are_valid(name: str) -> None:
    OneOf(MODELS).validate(name)


def test_the_vector_contains_layers_in_order_and_convolutions_channels_last() -> None:
    model = FlatModel(
        lambda: nn.Sequential(nn.Conv2d(2, 1, kernel_size=(1, 2)), nn.Flatten(), nn.Linear(1, 2))
    )
    model.load(torch.arange(9.0))
    weight, bias, linear, linear_bias = (p.tolist() for p in model.module.parameters())
    assert weight == [
        [[[0, 2]], [[1, 3]]]
    ]  # (out, in, height, width), of a vector in the order out, height, width, in
    assert (bias, linear, linear_bias) == ([4], [[5], [6]], [7, 8])
    assert list(model.shapes) == ["0.weight", "0.bias", "2.weight", "2.bias"]


def test_parameters_and_gradients_are_views_of_the_flat_vectors() -> None:
    model = FlatModel(lambda: cnn([3, 8, 8], 10, width=4))
    model.load(model.initial(0))
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    torch.autograd.backward(model(x).sum())
    gradients = torch.cat([gradient(p).flatten() for p in model.module.parameters()])
    assert model.gradient.abs().sum() > 0
    assert torch.equal(model.gradient.sort().values, gradients.sort().values)
    model.vector.zero_()
    assert all((p == 0).all() for p in model.module.parameters())


def test_convolutions_are_channels_last_without_conversion() -> None:
    model = FlatModel(lambda: cnn([3, 8, 8], 10, width=4))
    for p in model.module.parameters():
        if p.dim() == 4:
            assert p.is_contiguous(memory_format=torch.channels_last)
            assert gradient(p).is_contiguous(memory_format=torch.channels_last)
    seen = []
    next(model.module.children()).register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(torch.zeros(2, 3, 8, 8))
    assert seen[0].is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("build", [mlp, cnn])
@pytest.mark.parametrize("shape", [[1, 6, 6], [3, 16, 16]])
def test_flattening_does_not_change_what_a_module_computes(build: Build, shape: list[int]) -> None:
    module = build(shape, 4)
    plain = deepcopy(module)
    x = torch.randn(4, *shape, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(FlatModel(lambda: module)(x), plain(x))


def test_initial_weights_are_those_of_torch() -> None:
    model = FlatModel(lambda: cnn([3, 8, 8], 10, width=4))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        expected = model.flatten(cnn([3, 8, 8], 10, width=4))
    assert torch.equal(model.initial(5), expected)


def test_initial_weights_depend_only_on_the_seed() -> None:
    model, other = FlatModel(lambda: mlp([4], 3)), FlatModel(lambda: mlp([4], 3))
    other.load(torch.ones(other.num_parameters))
    assert torch.equal(model.initial(2**64 - 1), other.initial(2**64 - 1))
    assert not torch.equal(model.initial(1), model.initial(2))


def test_drawing_initial_weights_changes_neither_the_model_nor_the_global_generator() -> None:
    model = FlatModel(lambda: mlp([4], 3))
    before, state = model.vector.clone(), torch.get_rng_state()
    model.initial(1)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(model.vector, before)


def test_load_copies() -> None:
    model = FlatModel(lambda: softmax([4], 3))
    w = torch.ones(15)
    model.load(w)
    model.vector.add_(1)
    assert (w == 1).all()


def test_a_module_with_buffers_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"the buffers 1\.running_mean"):
        FlatModel(lambda: nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))


@pytest.mark.parametrize("copy", [deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_has_its_own_vector_and_views(copy: Callable[[FlatModel], FlatModel]) -> None:
    model = FlatModel(partial(softmax, [4], 3))
    twin = copy(model)
    twin.load(torch.full((15,), 7.0))
    assert all((p == 7).all() for p in twin.module.parameters())
    assert not (model.vector == 7).any()
    assert torch.equal(twin.initial(3), model.initial(3))


@pytest.mark.parametrize(("depth", "num_parameters"), [(8, 78_042), (14, 175_258), (20, 272_474)])
def test_resnet_has_the_parameters_of_its_depth(depth: Literal[8, 14, 20], num_parameters: int) -> None:
    model = FlatModel(partial(resnet, [3, 32, 32], 10, depth=depth))
    assert model.num_parameters == num_parameters
    assert sum(isinstance(layer, nn.Conv2d | nn.Linear) for layer in model.module.modules()) == depth + 2


@pytest.mark.parametrize("build", [resnet, torchvision_model])
def test_residual_networks_need_images(build: Build) -> None:
    with pytest.raises(OptionError, match=r"needs images .* shape is \[64\]"):
        build([64], 10)


@pytest.mark.slow
def test_resnet18_keeps_the_initial_weights_and_the_size_of_small_images() -> None:
    model = FlatModel(partial(torchvision_model, [3, 32, 32], 10))
    model.load(model.initial(1))
    parameters = dict(model.module.named_parameters())
    weight = parameters["layer4.0.conv1.weight"]  # He initialisation: sqrt(2 / (512 * 9))
    assert float(weight.detach().std()) == pytest.approx((2 / (512 * 9)) ** 0.5, rel=0.01)
    assert float(weight.detach().mean()) == pytest.approx(0, abs=1e-4)
    assert parameters["conv1.weight"].shape == (64, 3, 3, 3)
    sizes = []
    model.module.layer1.register_forward_pre_hook(lambda _, inputs: sizes.append(inputs[0].shape))
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert sizes == [(2, 64, 32, 32)]


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(40, 50), nn.Dropout(0.25), nn.Linear(50, 3))


def test_dropout_is_off_except_in_training_where_it_depends_only_on_the_seed() -> None:
    model, x = FlatModel(with_dropout), torch.ones(4, 40)
    state, off = torch.get_rng_state(), model(x)
    assert torch.equal(off, model(x))
    with model.training(1):
        first = model(x), model(x)
    with model.training(1):
        second = model(x), model(x)
    with model.training(2):
        other = model(x)
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], other)
    assert torch.equal(off, model(x))
    assert torch.equal(torch.get_rng_state(), state)


def test_dropout_keeps_the_expected_share_and_scales_it_up() -> None:
    entries, channels = (
        SeededDropout(0.25, False, torch.Generator()),
        SeededDropout(0.25, True, torch.Generator()),
    )
    kept = entries(torch.ones(100, 100))
    assert set(kept.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert float((kept == 0).float().mean()) == pytest.approx(0.25, abs=0.02)
    whole = channels(torch.ones(50, 40, 3, 3)).flatten(2)
    assert torch.equal(whole.amin(2), whole.amax(2))
    assert float((whole == 0).float().mean()) == pytest.approx(0.25, abs=0.04)
