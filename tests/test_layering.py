"""The dependency direction of the design: each package imports only what stands below it."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "rdpfl_sim"
FOUNDATION = {"options", "errors", "files", "capacity", "randomness", "registry"}
ALLOWED = {
    "maths": {"options"},
    "methods": {"options", "errors", "registry", "maths"},
    "learning": {"options", "errors", "files", "capacity"},
    "world": {"options", "errors", "files", "randomness", "registry", "maths", "methods"},
    "execution": {"options", "errors", "randomness", "ray_session", "maths", "learning"},
    "records": {"errors", "files", "capacity", "randomness", "methods", "world"},
    "contracts": {
        *("errors", "randomness", "registry"),
        *("maths", "methods", "learning", "world", "execution"),
    },
    "analysis": {"errors", "files", "overrides", "records", "sweeps"},
    "report": {
        *("errors", "files", "maths", "options", "registry", "sections", "scenario"),
        *("analysis", "contracts", "records", "sweeps"),
    },
    "sweeps": {
        *("errors", "files", "options", "registry", "interruption", "ray_session"),
        *("overrides", "drafting", "scenario", "blueprint", "simulation", "records"),
    },
    "verification": {
        *("errors", "files", "randomness", "methods", "world", "records", "scenario", "summing_up", "theory"),
        *("deployment", "blueprint", "provenance", "simulation"),  # to compute and to run it again
    },
    "commands": {
        *("errors", "files", "registry", "overrides", "drafting", "scenario", "blueprint"),
        *("simulation", "resuming"),
        *("analysis", "learning", "records", "report", "sweeps", "verification"),
    },
}


def imported(path: Path) -> set[str]:
    """The parts of rdpfl_sim that a file imports."""
    parts = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: imports are absolute"
            names += [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        parts |= {name.split(".")[1] for name in names if name.startswith("rdpfl_sim.")}
    return parts


@pytest.mark.parametrize("package", ALLOWED)
def test_package_imports_only_what_stands_below_it(package: str) -> None:
    for path in (ROOT / package).rglob("*.py"):
        excess = imported(path) - ALLOWED[package] - {package}
        assert not excess, f"{path.relative_to(ROOT)} imports {sorted(excess)}"


def test_every_package_is_guarded() -> None:
    assert {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()} == set(ALLOWED)


def test_foundation_stands_on_itself() -> None:
    for name in FOUNDATION:
        assert imported(ROOT / f"{name}.py") <= FOUNDATION
