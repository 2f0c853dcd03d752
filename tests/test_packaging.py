"""The metadata of the package agrees with its code and with the workflows."""

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS_OF_THE_PACKAGE = ("ray", "tensorboard")
"""Extras that the package imports if they are installed. The others serve notebooks, docs and tests."""


def declared(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(line).name) for line in requirements}


@cache
def distributions() -> dict[str, list[str]]:
    """Return the distributions that provide each importable package; it takes seconds."""
    return dict(packages_distributions())


def imported(folder: Path) -> dict[str, Path]:
    """Return the distributions that the modules of a folder import, each with one importing module."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in {name.partition(".")[0] for name in names}:
                if name not in sys.stdlib_module_names and name != "rdpfl_sim":
                    found.update({canonicalize_name(owner): path for owner in distributions()[name]})
    return found


def test_every_imported_package_is_declared() -> None:
    extras = [line for extra in EXTRAS_OF_THE_PACKAGE for line in PROJECT["optional-dependencies"][extra]]
    allowed = declared(PROJECT["dependencies"]) | declared(extras)
    undeclared = {name: path for name, path in imported(ROOT / "rdpfl_sim").items() if name not in allowed}
    assert undeclared == {}


def test_every_declared_package_is_imported() -> None:
    assert declared(PROJECT["dependencies"]) - set(imported(ROOT / "rdpfl_sim")) == set()


def test_check_of_imports_finds_those_inside_functions(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("import os\ndef f():\n    from PIL import Image\n")
    assert set(imported(tmp_path)) == {"pillow"}


def test_classifiers_list_the_python_versions_that_are_tested() -> None:
    classifiers = PROJECT["classifiers"]
    listed = [c.rpartition(" ")[2] for c in classifiers if re.search(r":: 3\.\d+$", c)]
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())
    assert listed == workflow["jobs"]["fast"]["strategy"]["matrix"]["python"]
    oldest = SpecifierSet(PROJECT["requires-python"])
    assert all(version in oldest for version in listed)
    assert f"3.{int(listed[0].partition('.')[2]) - 1}" not in oldest


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda path: path.name)
def test_workflows_call_only_targets_of_the_makefile(path: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"run: make ([\w-]+)", path.read_text())) <= targets
    assert isinstance(yaml.safe_load(path.read_text()), dict)


def commands_of(*words: str) -> list[str]:
    """Return the commands that make would execute for a target in a new checkout."""
    command = ["make", "--dry-run", "--always-make", "--no-print-directory", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def test_make_run_installs_the_package_without_extras() -> None:
    installed = [line for line in commands_of("run") if " install " in line and not line.startswith("test ")]
    assert [line.rpartition("--quiet ")[2] for line in installed] == ["--editable ."]


@pytest.mark.parametrize("target", ["test", "test-fast", "coverage", "check", "docs"])
def test_other_targets_add_the_development_extra(target: str) -> None:
    installed = [line for line in commands_of(target) if " install " in line and not line.startswith("test ")]
    assert [line.rpartition("--quiet ")[2] for line in installed] == ["--editable .", '--editable ".[dev]"']


def test_make_run_installs_torch_first_from_a_given_index() -> None:
    lines = commands_of("run", "TORCH_INDEX=file:///wheels")
    [torch] = [number for number, line in enumerate(lines) if '--index-url "file:///wheels"' in line]
    assert torch < lines.index(next(line for line in lines if line.endswith("--editable .")))


@pytest.mark.parametrize("name", ["SECURITY.md", "CONTRIBUTING.md"])
def test_files_that_a_guide_names_exist(name: str) -> None:
    named = re.findall(r"`((?:tests|rdpfl_sim|docs|scenarios|analysis)/[\w/.]+)`", (ROOT / name).read_text())
    assert [path for path in named if not (ROOT / path).exists()] == []
    assert named
