"""The contracts of data sets, partitions and models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rdpfl_sim.contracts.call_checks import (
    FROM_RNG,
    Contract,
    FlawError,
    GlobalDraws,
    check_type,
    describe,
)
from rdpfl_sim.learning.datasets.dataset import Dataset
from rdpfl_sim.learning.models import FlatModel

BATCH = 3
TOLERANCE = 1e-3


def _check_data(result: object, rng: np.random.Generator) -> None:
    """Check types, shapes, labels and finiteness."""
    data = check_type(result, Dataset, "a Dataset")
    if type(data.num_classes) is not int or data.num_classes < 1:
        raise FlawError(f"returns {data.num_classes!r} as num_classes, not a whole number of at least 1")
    _check_examples("train", data.x_train, data.y_train, data.num_classes)
    _check_examples("test", data.x_test, data.y_test, data.num_classes)
    if data.x_train.shape[1:] != data.x_test.shape[1:]:
        raise FlawError("returns training and test examples of different shapes")
    if data.augment is not None:
        x = data.x_train[:BATCH]
        first, second = (data.augment(x.clone(), torch.Generator().manual_seed(1)) for _ in range(2))
        if first.shape != x.shape or first.dtype != x.dtype:
            raise FlawError("has an augmentation that changes the shape or the type of a batch")
        if not torch.equal(first, second):
            raise FlawError("has an augmentation that depends on more than its batch and its generator")


def _check_examples(part: str, x: object, y: object, num_classes: int) -> None:
    if not (isinstance(x, Tensor) and isinstance(y, Tensor)):
        raise FlawError(f"returns x_{part} and y_{part} that are not tensors")
    if x.dtype != torch.float32 or y.dtype != torch.int64:
        types = f"x_{part} as {x.dtype} and y_{part} as {y.dtype}"
        raise FlawError(f"returns {types}; needed: float32 and int64")
    if x.dim() not in (2, 4) or y.dim() != 1 or len(x) != len(y) or len(y) == 0:
        shapes = f"x_{part} of shape {list(x.shape)} and y_{part} of {list(y.shape)}"
        needed = "[n, features] or [n, channels, height, width], and [n], n >= 1"
        raise FlawError(f"returns {shapes}; needed: {needed}")
    if int(y.min()) < 0 or int(y.max()) >= num_classes:
        raise FlawError(f"returns a label in y_{part} outside 0 to {num_classes - 1}")
    if not bool(torch.isfinite(x).all()):
        raise FlawError(f"returns NaN or infinity in x_{part}")


def _check_partition(result: object, labels: np.ndarray, num_clients: int, rng: np.random.Generator) -> None:
    """Check that every client has examples, and that none is assigned twice."""
    if not isinstance(result, list) or len(result) != num_clients:
        raise FlawError(f"returns {describe(result)}, not a list of {num_clients} arrays, one per client")
    for client, shard in enumerate(result):
        if not isinstance(shard, np.ndarray) or shard.dtype != np.int64 or shard.ndim != 1:
            raise FlawError(f"returns {describe(shard)} for client {client}, not a flat array of int64")
        if len(shard) == 0:
            raise FlawError(f"leaves client {client} without examples")
    assigned = np.concatenate(result)
    if assigned.min() < 0 or assigned.max() >= len(labels):
        raise FlawError(f"returns a position outside 0 to {len(labels) - 1}")
    if len(np.unique(assigned)) != len(assigned):
        raise FlawError("assigns an example twice")


def _check_model(result: object, shape: Sequence[int], num_classes: int) -> None:
    """Check that `FlatModel` can flatten and initialise the module."""
    module = check_type(result, nn.Module, "a torch.nn.Module")
    buffers = [name for name, _ in module.named_buffers()]
    if buffers:
        shown = ", ".join(buffers[:3]) + (", ..." if len(buffers) > 3 else "")
        raise FlawError(
            f"has buffers ({shown}), which are not part of the flat vector that clients train and send; "
            "use group normalisation instead of batch normalisation"
        )
    if next(module.parameters(), None) is None:
        raise FlawError("has no parameters to train")
    for name, p in module.named_parameters():
        if p.dtype != torch.float32 or not p.requires_grad:
            kind = f"{p.dtype}, not torch.float32" if p.dtype != torch.float32 else "frozen"
            raise FlawError(
                f"has a parameter {name} that is {kind}; every parameter must be float32 and trained"
            )
    for name, layer in module.named_modules():
        own = [key for key, _ in layer.named_parameters(recurse=False)]
        if own and not callable(getattr(layer, "reset_parameters", None)):
            where = f"layer {name} ({type(layer).__name__})" if name else f"module {type(layer).__name__}"
            raise FlawError(
                f"has parameters ({', '.join(own)}) in its {where}, which has no method 'reset_parameters' "
                "that initialises them from a run's seed"
            )


def _weights_and_logits(module: nn.Module, shape: Sequence[int], num_classes: int) -> tuple[object, ...]:
    """Return shapes, initial weights, and the logits of a batch."""
    model = FlatModel(deepcopy(module))
    w = model.initial(1)
    model.load(w)
    shapes = {name: list(p) for name, p in model.shapes.items()}
    return shapes, w, _batch_logits(model, shape, num_classes)


def _batch_logits(model: FlatModel, shape: Sequence[int], num_classes: int) -> Tensor:
    """Return the logits of a batch; raise a `FlawError` if the model cannot be trained."""
    x = torch.randn(BATCH, *shape, generator=torch.Generator().manual_seed(1))
    draws = GlobalDraws()
    with draws:
        logits = model(x)
        alone = model(x[:1])
    if draws.found is not None:
        raise FlawError(f"has a layer, such as dropout, that {draws.flaw}, so runs would not be reproducible")
    if not isinstance(logits, Tensor) or logits.shape != (BATCH, num_classes):
        got = list(logits.shape) if isinstance(logits, Tensor) else describe(logits)
        raise FlawError(f"returns {got} for a batch of {BATCH}, not [{BATCH}, {num_classes}]")
    if logits.dtype != torch.float32 or not bool(torch.isfinite(logits).all()):
        raise FlawError("returns NaN, infinity or a type other than float32 for valid inputs")
    if alone.shape != (1, num_classes) or not torch.allclose(alone, logits[:1], TOLERANCE, TOLERANCE):
        raise FlawError(
            "returns different results for an example in a batch and on its own, as batch normalisation does"
        )
    model.gradient.zero_()
    torch.autograd.backward(cross_entropy(logits, torch.zeros(BATCH, dtype=torch.int64)))
    if not bool(torch.isfinite(model.gradient).all()):
        raise FlawError("has a gradient that is NaN or infinite")
    return logits.detach()


LEARNING_CONTRACTS: Mapping[str, Contract] = {
    "data": Contract(check=_check_data, called_twice=True, randomness=FROM_RNG),
    "partition": Contract(check=_check_partition, called_twice=True, randomness=FROM_RNG),
    "model": Contract(
        check=_check_model,
        called_twice=True,
        may_draw=True,  # random initial weights, which `FlatModel.initial` replaces
        observe=_weights_and_logits,
        mismatch="gets different initial weights when built twice (reset_parameters must set all of them)",
    ),
}
