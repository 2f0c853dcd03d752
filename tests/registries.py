"""Components that exist only while a test runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rdpfl_sim.components.registry import Registry
from rdpfl_sim.scenario.component_list import KINDS

REGISTRIES: list[Registry[..., Any]] = [choice.registry for choice in KINDS.values()]


@contextmanager
def temporary_components(registries: list[Registry[..., Any]] = REGISTRIES) -> Iterator[None]:
    """Remove components registered in the block when it ends."""
    before = [set(registry) for registry in registries]
    try:
        yield
    finally:
        for registry, names in zip(registries, before, strict=True):
            for name in set(registry) - names:
                registry.remove(name)
