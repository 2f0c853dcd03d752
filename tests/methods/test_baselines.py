import torch

from rdpfl_sim.maths.aggregators import median
from rdpfl_sim.methods.base import Settings
from rdpfl_sim.methods.direct import Direct
from rdpfl_sim.methods.exchange import Received
from rdpfl_sim.methods.local import Local
from tests.support import NOWHERE, Own

SETTINGS = Settings(learning_rate=0.5, rounds=10)
W = torch.tensor([1.0, 1.0])


def test_direct_steps_along_own_direction_and_the_aggregate() -> None:
    direct = Direct(SETTINGS, lambda_=0.5, aggregator=median)
    received = [Received(j, 0, 1.0, torch.tensor([float(j), 100.0 * j])) for j in (0, 1, 5)]
    state, report = direct.update(direct.start(W, NOWHERE), Own(W - 1.0), received, NOWHERE)
    # eta K = 1, u = (1, 1), d_bar = (1, 100).
    assert state.w.tolist() == [1 - (1 + 0.5), 1 - (1 + 50.0)]
    assert report["u_norm"] == 2**0.5


def test_direct_takes_a_local_step_when_nothing_arrives() -> None:
    direct = Direct(SETTINGS, lambda_=0.5)
    assert direct.update(direct.start(W, NOWHERE), Own(W - 1.0), [], NOWHERE)[0].w.tolist() == [0.0, 0.0]


def test_local_keeps_the_locally_trained_model_to_the_bit() -> None:
    local, trained = Local(SETTINGS), torch.tensor([0.1, 0.2])
    assert local.update(local.start(W, NOWHERE), Own(trained), [], NOWHERE)[0].w is trained
