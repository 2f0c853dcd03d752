"""The provenance of a result: code, package versions, machine and command.

Provenance is written before the first record, so that failed runs have it too. The digest does not cover it.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel

from rdpfl_sim.execution.arithmetic import Arithmetic, instructions
from rdpfl_sim.execution.devices import describe
from rdpfl_sim.files import JsonObject, read_json
from rdpfl_sim.records.files import PROVENANCE
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.version import __version__

PACKAGES = (
    *("torch", "torchvision", "numpy", "scipy", "simpy", "networkx"),
    *("pydantic", "orjson", "structlog", "tomli-w", "matplotlib", "rich", "ray"),
)
WITHOUT_EFFECT = ("matplotlib", "rich", "ray")
"""Packages whose version cannot change a result."""

RESUMED_ELSEWHERE = "resumed in another environment, so its digest may differ"
"""The beginning of the warning for a run that was resumed in a different environment."""

GIT_TIMEOUT_S = 5.0


def provenance(folder: Path, scenario: Scenario, device: torch.device, arithmetic: Arithmetic) -> JsonObject:
    """Return the content of provenance.json: the previous sessions of a resumed run, and this one.

    `defaults` lists the settings at their default, so that readers need not import any component.
    """
    path = folder / PROVENANCE
    before = read_json(path)["sessions"] if path.exists() else []
    return {
        "scenario_hash": scenario.hash,
        "defaults": list(default_paths(scenario)),
        "sessions": [*before, session(device, arithmetic)],
    }


def default_paths(table: BaseModel, prefix: str = "") -> Iterator[str]:
    """Yield the paths of a scenario whose values are the defaults."""
    for name, field in type(table).model_fields.items():
        path, value = f"{prefix}{field.alias or name}", getattr(table, name)
        if path == "adversary" and len(value) == 1:  # a single group is a table, not a list
            (value,) = value
        if isinstance(value, BaseModel):
            yield from default_paths(value, f"{path}.")
            if getattr(value, "name", None) == field.default:
                yield f"{path}.name"
        elif value == field.default:
            yield path


def session(device: torch.device, arithmetic: Arithmetic) -> JsonObject:
    """Return the start time, command, working folder and environment of this process."""
    return {
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(_command()),
        "working_folder": os.getcwd(),
        **environment(describe(device), arithmetic),
    }


def environment(device: str, arithmetic: Arithmetic) -> JsonObject:
    """Return everything that can affect a result, except the scenario. `device` is the training device."""
    return {
        "code": dict(_code()),
        "versions": dict(_versions()),
        "machine": dict(_machine()),
        "device": device,
        "arithmetic": arithmetic,
        "threads": torch.get_num_threads(),
    }


def changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the differences between two environments that can change the last bits of a result."""
    parts = [("", "device"), ("", "threads"), ("", "arithmetic")]
    then = {"arithmetic": "native", **then}  # older sessions lack the key
    if then["arithmetic"] == now["arithmetic"] == "native":
        parts += [("machine", "processor"), ("machine", "instructions")]
    parts += [("code", "commit"), ("code", "changed")]
    parts += [("versions", name) for name in now["versions"] if name not in WITHOUT_EFFECT]
    found = []
    for group, key in parts:
        was, is_ = ((side[group] if group else side).get(key) for side in (then, now))
        if was != is_:
            found.append(f"{key} was {was}, is {is_}")
    return found


def _command() -> list[str]:
    program, *arguments = sys.argv or [""]
    is_package = Path(program) == Path(__file__).parents[1] / "__main__.py"
    return [*(("python", "-m", "rdpfl_sim") if is_package else (program,)), *arguments]


@cache
def _versions() -> dict[str, str]:
    found = {"rdpfl-sim": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # an extra, such as ray
            continue
    return found


@cache
def _machine() -> JsonObject:
    return {
        "host": platform.node(),
        "platform": platform.platform(),
        "processor": _processor(),
        "instructions": instructions(),
        "cores": os.cpu_count(),
    }


def _processor() -> str:
    """Return the name of the processor; only Linux provides the full model name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


@cache
def _code() -> JsonObject:
    """Return the commit of the checkout and whether files have changed since then; None if unknown."""
    checkout = Path(__file__).resolve().parents[2]
    commit = _git(checkout, "rev-parse", "HEAD")
    changes = None if commit is None else _git(checkout, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "changed": None if changes is None else bool(changes)}


def _git(checkout: Path, *words: str) -> str | None:
    if not (checkout / ".git").exists():  # an installed package: a repository around it is unrelated
        return None
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}  # git status must not write
    try:
        done = subprocess.run(
            ["git", "-C", str(checkout), *words],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
            timeout=GIT_TIMEOUT_S,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
