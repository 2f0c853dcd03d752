"""The reference point of a payload: "no change" for methods that send models, none for directions."""

import pytest
import torch
from torch import Tensor

from rdpfl_sim.methods import METHODS
from rdpfl_sim.methods.base import Trained
from rdpfl_sim.simulation.experiment import Experiment
from tests.support import small_scenario


@pytest.mark.parametrize("name", METHODS)
def test_payload_that_moves_with_the_model_has_a_reference_point_that_moves_too(name: str) -> None:
    experiment = Experiment(small_scenario(method=name, model={"name": "mlp", "hidden": [6]}))
    method, view = experiment.method, experiment._view(0, 1)
    if not method.exchanges:
        return

    def sent_from(shift: float) -> tuple[Tensor, Tensor | None]:
        state = method.init(experiment.initial_model(0).unsqueeze(0) + shift, [view])
        second_w = method.training(state).second_w
        trained = Trained(state.w - 0.1, (1,), (0.5,), (0.1,), None if second_w is None else second_w - 0.2)
        new_state, outgoing = method.payload(state, trained, [view])
        return outgoing.vectors, method.reference_point(new_state)

    (sent, origin), (shifted, shifted_origin) = sent_from(0.0), sent_from(1.0)
    if torch.allclose(sent, shifted, atol=1e-3):
        assert (origin, shifted_origin) == (None, None)
    else:
        assert origin is not None
        assert shifted_origin is not None
        torch.testing.assert_close(shifted_origin - origin, shifted - sent)
