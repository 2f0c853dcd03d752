"""The choice of the device for training, and its settings for reproducible results."""

from __future__ import annotations

import logging
import os
from typing import Annotated, Literal, TypeAlias

import torch
from pydantic import StringConstraints, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError

from rdpfl_sim.errors import OptionError

CPU = torch.device("cpu")

SMALL_MODEL = 50_000
"""Number of parameters below which a training step is mostly overhead. On a CPU stacking reduces the overhead
(benchmarks/executors.py); on a GPU launching a kernel would take longer than its arithmetic."""

CUBLAS = "CUBLAS_WORKSPACE_CONFIG"
DETERMINISTIC_CUBLAS = (":4096:8", ":16:8")
"""Values for which cuBLAS documents reproducible results."""

log = logging.getLogger(__name__)


def _validate_device(value: object, validate: ValidatorFunctionWrapHandler) -> str:
    try:
        device: str = validate(value)
    except ValidationError:
        text = "must be 'auto', 'cpu', 'cuda', or 'cuda:1' for the second GPU, 'cuda:2' for the third ..."
        raise PydanticCustomError("device", "{text}", {"text": text}) from None
    return device


DeviceName: TypeAlias = Annotated[
    Literal["auto", "cpu", "cuda"] | Annotated[str, StringConstraints(pattern=r"^cuda:(0|[1-9][0-9]{0,2})$")],
    WrapValidator(_validate_device),
]
"""A device name in a scenario."""


def check(name: DeviceName, executor: str) -> None:
    """Raise an `OptionError` if the device does not exist or the executor cannot use it."""
    if executor == "ray":
        if name.startswith("cuda:"):
            raise OptionError("device", "Ray chooses the GPU of each worker; allowed: auto, cpu, cuda")
    elif name.startswith("cuda"):
        available = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
        if not torch.cuda.is_available() or not available:
            raise OptionError("device", "no CUDA device is available; allowed: auto, cpu")
        if name != "cuda" and name not in available:
            raise OptionError("device", f"no such GPU; allowed: auto, cpu, cuda, {', '.join(available)}")


def choose(name: DeviceName, num_parameters: int, executor: str) -> torch.device:
    """Return the device of this process for a scenario's `execution.device`.

    `auto` selects a GPU for models that are large enough to benefit from one. It selects the CPU for stacked
    clients, because on a GPU the last bits of their results would depend on the other clients of the batch.
    With Ray the device is always the CPU, because workers have their own devices.
    """
    if executor == "ray" or not uses_gpu(name, num_parameters, executor):
        return CPU
    if name == "auto":
        return torch.device("cuda", 0) if torch.cuda.is_available() else CPU
    return torch.device("cuda", 0) if name == "cuda" else torch.device(name)


def uses_gpu(name: DeviceName, num_parameters: int, executor: str) -> bool:
    """Return whether this model is trained on a GPU if one is available."""
    if name == "auto":
        return num_parameters >= SMALL_MODEL and executor != "stacked"
    return name != "cpu"


def describe(device: torch.device) -> str:
    """Return the name of a device, including the model of a GPU."""
    return str(device) if device.type == "cpu" else f"{device} ({torch.cuda.get_device_name(device)})"


def kind(device: torch.device) -> str:
    """Return the GPU model, on which the last bits of results depend, or `cpu`."""
    return "cpu" if device.type == "cpu" else torch.cuda.get_device_name(device)


def prepare(device: torch.device) -> None:
    """Configure cuBLAS for reproducible results. Call this before CUDA is initialized."""
    if device.type == "cpu":
        return
    value = os.environ.get(CUBLAS)
    if value is None:
        os.environ[CUBLAS] = DETERMINISTIC_CUBLAS[0]
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            log.warning(
                "CUDA was initialized before %s was set, so results may differ between runs; "
                "set it to %s in the environment",
                CUBLAS,
                DETERMINISTIC_CUBLAS[0],
            )
    elif value not in DETERMINISTIC_CUBLAS:
        log.warning(
            "%s is %s: results may differ between runs; for reproducible results, set it to %s",
            CUBLAS,
            value,
            " or ".join(DETERMINISTIC_CUBLAS),
        )
