"""The table at the top of the findings: the gain of every method over local training in five conditions."""

from __future__ import annotations

from dataclasses import dataclass

from rows import ATTACKS, gains

from rdpfl_sim.intervals import MeanInterval

METHODS = [
    "R-DPFL",
    "R-DPFL, anchored",
    "Median",
    "Trimmed mean",
    "Geometric median",
    "Krum",
    "Mean",
    "BALANCE",
    "UBAR",
    "ClippedGossip",
    "D-PSGD",
    "Ditto",
    "DisPFL",
]
CONDITIONS = {
    "clean": "no attack",
    "worst attack": "worst of seven attacks",
    "alpha 0.1": "few classes per\nclient (α = 0.1)",
    "40 % loss": "40 % loss,\nlate messages dropped",
    "no waiting": "no waiting,\nslow links",
}


@dataclass(frozen=True)
class Cell:
    """The gain over local training, and the attack if the condition is the worst of several."""

    gain: MeanInterval
    attack: str = ""


def overview() -> dict[tuple[str, str], Cell]:
    """Return the cells by method and condition; methods with a lambda have lambda = 1."""
    found: dict[tuple[str, str], Cell] = {}
    defences, rivals, conditions = gains("defences"), gains("rivals"), gains("overview")
    for method in METHODS:
        by_attack = {
            attack: defences.get((attack, method, "1.0")) or rivals[attack, method] for attack in ATTACKS
        }
        found[method, "clean"] = Cell(by_attack.pop("none"))
        by_attack["ipm 10"] = conditions["ipm 10", method]
        worst = min(by_attack, key=lambda attack: by_attack[attack].mean)
        found[method, "worst attack"] = Cell(by_attack[worst], worst)
        for condition in ("alpha 0.1", "40 % loss", "no waiting"):
            found[method, condition] = Cell(conditions[condition, method])
    return found
