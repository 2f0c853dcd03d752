"""Bundled scenarios: those of the repository's `scenarios/`, found by path without ending (`paper/lambda`).

The build copies them into the package; a checkout uses `scenarios/` itself.
"""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from pathlib import Path
from shlex import quote

from rdpfl_sim.errors import Problem, ScenarioError
from rdpfl_sim.toml import leaves, read_toml

_PACKAGE = Path(__file__).parents[1]
_COPY = _PACKAGE / "bundled_scenarios"
_NO_SCENARIO = "profiles.toml"
"""The name of files with sizes of sweeps, which other files refer to."""


def bundled_scenarios() -> dict[str, Path]:
    """Return the files of all bundled scenarios and sweeps, by name."""
    folder = _COPY if _COPY.is_dir() else _PACKAGE.parent / "scenarios"
    files = sorted(path for path in folder.rglob("*.toml") if path.name != _NO_SCENARIO)
    found = {path.relative_to(folder).with_suffix("").as_posix(): path for path in files}
    return dict(sorted(found.items(), key=lambda item: ("/" in item[0], item[0])))


def find_scenario(path: str | Path) -> Path:
    """Return the file for the path of a scenario or the name of a bundled one; a local file takes precedence.

    `ring_30pct` is the first of `./ring_30pct`, `./ring_30pct.toml` and the bundled scenario that exists.
    Raise a `ScenarioError` if there is none of them.
    """
    path = Path(path)
    for local in (path, Path(f"{path}.toml")):
        if os.path.lexists(local) and not local.is_dir():
            return local
    bundled = bundled_scenarios()
    if path.as_posix() in bundled:
        return bundled[path.as_posix()]
    raise ScenarioError([Problem(str(path), _folder_hint(path) if path.is_dir() else _missing_hint(path))])


def describe_file(path: Path) -> str:
    """Return the description at the top of a scenario file: its first comment, up to 'Look for'."""
    comment = re.match(r"(?:# (?!Look for:).*\n)*", path.read_text(encoding="utf-8"))
    assert comment is not None
    return " ".join(line.removeprefix("# ") for line in comment[0].splitlines())


def copies(source: Path, target: Path) -> dict[Path, str]:
    """Return the texts of the files to write for a copy of a scenario, by path.

    Files that the scenario refers to are copied into the folder of `target`.
    """
    text = source.read_text(encoding="utf-8")
    files: dict[Path, str] = {}
    for name in _referenced_files(source):
        other = target.with_name(Path(name).name)
        text = text.replace(f'"{name}"', f'"{other.name}"')
        files |= copies(source.parent / name, other)
    if target in files:
        raise ScenarioError([Problem(str(target), f"{source.name} refers to a file of this name")])
    return {target: text, **files}


def _referenced_files(source: Path) -> list[str]:
    values = leaves(read_toml(source)) if source.suffix == ".toml" else {}
    keys = ("base", "profiles", "path")
    return [value for key, value in values.items() if key.split(".")[-1] in keys and isinstance(value, str)]


def _folder_hint(path: Path) -> str:
    if not (path / "scenario.toml").is_file():
        return "is a folder, not a scenario"
    run = quote(str(path))
    return (
        f"is a run folder, not a scenario; for its results: rdpfl-sim show {run}; to continue an interrupted "
        f"run: rdpfl-sim resume {run}; to repeat it: rdpfl-sim run {quote(str(path / 'scenario.toml'))}"
    )


def _missing_hint(path: Path) -> str:
    name = path.with_suffix("").as_posix().removeprefix("scenarios/")
    near = get_close_matches(name, bundled_scenarios(), n=1)
    hint = f"did you mean the bundled scenario {near[0]!r}?" if near else "no bundled scenario has this name"
    return f"cannot be read: No such file or directory; {hint} (see rdpfl-sim list scenarios)"
