"""Install real packages with entry points into a folder of a test."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rdpfl_sim.components.registry import Registry, forget_plugins
from tests.registries import REGISTRIES


class Packages:
    """Installs packages as pip would: a module on the path, and its metadata beside it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.modules: list[str] = []
        self.registries: list[Registry[..., Any]] = [*REGISTRIES]
        monkeypatch.syspath_prepend(str(folder))

    def install(self, name: str, source: str, components: Mapping[str, Iterable[str]]) -> None:
        """Install a package with one module of the same name and entry points for components, by kind."""
        (self.folder / f"{name}.py").write_text(source)
        metadata = self.folder / f"{name}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [
            f"[rdpfl_sim.{kind}]\n" + "".join(f"{component} = {name}:{component}\n" for component in names)
            for kind, names in components.items()
        ]
        (metadata / "entry_points.txt").write_text("\n".join(lines))
        self.modules.append(name)
        forget_plugins()

    def forget(self) -> None:
        """Remove the components that the packages registered, and their modules from the process."""
        for registry in self.registries:
            for name in list(registry):
                if registry[name].__module__ in self.modules:
                    registry.remove(name)
        for module in self.modules:
            sys.modules.pop(module, None)
        forget_plugins()
