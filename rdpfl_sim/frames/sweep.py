"""The runs of a sweep, or of any folder with runs in it, by what varies among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from rdpfl_sim.errors import RunError
from rdpfl_sim.frames.run import Run
from rdpfl_sim.intervals import MeanInterval, mean_interval, paired_difference
from rdpfl_sim.records.run_folder import SCENARIO, read_json_if_there

if TYPE_CHECKING:  # these import torch, which takes seconds
    from rdpfl_sim.sweeps.tables import Table

PLAN = "sweep.json"
HEADLINE = "accuracy.honest.personal.mean"
SCALARS = (str, int, float, bool)


@dataclass(frozen=True)
class SweepRun:
    """A run of a sweep: which case of every axis it is, its seed, and its summary in dotted keys."""

    run: Run
    labels: dict[str, str]
    seed: int
    summary: dict[str, Any]

    def value(self, metric: str) -> float | None:
        """A finite number of its summary."""
        value = self.summary.get(metric)
        usable = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
        return float(value) if usable else None  # type: ignore[arg-type]  # usable says so


MAX_AXES = 4
"""Runs that differ in more settings are no grid."""


class Sweep:
    """A sweep's folder. One that was made without `sweep.json` varies in whatever its scenarios differ in."""

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            what = "is not a folder" if self.folder.exists() else "does not exist"
            raise RunError(f"{self.folder} {what}")
        if not self._folders and not self.plan:
            raise RunError(
                f"{self.folder} is neither the folder of a run nor that of a sweep: no run is in it"
            )

    def __repr__(self) -> str:
        return f"Sweep({str(self.folder)!r})"

    @cached_property
    def plan(self) -> dict[str, Any]:
        """What is to be run: `name`, `axes`, `runs` (folders, labels) and `tables`; nothing if not known."""
        return read_json_if_there(self.folder / PLAN) or {}

    @cached_property
    def _folders(self) -> list[Path]:
        found = sorted(path.parent for path in self.folder.glob(f"*/{SCENARIO}"))
        return [path for path in found if not path.name.startswith(".")]

    @property
    def name(self) -> str:
        """What the sweep is called."""
        return str(self.plan.get("name", self.folder.resolve().name))

    @property
    def num_planned(self) -> int:
        """How many runs there will be in the end."""
        return len(self.plan.get("runs", self._folders))

    @cached_property
    def axes(self) -> dict[str, list[str]]:
        """What varies: the labels of the cases of every axis, in order."""
        if self.plan:
            return {axis["name"]: list(axis["labels"]) for axis in self.plan["axes"]}
        return {name: list(dict.fromkeys(labels)) for name, labels in self._settings.items()}

    @cached_property
    def _settings(self) -> dict[str, list[str]]:
        """By path, the settings in which the scenarios differ: one label a run."""
        from rdpfl_sim.sweeps.compare import differing_settings

        rows = differing_settings([Run(folder).scenario for folder in self._folders])
        if len(rows) > MAX_AXES:  # these runs have little to do with each other: each is a case of its own
            return {"run": [folder.name for folder in self._folders]}
        return {path: ["-" if value is None else str(value) for value in row] for path, row in rows.items()}

    @cached_property
    def runs(self) -> list[SweepRun]:
        """The runs that there are by now, in the order of the axes."""
        from rdpfl_sim.sweeps.results import flat

        found = []
        for folder, labels in self._labelled():
            run = Run(folder)
            found.append(SweepRun(run, labels, int(run.scenario.get("seed", 1)), flat(run.summary)))
        return sorted(found, key=lambda run: (self._place(run.labels), run.seed))

    def _labelled(self) -> list[tuple[Path, dict[str, str]]]:
        """The folders that there are, with their labels; one may have several, if its cases are the same."""
        if self.plan:
            planned = [(self.folder / run["folder"], run["labels"]) for run in self.plan["runs"]]
            return [(folder, labels) for folder, labels in planned if folder in self._folders]
        return [
            (folder, {path: row[place] for path, row in self._settings.items()})
            for place, folder in enumerate(self._folders)
        ]

    def _place(self, labels: Mapping[str, str]) -> list[int]:
        return [cases.index(labels[axis]) for axis, cases in self.axes.items()]

    @property
    def results(self) -> pl.DataFrame:
        """One row a run: its folder, its labels, its seed, and every number and word of its summary."""
        rows = [
            {
                "run": each.run.folder.name,
                **each.labels,
                "seed": each.seed,
                "status": each.run.status,
                **{k: v for k, v in each.summary.items() if isinstance(v, SCALARS) and k not in each.labels},
            }
            for each in self.runs
        ]
        return pl.DataFrame(rows, infer_schema_length=None, strict=False)

    def estimates(self, metric: str = HEADLINE) -> dict[tuple[str, ...], MeanInterval]:
        """Mean and interval over seeds, by the labels of the cases."""
        return {labels: mean_interval(values.values()) for labels, values in self._values(metric).items()}

    def differences(
        self, axis: str, baseline: str, metric: str = HEADLINE
    ) -> dict[tuple[str, ...], MeanInterval]:
        """Paired differences to the case `baseline` of an axis, over seeds that both have, all else equal."""
        values, place = self._values(metric), [*self.axes].index(axis)
        found = {}
        for labels, own in values.items():
            other = values.get((*labels[:place], baseline, *labels[place + 1 :]), {})
            difference = paired_difference(own, other)
            if difference is not None and labels[place] != baseline:
                found[labels] = difference
        return found

    def _values(self, metric: str) -> dict[tuple[str, ...], dict[int, float]]:
        found: dict[tuple[str, ...], dict[int, float]] = {}
        for run in self.runs:
            value = run.value(metric)
            if value is not None:
                found.setdefault(tuple(run.labels[axis] for axis in self.axes), {})[run.seed] = value
        return found

    def tables(self, layouts: Sequence[Mapping[str, Any]] = ()) -> list[Table]:
        """The tables that the sweep's file asks for, or those of other layouts (see docs/sweeps.md)."""
        from rdpfl_sim.sweeps import plan, tables

        axes = [
            {"name": name, "cases": [{"label": label} for label in labels]}
            for name, labels in self.axes.items()
        ]
        chosen = [*(layouts or self.plan.get("tables", ()))]
        planned = plan.SweepSpec.from_dict({"name": "sweep", "axis": axes, "table": chosen})
        return tables.tables(planned, [(run, run.summary) for run in self.runs])
