"""Settings of the whole process, with several runs at the same time."""

import gc

import torch

from rdpfl_sim.execution.allocation import SELDOM, gc_paused
from rdpfl_sim.execution.determinism import deterministic_torch


def test_a_run_that_ends_does_not_undo_the_settings_of_one_that_goes_on() -> None:
    cudnn = torch.backends.cudnn
    before = gc.get_threshold(), cudnn.deterministic
    assert before != (SELDOM, True)
    runs = [(gc_paused(), deterministic_torch(1)) for _ in range(2)]
    for run in runs:
        for setting in run:
            setting.__enter__()
    for setting in runs[0]:
        setting.__exit__(None, None, None)
    assert (gc.get_threshold(), cudnn.deterministic) == (SELDOM, True)
    for setting in runs[1]:
        setting.__exit__(None, None, None)
    assert (gc.get_threshold(), cudnn.deterministic) == before
