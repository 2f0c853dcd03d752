"""Words and units for the numbers in summary.json, used as labels of figures and columns."""

from __future__ import annotations

import re
from typing import NamedTuple

from rdpfl_sim.records.statistics import STATISTICS, TESTS

UNITS = (
    ("bytes_per_s", "bytes/s"),
    ("minutes", "min"),
    ("seconds", "s"),
    ("bytes", "bytes"),
    ("s", "s"),
)
"""Last words of a name and the unit that they state; the first match counts."""


class QuantityName(NamedTuple):
    """A quantity in words, and its unit; shares, accuracies and counts have none."""

    words: str
    unit: str = ""

    @property
    def label(self) -> str:
        """The words with a capital letter, and the unit in brackets."""
        unit = f" ({self.unit})" if self.unit else ""
        return f"{self.words[:1].upper()}{self.words[1:]}{unit}"


_GROUPS = {"honest": "honest clients", "all": "all clients"}
_QUANTILES = {"p50": "median", "p90": "90th percentile of", "p99": "99th percentile of", "max": "maximum"}
_DISTRIBUTIONS = (("delay_s", "message delay", "s"), ("neighbour_share", "neighbour share", ""))
_ROUNDS = {
    "num": "number of rounds",
    "used_per_round": "messages used per round",
    "mean_age": "mean age of used messages (rounds)",
    "clipped": "share of rounds with clipping",
    "bounded": "share of rounds bounded by G_d",
    "byzantine_weight": "weight of Byzantine messages",
    "neighbour_share": "mean neighbour share",
}
_ROUND_KINDS = {
    "all": "honest clients",
    "clean": "honest clients without Byzantine neighbours",
    "attacked": "honest clients with Byzantine neighbours",
}

_NAMES = {
    **{
        f"accuracy.{group}.{test}.{statistic.key}": QuantityName(
            f"{statistic.phrase} {test} accuracy of {clients}"
        )
        for group, clients in _GROUPS.items()
        for test in TESTS
        for statistic in STATISTICS
    },
    **{
        f"telemetry.{key}.{quantile}": QuantityName(f"{phrase} {words}", unit)
        for key, words, unit in _DISTRIBUTIONS
        for quantile, phrase in {"mean": "mean", **_QUANTILES}.items()
    },
    **{
        f"telemetry.rounds.{kind}.{key}": QuantityName(f"{words}, {clients}")
        for kind, clients in _ROUND_KINDS.items()
        for key, words in _ROUNDS.items()
    },
    **{
        f"telemetry.messages_from.{role}.{key}": QuantityName(
            f"relative weight of {senders} messages"
            if key == "relative_weight"
            else f"share of {senders} messages ignored"
            if key == "ignored"
            else f"{senders} messages {key}"
        )
        for role, senders in (("honest", "honest"), ("byzantine", "Byzantine"))
        for key in ("used", "stale", "duplicate", "rejected", "ignored", "relative_weight")
    },
    "messages.bytes": QuantityName("data sent", "bytes"),
    "num_faults": QuantityName("number of faults"),
    "num_clients": QuantityName("number of clients"),
    "num_parameters": QuantityName("number of parameters"),
    "simulated_s": QuantityName("simulated time", "s"),
    "wall.seconds": QuantityName("wall-clock time", "s"),
}


def metric_name(path: str) -> QuantityName:
    """Return the words and the unit of a number in summary.json.

    >>> metric_name("accuracy.honest.personal.worst").label
    'Worst personal accuracy of honest clients'
    >>> metric_name("time_to_accuracy_s.0.85"), metric_name("messages.left_over").label
    (QuantityName(words='simulated time to accuracy 0.85', unit='s'), 'Messages left over')
    """
    if path in _NAMES:
        return _NAMES[path]
    if path.startswith("time_to_accuracy_s."):
        return QuantityName(f"simulated time to accuracy {path.partition('.')[2]}", "s")
    return name_from_path(path.removeprefix("telemetry."))


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
    for ending, unit in UNITS:
        if key == ending and key != "s":
            return "", unit
        if key.endswith(f"_{ending}"):
            return key.removesuffix(f"_{ending}"), unit
    return key, ""
