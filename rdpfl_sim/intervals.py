"""Means over seeds with 95 % intervals, and differences paired by seed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

from scipy.special import stdtrit  # type: ignore[import-untyped]

LEVEL = 0.95
EXPLANATION = "± is the 95 % interval (Student's t) over seeds."
"""The meaning of ± wherever it is printed."""


@dataclass(frozen=True)
class MeanInterval:
    """A mean over seeds, its standard deviation and half the width of its 95 % interval (Student's t).

    A single value has neither a deviation nor an interval.
    """

    mean: float
    deviation: float | None
    half_width: float | None
    num: int

    @property
    def low(self) -> float:
        """Lower end of the interval; the mean itself if there is no interval."""
        return self.mean - (self.half_width or 0.0)

    @property
    def high(self) -> float:
        """Upper end of the interval; the mean itself if there is no interval."""
        return self.mean + (self.half_width or 0.0)

    @property
    def excludes_zero(self) -> bool:
        """Whether there is an interval and zero is outside it."""
        return self.half_width is not None and abs(self.mean) > self.half_width


def mean_interval(values: Collection[float]) -> MeanInterval:
    """Return the mean of one value per seed, with its interval.

    >>> found = mean_interval([0.5, 0.6, 0.7])
    >>> f"{found.mean:.3f} ± {found.half_width:.3f}"
    '0.600 ± 0.248'
    """
    num = len(values)
    if num < 2:
        return MeanInterval(fmean(values), None, None, num)
    deviation = stdev(values)
    quantile = float(stdtrit(num - 1, (1 + LEVEL) / 2))
    return MeanInterval(fmean(values), deviation, quantile * deviation / sqrt(num), num)


def paired_difference(values: Mapping[int, float], baseline: Mapping[int, float]) -> MeanInterval | None:
    """Return the mean difference over the common seeds, or None if there are none.

    >>> paired_difference({1: 0.75, 2: 0.5, 3: 0.9}, {1: 0.5, 2: 0.25})
    MeanInterval(mean=0.25, deviation=0.0, half_width=0.0, num=2)
    """
    shared = values.keys() & baseline.keys()
    return mean_interval([values[seed] - baseline[seed] for seed in shared]) if shared else None
