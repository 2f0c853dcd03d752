"""Write the pages of the findings from templates/, so that every measured number comes from results/.

A template is Markdown with expressions such as {{ gain("loss", "40 %", "used", "Median") | points }}.
Labels are those of the sweep's axes, in the order of the columns in results/.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import polars as pl
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from rows import (
    HERE,
    adjusted_p_values,
    axes_of,
    comparisons,
    estimate,
    gains,
    paired,
    pairs_of_cells,
    read,
)

from rdpfl_sim.intervals import MeanInterval

TEMPLATES = HERE / "templates"
NOTE = "<!-- Written by draw.py: edit templates/{} instead. -->\n\n"


def pages() -> dict[str, str]:
    """Return the text of every page by the name of its file."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters |= {function.__name__: function for function in FILTERS}
    environment.globals |= {function.__name__: function for function in FUNCTIONS}
    names = sorted(path.name for path in TEMPLATES.glob("*.md"))
    return {name: NOTE.format(name) + environment.get_template(name).render() for name in names}


# Numbers


def gain(sweep: str, *labels: str, column: str = "accuracy") -> MeanInterval:
    """Return the gain over local training of one case."""
    return gains(sweep, column)[labels]


def mean(sweep: str, *labels: str, column: str = "accuracy") -> MeanInterval:
    """Return the mean of one case over its seeds, without runs that have no value."""
    found = estimate([row[column] for row in _cases(sweep)[labels]])
    if found is None:
        raise ValueError(f"{sweep}, {labels}: no run has a value of {column}")
    return found


def num_missing(sweep: str, *labels: str, column: str) -> int:
    """Return how many runs of one case have no value in a column."""
    return sum(row[column] is None for row in _cases(sweep)[labels])


def of_seeds(sweep: str, *labels: str, column: str = "accuracy") -> list[float]:
    """Return one value per seed."""
    return [row[column] for row in sorted(_cases(sweep)[labels], key=lambda row: row["seed"])]


@cache
def _cases(sweep: str) -> dict[tuple[str, ...], list[dict[str, float]]]:
    """Return the rows of every case, by its labels."""
    frame = read(sweep)
    axes = axes_of(frame)
    found: dict[tuple[str, ...], list[dict[str, float]]] = {}
    for row in frame.iter_rows(named=True):
        found.setdefault(tuple(str(row[axis]) for axis in axes), []).append(row)
    return found


def change(
    sweep: str, axis: str, case: str, baseline: str, *labels: str, column: str = "accuracy"
) -> MeanInterval:
    """Return the paired difference between two cases of an axis; `labels` are those of the other axes."""
    return _changes(sweep, axis, case, baseline, column)[labels]


@cache
def _changes(
    sweep: str, axis: str, case: str, baseline: str, column: str
) -> dict[tuple[str, ...], MeanInterval]:
    return paired(read(sweep), axis, case, baseline, column)


def changes(sweep: str, axis: str, case: str, baseline: str, column: str = "accuracy") -> list[MeanInterval]:
    """Return the paired differences between two cases for all labels of the other axes."""
    return list(_changes(sweep, axis, case, baseline, column).values())


# Statements over many runs


def extremes(found: Iterable[MeanInterval]) -> dict[str, float]:
    """Return the least and the greatest mean, and the greatest upper limit of an interval."""
    listed = list(found)
    return {
        "least": min(e.mean for e in listed),
        "most": max(e.mean for e in listed),
        "upper": max(e.high for e in listed),
        "num": len(listed),
        "num_above": sum(e.low > 0 for e in listed),
        "num_below": sum(e.high < 0 for e in listed),
    }


def anchored_and_paper(*kinds: str) -> dict[str, float]:
    """Return statistics of the comparisons of the anchored estimator with the paper's."""
    return extremes(e for kind, _, e in comparisons() if not kinds or kind in kinds)


def corrected() -> dict[str, float]:
    """Return how many of them are left after Benjamini and Hochberg, and the least p-value."""
    found = adjusted_p_values(e for *_, e in comparisons())
    return {"num_left": sum(p <= 0.05 for p in found), "least": min(found)}


def identical(sweep: str, method: str) -> int:
    """Return the size of the largest group of attacks under which all runs of a method are equal."""
    groups: dict[tuple[float, ...], int] = {}
    for labels in _cases(sweep):
        if labels[1] == method:
            runs = tuple(of_seeds(sweep, *labels))
            groups[runs] = groups.get(runs, 0) + 1
    return max(groups.values())


def strengths_with_zero(method: str) -> list[str]:
    """Return the attacks under which the interval of a method's gain includes zero."""
    found = gains("strengths")
    return [attack for attack, name in found if name == method and not found[attack, name].excludes_zero]


def timing_changes(content: str, method: str) -> dict[str, float]:
    """Return the statistics of the changes of accuracy by all timing attacks, with all waiting rules."""
    attacks = [attack for attack in read("timing")["timing"].unique() if attack != "none"]
    waits = read("timing")["wait"].unique()
    return extremes(
        change("timing", "timing", attack, "none", content, wait, method)
        for attack in attacks
        for wait in waits
    )


def cells_that_differ() -> dict[str, float]:
    """Return statistics of the pairs of cells in Tables I to IV, without DisPFL and noise."""
    found = [e for *_, e in pairs_of_cells()]
    different = [e for e in found if e.excludes_zero]
    adjusted = adjusted_p_values(found)
    return {
        "num": len(found),
        "num_different": len(different),
        "most": max(abs(e.mean) for e in different),
        "num_left": sum(p <= 0.05 for p in adjusted),
    }


def farthest_from_local(*defences: str) -> float:
    """Return the greatest distance of a run in Table II from local training, without noise."""
    local = dict(zip((1, 2, 3), of_seeds("sensitivity", "min_sum", "0.0"), strict=True))
    runs = read("robustness").filter(pl.col("Defence").is_in(defences) & (pl.col("attack") != "noise"))
    return max(abs(row["accuracy"] - local[row["seed"]]) for row in runs.iter_rows(named=True))


def theory() -> dict[str, int]:
    """Return the number of runs with a measured L, and how many clients met the theorem's condition."""
    frame = read("ambiguities")
    return {"num_runs": len(frame), "num_met": int(frame["num_gamma_small_enough"].sum())}


def num_runs(*sweeps: str) -> int:
    """Return the number of runs of some sweeps."""
    return sum(len(read(sweep)) for sweep in sweeps)


# Formats


def points(found: MeanInterval) -> str:
    """Format a difference of accuracies in points, with its interval."""
    width = "" if found.half_width is None else f" ± {100 * found.half_width:.1f}"
    return bare(found.mean) + width


def bare(value: float | MeanInterval) -> str:
    """Format a difference of accuracies in points, without an interval."""
    number = value.mean if isinstance(value, MeanInterval) else value
    return _with_minus(f"{100 * number:.1f}")


def accuracy(value: float | MeanInterval) -> str:
    """Format an accuracy."""
    return f"{value.mean if isinstance(value, MeanInterval) else value:.2f}"


def whole(value: float | MeanInterval) -> str:
    """Format a number without decimals."""
    return _with_minus(f"{value.mean if isinstance(value, MeanInterval) else value:,.0f}")


def percent(value: MeanInterval) -> str:
    """Format a fraction as a percentage with its interval."""
    return f"{100 * value.mean:.0f} ± {100 * (value.half_width or 0.0):.0f} %"


def times(value: MeanInterval, baseline: MeanInterval) -> str:
    """Format a mean as a multiple of another."""
    return f"{value.mean / baseline.mean:.1f}"


def _with_minus(number: str) -> str:
    """Replace the hyphen of a negative number by a minus sign; -0.0 is 0.0."""
    return number.replace("-", "−") if float(number.replace(",", "")) != 0 else number.lstrip("-")


FILTERS = (points, bare, accuracy, whole, percent, times)
FUNCTIONS = (
    anchored_and_paper,
    cells_that_differ,
    change,
    changes,
    corrected,
    extremes,
    farthest_from_local,
    gain,
    identical,
    mean,
    num_missing,
    num_runs,
    of_seeds,
    strengths_with_zero,
    theory,
    timing_changes,
)
