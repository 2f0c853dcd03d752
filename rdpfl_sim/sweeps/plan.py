"""The runs of a command: those that are missing or damaged, their data sets, and the file sweep.json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rdpfl_sim.errors import Problem, ScenarioError
from rdpfl_sim.files import write_atomically
from rdpfl_sim.records.summary import QuantityName, name_from_path, split_unit
from rdpfl_sim.results.sweep import PLAN, all_differing_settings
from rdpfl_sim.results.tables import SYMBOLS
from rdpfl_sim.scenario.overrides import description_at
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.simulation.experiment import load_data
from rdpfl_sim.sweeps.runner import folder_of, read_summary
from rdpfl_sim.toml import TomlTable, get_value

if TYPE_CHECKING:
    from rdpfl_sim.sweeps.spec import SweepSpec


@dataclass(frozen=True)
class PlannedRun:
    """One scenario of a sweep, and the labels of its cases by axis."""

    labels: dict[str, str]
    scenario: Scenario

    @property
    def key(self) -> str:
        """The name of the run's folder: a hash of the whole resolved scenario."""
        return self.scenario.hash


def write_plan(output: Path, sweep: SweepSpec, name: str, runs: Sequence[PlannedRun]) -> None:
    """Write sweep.json: the axes, the settings that vary in words, the runs, and the tables."""
    plan = {
        "name": name,
        "axes": [{"name": axis.name, "labels": [case.label for case in axis.cases]} for axis in sweep.axes],
        "words": _words(sweep, runs),
        "runs": [
            {"folder": folder_of(run, output).relative_to(output).as_posix(), "labels": run.labels}
            for run in runs
        ],
        "tables": [layout.model_dump() for layout in sweep.table],
    }
    output.mkdir(parents=True, exist_ok=True)
    write_atomically(output / PLAN, json.dumps(plan, indent=1).encode())


def _words(sweep: SweepSpec, runs: Sequence[PlannedRun]) -> dict[str, str]:
    """Return the names of the axes, and of the settings in which the cases differ, for figures."""
    first = {case: run for run in reversed(runs) for case in run.labels.items()}
    scenarios = [run.scenario.to_dict() for run in {run.key: run for run in first.values()}.values()]
    words = {axis.name: name_from_path(axis.name).label for axis in sweep.axes}
    for path in [*words, *all_differing_settings(scenarios)]:
        scenario = next((raw for raw in scenarios if get_value(raw, path) is not None), None)
        if scenario is not None:
            words[path] = setting_name(path, scenario).label
    return words


def missing_runs(runs: Iterable[PlannedRun], output: Path) -> list[PlannedRun]:
    """Return the incomplete runs; each scenario appears once."""
    unique = {run.key: run for run in runs}
    return [run for run in unique.values() if read_summary(run, output) is None]


def damaged_folders(missing: Iterable[PlannedRun], output: Path) -> list[Path]:
    """Return the folders of missing runs that were complete before and have to be repeated."""
    folders = (folder_of(run, output) for run in missing)
    return [folder for folder in folders if folder.exists()]


def check_data(runs: Iterable[PlannedRun]) -> None:
    """Load each data set of these runs once; raise a `ScenarioError` if some cannot be loaded."""
    problems: dict[str, Problem] = {}
    for scenario in {repr(run.scenario.data): run.scenario for run in runs}.values():
        try:
            load_data(scenario)
        except ScenarioError as error:
            problems |= {str(problem): problem for problem in error.problems}
    if problems:
        raise ScenarioError(list(problems.values()))


MAX_LENGTH = 55
"""Longest description that is used as a label."""


def setting_name(path: str, scenario: TomlTable) -> QuantityName:
    """Return the words and the unit of a setting in a resolved scenario.

    >>> setting_name("network.loss.probability", {"network": {"loss": {"name": "bernoulli"}}}).label
    'Probability that a message is lost'
    >>> setting_name("network.latency.mean_s", {"network": {"latency": {"name": "exponential"}}}).label
    'Mean of the exponential delay (s)'
    >>> setting_name("training.learning_rate", {}).label, setting_name("partition.alpha", {}).label
    ('Learning rate', 'Partition α')
    """
    path = path.removesuffix(".name")
    key = path.rpartition(".")[2]
    unit = split_unit(key)[1]
    words = _short_description(description_at(Scenario, scenario, path) or "")
    if words:
        symbol = f" {SYMBOLS[key]}" if key in SYMBOLS else ""
        return QuantityName(f"{words}{symbol}", unit)
    if "_" in key and split_unit(key)[0].count("_"):
        path = key
    name = name_from_path(path)
    last = name.words.rpartition(" ")[2]
    return QuantityName(name.words.removesuffix(last) + SYMBOLS.get(last, last), unit)


def _short_description(description: str) -> str:
    """Return the first clause of a description, or nothing if it is not a short noun phrase."""
    clause, separator = (*re.split("([;,:(])", description, maxsplit=1), "")[:2]
    clause = clause.strip()
    is_phrase = separator != ":" and re.match("[A-Za-z]", clause) and not re.match("in |by ", clause)
    return clause if is_phrase and len(clause) <= MAX_LENGTH else ""
