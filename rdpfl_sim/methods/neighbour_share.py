"""How far neighbours moved a model, relative to local training."""

from __future__ import annotations

import torch
from torch import Tensor


def neighbour_share(by_neighbours: Tensor, by_training: Tensor) -> Tensor:
    """Return how far neighbours moved the models (n,), relative to local training.

    For methods that exchange directions, it is |lambda d| / |u|. For methods that exchange models, it is
    |w - x| / |x - w'|, where x is the trained model, w' the model before the round and w the model after it
    (docs/methods.md). It is NaN if local training did not change the model or has diverged.
    """
    share = by_neighbours / by_training
    return share.where((by_training > 0) & by_training.isfinite() & share.isfinite(), torch.nan)
