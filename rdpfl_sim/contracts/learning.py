"""The contracts of data sets, partitions and models."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rdpfl_sim.contracts.contract import Arguments, Contract, FlawError, GlobalDraws, describe
from rdpfl_sim.learning.datasets.dataset import Dataset
from rdpfl_sim.learning.models import FlatModel

BATCH = 3
TOLERANCE = 1e-3


class DataContract(Contract):
    """A `Dataset`, from a generator."""

    called_twice = True

    def flaw(self, arguments: Arguments, result: Any) -> str | None:
        """Check types, shapes, labels and finiteness."""
        if not isinstance(result, Dataset):
            return f"returns {describe(result)}, not a Dataset"
        return next(_data_flaws(result), None)


def _data_flaws(data: Dataset) -> Iterator[str]:
    if type(data.num_classes) is not int or data.num_classes < 1:
        yield f"returns {data.num_classes!r} as num_classes, not a whole number of at least 1"
    for part, x, y in (("train", data.x_train, data.y_train), ("test", data.x_test, data.y_test)):
        if not (isinstance(x, Tensor) and isinstance(y, Tensor)):
            yield f"returns x_{part} and y_{part} that are not tensors"
        elif x.dtype != torch.float32 or y.dtype != torch.int64:
            yield f"returns x_{part} as {x.dtype} and y_{part} as {y.dtype}; needed: float32 and int64"
        elif x.dim() not in (2, 4) or y.dim() != 1 or len(x) != len(y) or len(y) == 0:
            shapes = f"x_{part} of shape {list(x.shape)} and y_{part} of {list(y.shape)}"
            yield f"returns {shapes}; needed: [n, features] or [n, channels, height, width], and [n], n >= 1"
        elif int(y.min()) < 0 or int(y.max()) >= data.num_classes:
            yield f"returns a label in y_{part} outside 0 to {data.num_classes - 1}"
        elif not bool(torch.isfinite(x).all()):
            yield f"returns NaN or infinity in x_{part}"
    if data.x_train.shape[1:] != data.x_test.shape[1:]:
        yield "returns training and test examples of different shapes"
    if data.augment is not None:
        yield from _augmentation_flaws(data)


def _augmentation_flaws(data: Dataset) -> Iterator[str]:
    assert data.augment is not None
    x = data.x_train[:BATCH]
    first, second = (data.augment(x.clone(), torch.Generator().manual_seed(1)) for _ in range(2))
    if first.shape != x.shape or first.dtype != x.dtype:
        yield "has an augmentation that changes the shape or the type of a batch"
    elif not torch.equal(first, second):
        yield "has an augmentation that depends on more than its batch and its generator"


class PartitionContract(Contract):
    """The positions of every client's examples, from the labels, the number of clients and a generator."""

    called_twice = True

    def flaw(self, arguments: Arguments, result: Any) -> str | None:
        """Check that every client has examples, and that none is assigned twice."""
        labels, num_clients, _ = arguments
        if not isinstance(result, list) or len(result) != num_clients:
            return f"returns {describe(result)}, not a list of {num_clients} arrays, one per client"
        for client, shard in enumerate(result):
            if not isinstance(shard, np.ndarray) or shard.dtype != np.int64 or shard.ndim != 1:
                return f"returns {describe(shard)} for client {client}, not a flat array of int64"
            if len(shard) == 0:
                return f"leaves client {client} without examples"
        assigned = np.concatenate(result)
        if assigned.min() < 0 or assigned.max() >= len(labels):
            return f"returns a position outside 0 to {len(labels) - 1}"
        if len(np.unique(assigned)) != len(assigned):
            return "assigns an example twice"
        return None


class ModelContract(Contract):
    """A module, from the shape of an example and the number of classes."""

    called_twice = True
    may_draw = True  # initial weights, which `FlatModel.initial` replaces
    mismatch = "has other initial weights when it is built again; reset_parameters must set them all"

    def flaw(self, arguments: Arguments, result: Any) -> str | None:
        """Check that `FlatModel` can hold and initialise the module."""
        if not isinstance(result, nn.Module):
            return f"returns {describe(result)}, not a torch.nn.Module"
        return next(_layer_flaws(result), None)

    def observe(self, arguments: Arguments, result: Any) -> Any:
        """Return shapes, initial weights, and the logits of a batch."""
        shape, num_classes = arguments
        module = deepcopy(result)
        model = FlatModel(module)
        w = model.initial(1)
        model.load(w)
        return (
            {name: list(p) for name, p in model.shapes.items()},
            w,
            batch_logits(model, shape, num_classes),
        )


def _layer_flaws(module: nn.Module) -> Iterator[str]:
    buffers = [name for name, _ in module.named_buffers()]
    if buffers:
        shown = ", ".join(buffers[:3]) + (", ..." if len(buffers) > 3 else "")
        yield (
            f"has buffers ({shown}), which are not part of the flat vector that clients train and send; "
            "in place of batch normalisation, group normalisation works"
        )
    if next(module.parameters(), None) is None:
        yield "has no parameters to train"
    for name, p in module.named_parameters():
        if p.dtype != torch.float32 or not p.requires_grad:
            kind = f"{p.dtype}, not torch.float32" if p.dtype != torch.float32 else "frozen"
            yield f"has a parameter {name} that is {kind}; every parameter must be float32 and trained"
    for name, layer in module.named_modules():
        own = [key for key, _ in layer.named_parameters(recurse=False)]
        if own and not callable(getattr(layer, "reset_parameters", None)):
            where = f"layer {name} ({type(layer).__name__})" if name else f"module {type(layer).__name__}"
            yield (
                f"has parameters ({', '.join(own)}) in its {where}, which has no method 'reset_parameters' "
                "that initialises them from a run's seed"
            )


def batch_logits(model: FlatModel, shape: Any, num_classes: int) -> Tensor:
    """Return the logits of a batch; raise a `FlawError` if the model could not be trained."""
    x = torch.randn(BATCH, *shape, generator=torch.Generator().manual_seed(1))
    draws = GlobalDraws()
    with draws:
        logits = model(x)
        alone = model(x[:1])
    if draws.found is not None:
        raise FlawError(f"has a layer, such as dropout, that {draws.flaw}")
    if not isinstance(logits, Tensor) or logits.shape != (BATCH, num_classes):
        got = list(logits.shape) if isinstance(logits, Tensor) else describe(logits)
        raise FlawError(f"returns for a batch of {BATCH} {got}, not [{BATCH}, {num_classes}]")
    if logits.dtype != torch.float32 or not bool(torch.isfinite(logits).all()):
        raise FlawError("returns NaN or infinity for ordinary numbers, or another type than float32")
    if alone.shape != (1, num_classes) or not torch.allclose(alone, logits[:1], TOLERANCE, TOLERANCE):
        raise FlawError("returns another result for an example alone, as batch normalisation does")
    model.gradient.zero_()
    torch.autograd.backward(cross_entropy(logits, torch.zeros(BATCH, dtype=torch.int64)))
    if not bool(torch.isfinite(model.gradient).all()):
        raise FlawError("has a gradient that is NaN or infinite")
    return logits.detach()
