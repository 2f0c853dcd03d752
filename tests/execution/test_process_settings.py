"""Process-wide settings with several concurrent runs."""

import gc

import torch

from rdpfl_sim.execution.devices import GC_THRESHOLDS, deterministic_torch, gc_paused


def test_settings_are_restored_when_the_last_concurrent_run_ends() -> None:
    cudnn = torch.backends.cudnn
    before = gc.get_threshold(), cudnn.deterministic
    assert before != (GC_THRESHOLDS, True)
    runs = [(gc_paused(), deterministic_torch(1)) for _ in range(2)]
    for run in runs:
        for setting in run:
            setting.__enter__()
    for setting in runs[0]:
        setting.__exit__(None, None, None)
    assert (gc.get_threshold(), cudnn.deterministic) == (GC_THRESHOLDS, True)
    for setting in runs[1]:
        setting.__exit__(None, None, None)
    assert (gc.get_threshold(), cudnn.deterministic) == before
