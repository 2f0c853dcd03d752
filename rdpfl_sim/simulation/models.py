"""Saved models: the models that a run leaves behind, and the weights that a run starts from.

The file of a run has one tensor per client and parameter, `CLIENT.PARAMETER`, in torch's own layout. Its
metadata has the shape of an example and the number of classes, so that a model can be built without the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path

import orjson
import torch
from torch import Tensor, nn

from rdpfl_sim.errors import OptionError, PluginError, Problem, RunError, ScenarioError
from rdpfl_sim.files import Buffer, open_input, open_inside
from rdpfl_sim.learning.models import MODELS, FlatModel, seeded
from rdpfl_sim.methods.base import is_finite
from rdpfl_sim.records.files import MODELS_FILE
from rdpfl_sim.results.run import Run
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.simulation.safetensors import (
    MAX_HEADER_BYTES,
    TensorFile,
    TensorFileError,
    header,
    numbers,
)
from rdpfl_sim.world.client import Client


def headline_model(client: Client, moment: str) -> Tensor:
    """Return the model of a client that the headline accuracy measures, which is the one that a run saves."""
    return client.state.trained.w[0] if moment == "trained" else client.state.learning.w[0]


class BestModels:
    """Each client's model at the evaluation with the highest validation accuracy, the first of equals."""

    STATE = ("accuracies", "models")

    def __init__(self) -> None:
        self.accuracies: dict[int, float] = {}
        self.models: dict[int, Tensor] = {}

    def observe(self, client: int, accuracy: float, w: Tensor) -> None:
        """Keep an evaluated model if it is the best so far. A model that has diverged is not kept."""
        if accuracy > self.accuracies.get(client, -1.0) and is_finite(w):
            self.accuracies[client] = accuracy
            self.models[client] = w.clone()  # a view would keep the matrix of its batch in memory


def saved_models(clients: Iterable[Client], best: BestModels | None, moment: str) -> list[Tensor]:
    """Return the model of every client that a run leaves behind, on the CPU: the best, or else the last."""
    return [
        (headline_model(each, moment) if best is None else best.models[each.id]).cpu() for each in clients
    ]


@dataclass(frozen=True)
class Architecture:
    """The layers of a run's models, without weights: what a file of saved models needs to be read."""

    build: Callable[[Sequence[int], int], nn.Module]
    shape: tuple[int, ...]
    """The shape of one example."""
    num_classes: int
    channels_last: bool
    """The order of convolution weights in the flat vector."""

    @classmethod
    def of(
        cls, scenario: Scenario, shape: Sequence[int], num_classes: int, *, guarded: bool = False
    ) -> Architecture:
        """Return the architecture of a scenario's models for this data."""
        channels_last = scenario.training.precision in MODELS.facts(scenario.model.name).channels_last
        return cls(scenario.model.bind(guarded=guarded), tuple(shape), num_classes, channels_last)

    def module(self) -> nn.Module:
        """Return a new module with arbitrary weights."""
        with seeded(0):
            return self.build(self.shape, self.num_classes)

    def flat(self) -> FlatModel:
        """Return the module with its flat vector, on the CPU."""
        build = partial(self.build, self.shape, self.num_classes)
        return FlatModel(build, channels_last=self.channels_last)

    @property
    def metadata(self) -> Mapping[str, str]:
        """The metadata of a file with models of this architecture."""
        return {"shape": orjson.dumps(self.shape).decode(), "num_classes": str(self.num_classes)}

    @classmethod
    def of_file(cls, scenario: Scenario, file: TensorFile) -> Architecture:
        """Return the architecture of the models in the file of a run."""
        try:
            shape, num_classes = (orjson.loads(file.metadata[key]) for key in ("shape", "num_classes"))
        except (LookupError, orjson.JSONDecodeError) as error:
            raise TensorFileError("has no metadata with shape and num_classes") from error
        is_shape = isinstance(shape, list) and all(type(size) is int and size > 0 for size in shape)
        if not is_shape or type(num_classes) is not int or num_classes < 1:
            raise TensorFileError(f"has invalid metadata: shape {shape}, num_classes {num_classes}")
        largest = max((max(entry.shape, default=1) for entry in file.entries.values()), default=0)
        if num_classes > largest:
            raise TensorFileError(f"has no parameter for {num_classes} classes")
        return cls.of(scenario, shape, num_classes, guarded=True)


class Models:
    """The models of a run: `models[3]` is a new module with the weights of client 3, in eval mode."""

    def __init__(self, architecture: Architecture, model: FlatModel, vectors: Sequence[Tensor]) -> None:
        self._architecture, self._model = architecture, model
        self.vectors = vectors
        """The parameters of every client as a flat vector, on the CPU."""

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, client: int) -> nn.Module:
        return with_weights(self._architecture.module(), weights_of(self._model, self.vectors[client]))


def weights_of(model: FlatModel, w: Tensor) -> dict[str, Tensor]:
    """Return the parameters in a vector by name, as tensors on the CPU in torch's own layout."""
    model.load(w)
    return {
        name: p.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, p in model.module.named_parameters()
    }


def vector_of(model: FlatModel, weights: Mapping[str, Tensor]) -> Tensor:
    """Return the vector with these parameters."""
    with_weights(model.module, weights)
    return model.vector.clone()


def with_weights(module: nn.Module, weights: Mapping[str, Tensor]) -> nn.Module:
    """Copy the weights into a module and return it in eval mode."""
    with torch.no_grad():
        for name, p in module.named_parameters():
            p.copy_(weights[name])
    return module.eval()


def blocks_of(architecture: Architecture, model: FlatModel, vectors: Sequence[Tensor]) -> Iterator[Buffer]:
    """Yield the content of a file with the models of all clients, one tensor at a time."""
    names = model.shapes.items()
    tensors = ((f"{i}.{name}", torch.float32, shape) for i in range(len(vectors)) for name, shape in names)
    yield header(tensors, architecture.metadata)
    for w in vectors:
        yield from map(numbers, weights_of(model, w).values())


def check_size(model: FlatModel, num_clients: int) -> None:
    """Raise an `OptionError` if the file of all models would have a header that is too long."""
    one = header((f"{num_clients}.{name}", torch.float32, shape) for name, shape in model.shapes.items())
    if (len(one) + 2 * MAX_DIGITS * len(model.shapes)) * num_clients > MAX_HEADER_BYTES:
        raise OptionError("models", f"one file cannot have the models of {num_clients:,} clients")


MAX_DIGITS = 19
"""Digits of a position in a file."""


def load_model(run: Run | str | PathLike[str], client: int) -> nn.Module:
    """Return the saved model of a client as a new module, in eval mode.

    The run needs `output.models`. Its model is built from its scenario, and the weights are read from its
    models.safetensors, which contains no code.
    """
    run = run if isinstance(run, Run) else Run(run)
    num_clients = run.num_clients
    if type(client) is not int or not 0 <= client < num_clients:
        raise RunError(f"{run.folder} has no client {client!r}; allowed: 0 to {num_clients - 1}")
    scenario = Scenario.of_run(run.folder)
    with models_of(run.folder, scenario) as file:
        architecture = Architecture.of_file(scenario, file)
        module = architecture.module()
        shapes = {name: p.shape for name, p in module.named_parameters()}
        check_names(file, [f"{client}.{name}" for name in shapes], f"{client}.")
        return with_weights(module, read_model(file, shapes, f"{client}."))


@contextmanager
def models_of(folder: Path, scenario: Scenario) -> Iterator[TensorFile]:
    """Open the saved models of a run; raise a `RunError` if there are none or the file is invalid."""
    path = folder / MODELS_FILE
    try:
        with open_inside(path) as file:
            yield TensorFile(file)
    except FileNotFoundError as error:
        reason = "the run is not complete"
        if scenario.output.models == "none":
            reason = "output.models is 'none' in its scenario; allowed: final, best"
        raise RunError(f"{folder} has no saved models: {reason}") from error
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from error
    except TensorFileError as error:
        raise RunError(f"{path} {error}") from error
    except (OptionError, PluginError, RuntimeError) as error:  # of the model, for this shape
        raise RunError(f"{path} does not fit the model of its scenario: {error}") from error


def read_weights(path: str, model: FlatModel, num_clients: int) -> list[Tensor]:
    """Return the initial model of all clients, or one per client, from `model.weights`.

    The file has the parameters of one model, or the models of a run with as many clients.
    """
    try:
        with open_input(path) as opened:
            file = TensorFile(opened)
            prefixes = [f"{client}." for client in range(num_clients)]
            if not any(f"{prefix}{name}" in file.entries for prefix in prefixes for name in model.shapes):
                prefixes = [""]
            clients = {name.partition(".")[0] for name in file.entries}
            if prefixes != [""] and len(clients) != num_clients:
                raise TensorFileError(f"has models of {len(clients)} clients; the scenario has {num_clients}")
            check_names(file, [f"{prefix}{name}" for prefix in prefixes for name in model.shapes])
            return [_finite_vector(file, model, prefix) for prefix in prefixes]
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
    except TensorFileError as error:
        message = str(error)
    raise ScenarioError([Problem("model.weights", message, path)])


def _finite_vector(file: TensorFile, model: FlatModel, prefix: str) -> Tensor:
    weights = read_model(file, model.shapes, prefix)
    for name, tensor in weights.items():
        if not is_finite(tensor):
            raise TensorFileError(f"has NaN or infinity in {prefix + name!r}")
    return vector_of(model, weights)


def check_names(file: TensorFile, names: Sequence[str], prefix: str = "") -> None:
    """Require that the tensors whose names begin with `prefix` are these; name the first difference."""
    expected = set(names)
    for name in names:
        if name not in file.entries:
            raise TensorFileError(f"has no parameter {name!r}")
    for name in file.entries:
        if name.startswith(prefix) and name not in expected:
            raise TensorFileError(f"has {name!r}, which is not a parameter of the model")


def read_model(file: TensorFile, shapes: Mapping[str, torch.Size], prefix: str) -> dict[str, Tensor]:
    """Return one model of a file by the names of its parameters."""
    for name, shape in shapes.items():
        entry = file.entries[prefix + name]
        if entry.shape != tuple(shape):
            raise TensorFileError(f"has {prefix + name!r} of shape {[*entry.shape]}, not {[*shape]}")
        if entry.dtype != torch.float32:
            raise TensorFileError(f"has {prefix + name!r} of type {entry.dtype}, not {torch.float32}")
    return {name: file.read(prefix + name) for name in shapes}
