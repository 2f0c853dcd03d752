"""The dependency direction: five tiers, in which each package imports only itself and packages above it."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "rdpfl_sim"
TIERS = {
    "basics": ["version", "errors", "randomness", "intervals", "files", "components", "toml"],
    "what a run leaves behind": ["records", "results"],
    "algorithms": ["inputs", "vectors", "aggregators", "attacks", "methods", "learning"],
    "the simulated world": ["world", "execution"],
    "one run": ["plugin_checks", "scenario", "simulation"],
    "many runs and their readers": ["sweeps", "reports", "verification", "cli"],
    "public surface": ["plugins", "__init__", "__main__"],
}
ORDER = [name for tier in TIERS.values() for name in tier]
APART = {("learning", "methods"), ("world", "learning")}
"""Pairs of packages: the first does not import the second, although the order would allow it."""

MODULES = sorted(ROOT.rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Return the packages and top-level modules of rdpfl_sim that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: imports are absolute"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("rdpfl_sim.")}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_imports_only_packages_above_its_own(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0].removesuffix(".py")
    allowed = set(ORDER[: ORDER.index(package) + 1])
    allowed -= {other for first, other in APART if first == package}
    assert imported(path) <= allowed


def test_every_package_has_a_place() -> None:
    found = {path.name.removesuffix(".py") for path in ROOT.iterdir() if path.name != "__pycache__"}
    assert found - {"py.typed"} == set(ORDER)


def test_architecture_lists_the_packages_of_every_tier_in_this_order() -> None:
    page = (ROOT.parent / "docs" / "understand" / "architecture.md").read_text()
    row = re.compile(r"^\| (?:(?:\d )?([\w ]+) )?\| `(\w+)(?:/|\.py)` \|", flags=re.MULTILINE)
    found: dict[str, list[str]] = {}
    for tier, name in row.findall(page):
        found.setdefault(tier or [*found][-1], []).append(name)
    assert found == TIERS
