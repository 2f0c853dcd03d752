"""rdpfl-sim doctor: report versions, devices, data sets and extras, and what to do about missing ones."""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from rdpfl_sim.cli.common import FAILED, print_plain
from rdpfl_sim.errors import ScenarioError
from rdpfl_sim.version import __version__

HELP = "report versions, devices, data sets and what is missing"
EXAMPLES = """\
examples:
  rdpfl-sim doctor

The exit code is 1 if something that a run needs is missing.
"""
DISTRIBUTION = "rdpfl-sim"
EXTRAS = {"ray": "runs and sweeps on a Ray cluster", "tensorboard": "rdpfl-sim tensorboard"}
"""The purposes of the extras."""

SOURCE_EXTRAS = {"analysis": "the notebooks in analysis/", "docs": "make docs", "dev": "make test"}
"""The purposes of the extras that only a copy of the repository can use."""

NOT_INSTALLED = f"not checked: {DISTRIBUTION} runs from a source folder and is not installed"
LABEL_WIDTH = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no arguments."""


def execute(options: argparse.Namespace) -> int:
    """Print one section after another; return 1 if a run is not possible."""
    _print_section("rdpfl-sim", [f"{__version__} in {Path(__file__).parents[1]}"])
    _print_section("Python", [f"{platform.python_version()} ({sys.executable})"])
    _print_section("machine", _machine())
    missing = [*missing_packages()] or [*_broken_torch()]
    _print_section("packages", missing or _versions())
    _print_section("extras", _extras())
    if missing:
        command = f"pip install --upgrade {DISTRIBUTION}"
        print_plain(f"\nA run is not possible yet. Install what is missing with: {command}")
        return FAILED
    _print_section("devices", _devices())
    _print_section("data sets", _data_sets())
    _print_section("plug-ins", _plugins())
    _print_section("scenarios", _scenarios())
    if _requirements():
        print_plain("\nNothing that a run needs is missing. Try: rdpfl-sim ring_30pct")
    return 0


def missing_packages(extra: str | None = None) -> Iterator[str]:
    """Yield a sentence per missing or outdated package that this package, or one of its extras, requires."""
    for requirement in _requirements():
        name, minimum, needed_by = _parse(requirement)
        if needed_by != extra or name == DISTRIBUTION:
            continue
        try:
            installed = version(name)
        except PackageNotFoundError:
            yield f"{name} is missing"
            continue
        if minimum is not None and _numbers(installed) < _numbers(minimum):
            yield f"{name} {installed} is too old; required: at least {minimum}"


def _requirements() -> list[str]:
    """Return the requirements of the installed package; none if it runs from a source folder."""
    try:
        return requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return []


def _parse(requirement: str) -> tuple[str, str | None, str | None]:
    """Return the name, the minimum version and the extra of a requirement.

    >>> _parse('ray>=2.30; extra == "ray"')
    ('ray', '2.30', 'ray')
    """
    name = re.match(r"[\w.-]+", requirement)
    assert name is not None
    minimum, extra = re.search(r">=([\d.]+)", requirement), re.search(r"extra == .([\w-]+)", requirement)
    return name[0], minimum and minimum[1], extra and extra[1]


def _numbers(text: str) -> list[int]:
    """Return the numbers of a version.

    >>> _numbers("2.15.0+cpu")
    [2, 15, 0]
    """
    release = re.match(r"[\d.]*", text)
    assert release is not None
    return [int(part) for part in release[0].split(".") if part]


def _print_section(label: str, lines: Iterable[str]) -> None:
    for line in lines:
        print_plain(f"{label:<{LABEL_WIDTH}}{line}")
        label = ""


def _machine() -> Iterator[str]:
    from rdpfl_sim.files import memory_bytes

    cores, memory_gb = os.cpu_count() or 1, memory_bytes() / 1e9
    yield f"{platform.system()} {platform.machine()}, {cores} cores, {memory_gb:.0f} GB of memory"


def _broken_torch() -> Iterator[str]:
    try:
        import torch  # noqa: F401
    except (ImportError, OSError) as error:
        yield f"torch cannot be imported: {error}"


def _versions() -> Iterator[str]:
    names = [name for name, _, extra in map(_parse, _requirements()) if extra is None]
    if not names:
        yield NOT_INSTALLED
    for start in range(0, len(names), 5):
        yield ", ".join(f"{name} {version(name)}" for name in names[start : start + 5])


def _extras() -> Iterator[str]:
    if not _requirements():
        yield NOT_INSTALLED
        return
    has_source = (Path(__file__).parents[2] / "pyproject.toml").is_file()
    for extra, purpose in {**EXTRAS, **(SOURCE_EXTRAS if has_source else {})}.items():
        missing = list(missing_packages(extra))
        if missing:
            command = f"pip install '{DISTRIBUTION}[{extra}]'"
            yield f"{extra} ({purpose}): {', '.join(missing)}; install it with: {command}"
        else:
            yield f"{extra} ({purpose}): installed"


def _devices() -> Iterator[str]:
    import torch

    from rdpfl_sim.execution.devices import describe

    yield f"cpu, {_arithmetic()}"
    for index in range(torch.cuda.device_count()):
        yield describe(torch.device("cuda", index))
    if torch.version.cuda is None:
        yield "no GPU: this build of PyTorch supports only the CPU; a GPU needs another build"
    elif not torch.cuda.is_available():
        yield "no GPU: PyTorch finds no CUDA device; if there is one, check its driver with: nvidia-smi"


def _arithmetic() -> str:
    """Return whether the CPU gives portable results, or why not."""
    from rdpfl_sim.execution import arithmetic

    reason = arithmetic.why_native("cpu")
    if reason is not None:
        return f"native arithmetic only, because {reason}"
    try:
        arithmetic.use("portable")
    except ScenarioError as error:
        return error.problems[0].message
    return "portable arithmetic"


def _data_sets() -> Iterator[str]:
    from rdpfl_sim.learning.datasets.download import CLASSES, data_folder, is_fetched

    yield "digits, synthetic: part of the package"
    folder = data_folder()
    for name in CLASSES:
        if is_fetched(name, folder):
            yield f"{name}: in {folder}"
        else:
            yield f"{name}: missing or damaged in {folder}; download it with: rdpfl-sim data {name}"


def _plugins() -> Iterator[str]:
    from rdpfl_sim.scenario.component_list import KINDS, broken_plugins

    broken = broken_plugins(KINDS)
    tables = (choice.table(name) for choice in KINDS.values() for name in choice.usable_names())
    usable = [str(table.plugin) for table in tables if table.plugin is not None]
    yield from [*usable, *(f"broken: {flaw}; update or uninstall the package" for flaw in broken)] or ["none"]


def _scenarios() -> Iterator[str]:
    from rdpfl_sim.scenario.bundled import bundled_scenarios

    yield f"{len(bundled_scenarios())} bundled; list them with: rdpfl-sim list scenarios"
