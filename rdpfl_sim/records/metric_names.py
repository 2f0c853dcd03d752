"""Words and units for the numbers in summary.json, used as labels of figures and columns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from rdpfl_sim.records.evaluation_log import TARGETS
from rdpfl_sim.records.summary_fields import BOOLEAN, SUMMARY_FIELDS

UNITS = {"bytes_per_s": "bytes/s", "minutes": "min", "seconds": "s", "bytes": "bytes", "s": "s"}
"""Last words of a name and the unit that they state; the first match counts. Labels show only these units."""

_NUMBER = re.compile(r"(?<=\.)-?\d+(?=\.|$)")


class QuantityName(NamedTuple):
    """A quantity in words, and its unit; shares, accuracies and counts have none."""

    words: str
    unit: str = ""

    @property
    def label(self) -> str:
        """The words with a capital letter, and the unit in brackets."""
        unit = f" ({self.unit})" if self.unit else ""
        return f"{self.words[:1].upper()}{self.words[1:]}{unit}"


def _metric_names() -> Iterator[tuple[str, QuantityName]]:
    for key, (unit, _, words) in SUMMARY_FIELDS.items():
        name = QuantityName(words, unit if unit in UNITS.values() else "")
        if key == "time_to_accuracy_s.<accuracy>":
            for target in map(str, TARGETS):
                yield _insert(target, key), name._replace(words=_insert(target, words))
        elif words and unit != BOOLEAN:
            yield _insert("N", key), name


def _insert(value: str, text: str) -> str:
    """Replace the angle brackets in a key or in words by a value."""
    return re.sub(r"<\w+>", value, text)


METRIC_NAMES = dict(_metric_names())
"""The names of all numbers in summary.json by path; N replaces any client, age or distance."""


def metric_key(path: str) -> str:
    """Return the key in `METRIC_NAMES` of the path of a number in summary.json.

    >>> metric_key("telemetry.age.-2"), metric_key("time_to_accuracy_s.0.85")
    ('telemetry.age.N', 'time_to_accuracy_s.0.85')
    """
    return path if path in METRIC_NAMES else _NUMBER.sub("N", path)


def metric_name(path: str) -> QuantityName:
    """Return the words and the unit of a number in summary.json.

    >>> metric_name("accuracy.honest.personal.worst").label
    'Worst personal accuracy of honest clients'
    >>> metric_name("time_to_accuracy_s.0.85"), metric_name("telemetry.age.-2").label
    (QuantityName(words='simulated time to accuracy 0.85', unit='s'), 'Used messages of age -2')
    """
    name = METRIC_NAMES.get(metric_key(path))
    if name is None:
        return name_from_path(path)
    number = _NUMBER.search(path)
    return name if number is None else name._replace(words=_insert(number[0], name.words))


def name_from_path(path: str) -> QuantityName:
    """Return the words of a dotted path; the end of its last key may state a unit.

    >>> name_from_path("queue.max_delay_s")
    QuantityName(words='queue max delay', unit='s')
    """
    *sections, key = path.split(".")
    words, unit = split_unit(key)
    return QuantityName(re.sub("[_. ]+", " ", " ".join([*sections, words])).strip(), unit)


def split_unit(key: str) -> tuple[str, str]:
    """Return a key without its unit, and the unit.

    >>> split_unit("mean_burst_s"), split_unit("up_bytes_per_s"), split_unit("seconds"), split_unit("alpha")
    (('mean_burst', 's'), ('up', 'bytes/s'), ('', 's'), ('alpha', ''))
    """
    for ending, unit in UNITS.items():
        if key == ending and key != "s":
            return "", unit
        if key.endswith(f"_{ending}"):
            return key.removesuffix(f"_{ending}"), unit
    return key, ""
