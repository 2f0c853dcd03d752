"""The device that trains: which one, and how it is made to repeat its numbers."""

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
"""Below so many parameters a training step is mostly overhead. On a CPU stacking saves it
(benchmarks/executors.py); on a GPU the launch of a kernel would take longer than its arithmetic."""

CUBLAS = "CUBLAS_WORKSPACE_CONFIG"
REPEATABLE_CUBLAS = (":4096:8", ":16:8")
"""The values under which cuBLAS gives the same numbers every time, by its documentation."""

log = logging.getLogger(__name__)


def _one_message(value: object, validate: ValidatorFunctionWrapHandler) -> str:
    try:
        device: str = validate(value)
    except ValidationError:
        text = "must be 'auto', 'cpu', 'cuda', or 'cuda:1' for the second GPU, 'cuda:2' for the third ..."
        raise PydanticCustomError("device", "{text}", {"text": text}) from None
    return device


DeviceName: TypeAlias = Annotated[
    Literal["auto", "cpu", "cuda"] | Annotated[str, StringConstraints(pattern=r"^cuda:(0|[1-9][0-9]{0,2})$")],
    WrapValidator(_one_message),
]
"""A device as scenarios name it."""


def check(name: DeviceName, executor: str) -> None:
    """Raise an `OptionError` if this machine, or the executor, has no such device."""
    if executor == "ray":
        if name.startswith("cuda:"):
            raise OptionError("device", "Ray chooses the GPU of each worker; allowed: auto, cpu, cuda")
    elif name.startswith("cuda"):
        found = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
        if not torch.cuda.is_available() or not found:
            raise OptionError("device", "no CUDA device is available; allowed: auto, cpu")
        if name != "cuda" and name not in found:
            raise OptionError("device", f"there is no such GPU; allowed: auto, cpu, cuda, {', '.join(found)}")


def choose(name: DeviceName, num_parameters: int, executor: str) -> torch.device:
    """Return the device of this process that a scenario's `execution.device` stands for.

    `auto` is a GPU for models that are large enough to use one. It is the CPU for stacked clients, whose last
    bits would depend on the clients that a GPU computes with them. With Ray it is the CPU, too: workers
    have devices of their own.
    """
    if executor == "ray" or not wants_gpu(name, num_parameters, executor):
        return CPU
    if name == "auto":
        return torch.device("cuda", 0) if torch.cuda.is_available() else CPU
    return torch.device("cuda", 0) if name == "cuda" else torch.device(name)


def wants_gpu(name: DeviceName, num_parameters: int, executor: str) -> bool:
    """Return whether a GPU trains this model if there is one."""
    if name == "auto":
        return num_parameters >= SMALL_MODEL and executor != "stacked"
    return name != "cpu"


def described(device: torch.device) -> str:
    """Return a device's name, with that of the GPU."""
    return str(device) if device.type == "cpu" else f"{device} ({torch.cuda.get_device_name(device)})"


def kind(device: torch.device) -> str:
    """Return what decides the last bits: the model of the GPU, or `cpu`."""
    return "cpu" if device.type == "cpu" else torch.cuda.get_device_name(device)


def prepare(device: torch.device) -> None:
    """Let cuBLAS repeat its numbers. It reads its setting when CUDA starts, so this comes first."""
    if device.type == "cpu":
        return
    given = os.environ.get(CUBLAS)
    if given is None:
        os.environ[CUBLAS] = REPEATABLE_CUBLAS[0]
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            log.warning(
                "CUDA was started before %s was set: results may differ from run to run; "
                "set it to %s in the environment",
                CUBLAS,
                REPEATABLE_CUBLAS[0],
            )
    elif given not in REPEATABLE_CUBLAS:
        log.warning(
            "%s is %s: results may differ from run to run; values under which they do not: %s",
            CUBLAS,
            given,
            " and ".join(REPEATABLE_CUBLAS),
        )
