"""One colour per method, the same in all figures of the findings.

Colours are those of Okabe and Ito, and of Tol's muted scheme. A variant of a method has the colour of its
method and another marker.
"""

from __future__ import annotations

COLOURS = {
    "Local": "#6B6B6B",
    "Mean": "#E69F00",
    "Median": "#56B4E9",
    "Trimmed mean": "#CC79A7",
    "Geometric median": "#009E73",
    "Krum": "#999933",
    "R-DPFL": "#0072B2",
    "R-DPFL, anchored": "#D55E00",
    "D-PSGD": "#882255",
    "BALANCE": "#222222",
    "ClippedGossip": "#44AA99",
    "UBAR": "#332288",
    "Ditto": "#B8A13C",
    "DisPFL": "#8C564B",
}
VARIANTS = {
    "Trimmed-Mean": "Trimmed mean",
    "Local, twice the step": "Local",
    "Median with the bound G_d": "Median",
    "R-DPFL, predicts in silence": "R-DPFL",
    "R-DPFL, skips silence": "R-DPFL",
    "R-DPFL, anchored, λ = 0.8": "R-DPFL, anchored",
}


def colour_of(method: str) -> str:
    """Return the colour of a method. A variant has the colour of its method."""
    return COLOURS[VARIANTS.get(method, method)]
