"""Attacks: the vectors that Byzantine clients send instead of their updates."""

# ruff: isort: skip_file
# Attacks are listed in the order of these imports, followed by attacks in other files of this folder.
from rdpfl_sim.components.registry import import_modules
from rdpfl_sim.attacks.view import ATTACKS, Attack, View, attack
from rdpfl_sim.attacks.simple import (
    constant,
    inf,
    label_flip,
    nan,
    noise,
    none,
    random,
    scaling,
    sign_flip,
    zero,
)
from rdpfl_sim.attacks.statistical import alie, ipm
from rdpfl_sim.attacks.optimised import min_max, min_sum
from rdpfl_sim.attacks.optimised import mimic
from rdpfl_sim.attacks.optimised import dissensus
from rdpfl_sim.attacks.optimised import adaptive

__all__ = [
    "ATTACKS",
    "Attack",
    "View",
    "adaptive",
    "alie",
    "attack",
    "constant",
    "dissensus",
    "inf",
    "ipm",
    "label_flip",
    "mimic",
    "min_max",
    "min_sum",
    "nan",
    "noise",
    "none",
    "random",
    "scaling",
    "sign_flip",
    "zero",
]

import_modules(__name__, __path__)
