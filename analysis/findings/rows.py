"""Read the runs of the findings from the CSV files in results/; compute estimates over their seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import combinations
from math import sqrt
from pathlib import Path

import polars as pl
from scipy.special import stdtr  # type: ignore[import-untyped]
from scipy.stats import false_discovery_control  # type: ignore[import-untyped]

from rdpfl_sim.intervals import MeanInterval, mean_interval, paired_difference

HERE = Path(__file__).parent
ATTACKS = ["none", "sign_flip", "noise", "scaling", "min_max", "min_sum", "adaptive"]
LAMBDAS = ["0.01", "0.1", "0.5", "1.0"]
DEFAULTS = ("sign_flip 1", "noise 200", "scaling 10", "adaptive 0.5")
"""The strengths of these attacks in the sweep `defences`."""
ON_CIFAR10 = ("robustness", "ablation", "sensitivity", "lambda_cifar10", "ambiguities")


def read(name: str) -> pl.DataFrame:
    """Return the runs of a sweep; labels are strings."""
    return pl.read_csv(HERE / "results" / f"{name}.csv", infer_schema_length=None).with_columns(
        pl.col("^method.lambda$|^lambda$|^rounds$|^partition.alpha$").cast(pl.String)
    )


def estimate(values: Sequence[float | None]) -> MeanInterval | None:
    """Return mean and interval of the values that are not missing."""
    there = [value for value in values if value is not None]
    return mean_interval(there) if there else None


def by(
    frame: pl.DataFrame, axis: str, cases: Iterable[str], column: str = "accuracy"
) -> list[MeanInterval | None]:
    """Return one estimate per case of an axis."""
    return [estimate(frame.filter(pl.col(axis) == case)[column].to_list()) for case in cases]


def paired(
    frame: pl.DataFrame, axis: str, case: str, baseline: str, column: str = "accuracy"
) -> dict[tuple[str, ...], MeanInterval]:
    """Return the paired differences between two cases, by the labels of all other axes."""
    others = [name for name in axes_of(frame) if name != axis]
    ours, theirs = (
        _by_seed(frame.filter(pl.col(axis) == label), others, column) for label in (case, baseline)
    )
    found = {key: paired_difference(values, theirs.get(key, {})) for key, values in ours.items()}
    return {key: difference for key, difference in found.items() if difference is not None}


def _by_seed(
    frame: pl.DataFrame, axes: Sequence[str], column: str
) -> dict[tuple[str, ...], dict[int, float]]:
    """Return a column by the labels of some axes and by seed, without missing values."""
    found: dict[tuple[str, ...], dict[int, float]] = {}
    for row in frame.drop_nulls(column).iter_rows(named=True):
        found.setdefault(tuple(str(row[axis]) for axis in axes), {})[row["seed"]] = row[column]
    return found


def axes_of(frame: pl.DataFrame) -> list[str]:
    """Return the axes: the columns before the seed."""
    return frame.columns[: frame.columns.index("seed")]


def with_gain(
    frame: pl.DataFrame, local: pl.DataFrame, column: str = "accuracy", on: Sequence[str] = ("seed",)
) -> pl.DataFrame:
    """Add the column `gain`: the difference to the run of local training that has the same values in `on`."""
    baseline = local.select(*on, pl.col(column).alias("local"))
    return frame.join(baseline, on=list(on), maintain_order="left").with_columns(
        gain=pl.col(column) - pl.col("local")
    )


@cache
def gains(name: str, column: str = "accuracy") -> dict[tuple[str, ...], MeanInterval]:
    """Return the gain over local training of every case of a sweep, by its labels.

    Local training is a case of the sweep, or it is the one of the setting that the sweep shares.
    """
    frame = read(name)
    axes = axes_of(frame)
    method = next(axis for axis in axes if axis in ("method", "Defence", "variant", "reading"))
    if "Local" in frame[method]:
        local, on = frame.filter(pl.col(method) == "Local"), [axis for axis in axes if axis != method]
    else:
        local, on = (local_on_cifar10() if name in ON_CIFAR10 else local_on_digits()), []
    gained = _by_seed(with_gain(frame, local, column, [*on, "seed"]), axes, "gain")
    return {key: mean_interval([*values.values()]) for key, values in gained.items()}


def local_on_digits() -> pl.DataFrame:
    """Return local training in the setting of part 2, on which attacks have no effect."""
    return read("rivals").filter((pl.col("method") == "Local") & (pl.col("attack") == "none"))


def local_on_cifar10() -> pl.DataFrame:
    """Return the paper's setting with lambda = 0."""
    return read("sensitivity").filter((pl.col("method.lambda") == "0.0") & (pl.col("attack") == "min_sum"))


def comparisons() -> list[tuple[str, str, MeanInterval]]:
    """Return what varies, the case, and the paired difference of anchored to paper; no case is repeated."""
    found: list[tuple[str, str, MeanInterval]] = []
    sources: list[tuple[str, str, str, Callable[[tuple[str, ...]], str | None]]] = [
        ("defences", "R-DPFL", "attack", lambda key: key[0] if key[1] == "1.0" else None),
        (
            "defences",
            "R-DPFL",
            "smaller lambda",
            lambda key: f"{key[0]}, λ = {key[1]}" if key[1] != "1.0" else None,
        ),
        ("strengths", "R-DPFL", "strength", lambda key: None if key[0] in DEFAULTS else key[0]),
        # alpha = 1 is the setting of all other sweeps
        (
            "heterogeneity",
            "R-DPFL",
            "alpha",
            lambda key: f"α = {key[1]}, {key[0]}" if key[1] != "1.0" else None,
        ),
        ("loss", "R-DPFL, predicts in silence", "loss", lambda key: f"{key[0]}, late {key[1]}"),
        ("waiting", "R-DPFL", "world", lambda key: f"{key[0]}, wait {key[1]}"),
        ("topology", "R-DPFL", "noise", lambda key: f"{key[0]}, {key[1]}"),
        ("timing", "R-DPFL", "timing", lambda key: f"{key[0]}, {key[1]} content, {key[2]}"),
    ]
    for name, baseline, kind, label in sources:
        seen: set[MeanInterval] = set()
        for key, difference in paired(read(name), "method", "R-DPFL, anchored", baseline).items():
            case = label(key)
            if case is not None and difference not in seen:  # the same runs are listed once
                found.append((kind, case, difference))
                seen.add(difference)
    return found


def pairs_of_cells() -> list[tuple[str, str, str, MeanInterval]]:
    """Return sweep, other labels, the two cases, and the difference of cells in Tables I to IV.

    DisPFL and noise are left out.
    """
    found = []
    for name, axis in (
        ("clean", "Aggregation"),
        ("clean", "method.lambda"),
        ("robustness", "Defence"),
        ("ablation", "variant"),
        ("sensitivity", "method.lambda"),
    ):
        cases = [case for case in read(name)[axis].unique(maintain_order=True) if case != "DisPFL"]
        for case, other in combinations(cases, 2):
            for key, difference in paired(read(name), axis, case, other).items():
                if key != ("noise",):
                    found.append((name, ", ".join(key), f"{case} minus {other}", difference))
    return found


def p_value(difference: MeanInterval) -> float:
    """Return the two-sided p-value of a paired difference (Student's t); 1 if all runs are equal."""
    if difference.deviation is None:
        raise ValueError("a single seed has no p-value")
    if difference.deviation == 0.0:
        return 1.0 if difference.mean == 0.0 else 0.0
    t = abs(difference.mean) * sqrt(difference.num) / difference.deviation
    return float(2 * stdtr(difference.num - 1, -t))


def adjusted_p_values(differences: Iterable[MeanInterval]) -> list[float]:
    """Return the p-values of several comparisons, adjusted as by Benjamini and Hochberg."""
    return [float(p) for p in false_discovery_control([p_value(e) for e in differences], method="bh")]
