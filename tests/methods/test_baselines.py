import torch

from rdpfl_sim.aggregators import median
from rdpfl_sim.methods.base import RunInfo
from rdpfl_sim.methods.direct import Direct
from rdpfl_sim.methods.local import Local
from tests.methods.one_client import messages, start, update
from tests.support import trained

SETTINGS = RunInfo(rounds=10)
W = torch.tensor([1.0, 1.0])


def test_direct_steps_along_own_direction_and_the_aggregate() -> None:
    direct = Direct(SETTINGS, lambda_=0.5, aggregator=median)
    received = messages(*([float(j), 100.0 * j] for j in (0, 1, 5)))
    state, report = update(direct, start(direct, W), trained(W - 1.0), received)
    # eta K = 1, u = (1, 1), d_bar = (1, 100).
    assert state.w[0].tolist() == [1 - (1 + 0.5), 1 - (1 + 50.0)]
    assert report["u_norm"] == 2**0.5


def test_direct_takes_a_local_step_when_nothing_arrives() -> None:
    direct = Direct(SETTINGS, lambda_=0.5)
    assert update(direct, start(direct, W), trained(W - 1.0), [])[0].w[0].tolist() == [0.0, 0.0]


def test_local_keeps_the_locally_trained_model_to_the_bit() -> None:
    local, own = Local(SETTINGS), trained(torch.tensor([0.1, 0.2]))
    assert update(local, start(local, W), own, [])[0].w is own.w
