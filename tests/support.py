"""What several tests share."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from rdpfl_sim import Scenario


@dataclass
class Own:
    """The outcome of a local training that was not run."""

    w_tilde: Tensor
    num_steps: int = 2
    loss: float = 0.0


def small_scenario(**changes: Any) -> Scenario:
    """A quick run with real training; `changes` replace whole sections."""
    return Scenario.from_dict(
        {
            "rounds": 4,
            "clients": {"count": 6},
            "data": {"name": "synthetic", "shape": [8], "num_classes": 3, "num_train": 300, "num_test": 60},
            "partition": {"name": "dirichlet", "min_samples": 5},
            "model": "softmax",
            "evaluation": {"every": 2},
            **changes,
        }
    )
