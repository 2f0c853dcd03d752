"""The files that `rdpfl-sim new` writes: a new scenario, or a copy of a bundled one."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from rdpfl_sim.cli.common import UsageError, make_console, print_plain


def reject_existing(files: Iterable[Path], force: bool) -> None:
    """Raise a `UsageError` if a file exists and must not be replaced."""
    for file in files:
        if file.is_dir():
            raise UsageError(f"{file} is a folder, not a file")
        if file.exists() and not force:
            raise UsageError(f"{file} already exists; use --force to replace it")


def write_scenario(files: Mapping[Path, str], command: str) -> None:
    """Write the files, then print the command that runs the first one."""
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        print_plain(f"wrote {file}")
    hint = f"run it with: {command} {shlex.quote(str(next(iter(files))))}"
    make_console(stderr=True).print(hint, markup=False, highlight=False, soft_wrap=True)


def copy_example(name: str, target: Path | None, force: bool) -> int:
    """Copy a bundled scenario or sweep that can run here, and the files that it refers to.

    Print it if `target` is None.
    """
    from rdpfl_sim.components.suggestions import suggest
    from rdpfl_sim.scenario.bundled import bundled_scenarios, copies
    from rdpfl_sim.scenario.toml_file import is_sweep, read_toml

    bundled = bundled_scenarios()
    if name not in bundled:
        raise UsageError(f"no bundled scenario is called {name!r}{suggest(name, bundled)}")
    source = bundled[name]
    files = copies(source, target or Path(source.name))
    if target is not None:
        reject_existing(files, force)
    elif len(files) > 1:
        raise UsageError(f"{name} refers to other files and cannot be printed: give an output file")
    sweep = is_sweep(read_toml(source))
    _check(source, sweep)
    if target is None:
        print_plain(source.read_text(encoding="utf-8"), end="")
    else:
        write_scenario(files, "rdpfl-sim sweep" if sweep else "rdpfl-sim")
    return 0


def _check(source: Path, sweep: bool) -> None:
    """Raise a `ScenarioError` if the scenario cannot run here, for example without its data set."""
    from rdpfl_sim.scenario.scenario import Scenario
    from rdpfl_sim.simulation.experiment import Experiment
    from rdpfl_sim.sweeps.plan import check_data
    from rdpfl_sim.sweeps.spec import SweepSpec
    from rdpfl_sim.sweeps.strategies.grid import plan_runs

    if sweep:
        check_data(plan_runs(SweepSpec.load(source)))
    else:
        Experiment(Scenario.load(source))
