"""DFedAvgM: gossip averaging of models that were trained with momentum.

Sun, Li and Wang, "Decentralized Federated Averaging", IEEE TPAMI 2022, Algorithm 1, without quantisation.
"""

from __future__ import annotations

from typing import Annotated

from annotated_types import Lt

from rdpfl_sim.components.options import Doc, NonNegative
from rdpfl_sim.methods.base import RunInfo, State, TrainingTask, method
from rdpfl_sim.methods.dpsgd import Dpsgd


@method
class Dfedavgm(Dpsgd):
    """w <- sum_j W_ij x_j, where x comes from K heavy-ball steps whose velocity starts at 0 (DFedAvgM)."""

    momentum = "theta"

    def __init__(
        self,
        run: RunInfo,
        *,
        theta: Annotated[
            NonNegative, Lt(1), Doc("momentum of the local steps, in place of training.momentum")
        ] = 0.9,
    ) -> None:
        self.theta = theta

    def training(self, state: State) -> TrainingTask:
        """Train with momentum."""
        return TrainingTask(state.w, momentum=self.theta)
