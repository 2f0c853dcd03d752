"""Words and units for the settings of a scenario, from the descriptions in the reference."""

from __future__ import annotations

import re

from rdpfl_sim.records.metric_names import QuantityName, name_from_path, split_unit
from rdpfl_sim.scenario.overrides import description_at
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.scenario.toml_file import TomlTable

MAX_LENGTH = 55
"""Longest description that is used as a label."""

SYMBOLS = {
    "alpha": "\N{GREEK SMALL LETTER ALPHA}",
    "epsilon": "\N{GREEK SMALL LETTER EPSILON}",
    "gamma": "\N{GREEK SMALL LETTER GAMMA}",
    "kappa": "\N{GREEK SMALL LETTER KAPPA}",
    "lambda": "\N{GREEK SMALL LETTER LAMDA}",
    "mu": "\N{GREEK SMALL LETTER MU}",
    "rho": "\N{GREEK SMALL LETTER RHO}",
    "sigma": "\N{GREEK SMALL LETTER SIGMA}",
    "theta": "\N{GREEK SMALL LETTER THETA}",
}


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
