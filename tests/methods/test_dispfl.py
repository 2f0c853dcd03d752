from math import nan

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rdpfl_sim import simulate
from rdpfl_sim.methods.base import ClientView, Layer, RunInfo
from rdpfl_sim.methods.dispfl import Dispfl, DispflState, erk_densities
from tests.methods.one_client import client, message, send, start, stats, update
from tests.support import Services, small_scenario, trained

LAYERS = [Layer("1.weight", 0, (2, 3)), Layer("1.bias", 6, (2,))]


class Slope:
    """A batch whose gradient is given."""

    def __init__(self, *gradient: float) -> None:
        self.at = torch.tensor(gradient)

    def gradient(self, w: Tensor) -> Tensor:
        return self.at


def home(round_: int = 6, slope: Slope | None = None) -> ClientView:
    return client(round_=round_, batch=slope or Slope(*range(8)))


def state_of(w: Tensor, mask: Tensor, next_mask: Tensor) -> DispflState:
    return DispflState(w.unsqueeze(0), mask.unsqueeze(0), next_mask.unsqueeze(0))


def method(layers: list[Layer] = LAYERS, rounds: int = 10, **options) -> Dispfl:
    return Dispfl(RunInfo(rounds, layers), **options)


def mask_of(*bits: int) -> Tensor:
    return torch.tensor(bits, dtype=torch.bool)


FLAT = [Layer("weight", 0, (2, 2))]


def test_layers_have_the_densities_of_erdos_renyi_kernel() -> None:
    # 0.5 of 8 weights; 1.weight: 6 of raw 5/6, 1.bias: 2 of raw 1. eps (5 + 2) = 4: 10/21 and 4/7.
    assert erk_densities([(2, 3), (2,)], 0.5) == pytest.approx([10 / 21, 4 / 7])


def test_layer_with_a_density_above_one_is_dense_and_the_others_share_the_rest() -> None:
    # Raw: (100, 50) 0.03, (50,) 1, (10, 5) 0.3. First eps = 0.5 * 5100 / (150 + 50 + 15) = 11.9, so that both
    # small layers are full; then eps 150 = 2550 - 100: density 2450 / 5000.
    assert erk_densities([(100, 50), (50,), (10, 5)], 0.5) == pytest.approx([0.49, 1.0, 1.0])


def test_convolution_counts_its_kernel() -> None:
    # (4 + 2 + 3 + 3) / 72 = 1/6 and (10 + 10) / 100 = 1/5: eps (12 + 20) = 0.25 * 172.
    assert erk_densities([(4, 2, 3, 3), (10, 10)], 0.25) == pytest.approx([43 / 32 / 6, 43 / 32 / 5])


@given(
    st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=4), min_size=1, max_size=6),
    st.floats(0.01, 1.0),
)
def test_densities_add_up_to_the_density_of_the_whole(shapes: list[list[int]], density: float) -> None:
    sizes = [int(torch.tensor(shape).prod()) for shape in shapes]
    densities = erk_densities(shapes, density)
    assert all(0 < d <= 1 + 1e-9 for d in densities)
    assert sum(d * size for d, size in zip(densities, sizes, strict=True)) == pytest.approx(
        density * sum(sizes)
    )


def test_start_masks_every_layer_to_its_density_and_clients_differ() -> None:
    layers = [Layer("weight", 0, (20, 30)), Layer("bias", 600, (20,))]
    states = [
        start(method(layers), torch.ones(620), ClientView(number, 0, 2, Services())) for number in (0, 1, 0)
    ]
    # 0.5 * 620 = 310 = eps (50 + 20): the bias (raw 1) is full, 290 of 600 weights are left.
    assert [int(state.mask[0, :600].sum()) for state in states] == [290] * 3
    assert all(state.mask[0, 600:].all() for state in states)
    assert torch.equal(states[0].w, states[0].mask.float())
    assert not torch.equal(states[0].mask, states[1].mask)
    assert torch.equal(states[0].mask, states[2].mask)


def test_tiny_density_keeps_one_weight_per_layer() -> None:
    assert int(start(method(density=1e-9), torch.ones(8), home()).mask.sum()) == 2


def test_smallest_weights_are_replaced_where_the_gradient_is_largest() -> None:
    # Half way, r = 0.5 / 2 (1 + cos(pi / 2)) = 1/4: of 4 weights ceil(1) = 1 goes, of 1 bias ceil(1/4) = 1.
    mask, w = mask_of(1, 1, 1, 1, 0, 0, 1, 0), torch.tensor([5.0, -0.1, 3.0, -4.0, 0.0, 0.0, 2.0, 0.0])
    slope = Slope(9.0, 1.0, 9.0, 9.0, -3.0, 2.0, 7.0, -6.0)
    state, payload = send(method(), state_of(w * 0.5, mask, mask), trained(w), home(slope=slope))
    # The second weight goes, and the fifth, with gradient -3, comes; the bias goes and comes back (7 > 6).
    assert state.next_mask[0].tolist() == mask_of(1, 0, 1, 1, 1, 0, 1, 0).tolist()
    assert torch.equal(state.mask[0], mask)
    assert torch.equal(payload.vector, w)
    assert torch.equal(payload.mask, mask)
    assert payload.size_bytes == 5 * 4 + 1


@pytest.mark.parametrize(("round_", "num"), [(1, 4), (2, 4), (4, 4), (5, 3), (6, 2), (9, 1), (10, 1)])
def test_annealing_starts_with_the_full_fraction_in_the_first_round(round_: int, num: int) -> None:
    # As in the authors' code, whose rounds are 0, ..., T - 1: r = 1/4 (1 + cos(pi (t - 1) / 10)), of 8
    # weights. Rounds 1, 2, 4, 5, 6, 9, 10: 2 (1 + 1), 2 (1 + 0.951), 2 (1 + 0.588), 2 (1 + 0.309), 2,
    # 2 (1 - 0.809), 2 (1 - 0.951), each rounded up. cos(pi / 2) is 6e-17 in float64: the 2 must not be a 3.
    layers = [Layer("weight", 0, (4, 4))]
    mask = torch.arange(16) < 8
    slope = Slope(*[0.0] * 8, *[1.0] * 8)
    where = home(round_, slope)
    state, _ = send(method(layers), state_of(torch.ones(16), mask, mask), trained(torch.ones(16)), where)
    assert int((state.next_mask & ~mask).sum()) == num
    assert int(state.next_mask.sum()) == 8


@pytest.mark.parametrize("broken", [nan, float("inf")])
def test_mask_of_a_diverged_model_stays_as_dense_as_it_was(broken: float) -> None:
    mask = mask_of(1, 1, 1, 0, 0, 0, 1, 0)
    w = torch.full((8,), broken) * mask
    for slope in (Slope(*[nan] * 8), Slope(*range(8))):
        state, _ = send(method(prune=1.0), state_of(w, mask, mask), trained(w), home(1, slope))
        assert [int(state.next_mask[0, :6].sum()), int(state.next_mask[0, 6:].sum())] == [3, 1]


def test_random_regrowth_draws_again_every_round_and_needs_no_data() -> None:
    layers = [Layer("weight", 0, (8, 8))]
    mask = torch.arange(64) < 20

    def grown(round_: int) -> list[bool]:
        sparse = method(layers, regrow="random")
        state = state_of(torch.ones(64), mask, mask)
        return send(sparse, state, trained(torch.ones(64)), client(round_=round_))[0].next_mask.tolist()

    assert grown(1) == grown(1) != grown(2)


def test_coordinate_is_averaged_over_the_models_whose_masks_contain_it() -> None:
    mask, next_mask = mask_of(1, 1, 0, 0), mask_of(1, 0, 1, 1)
    own = trained(torch.tensor([2.0, 4.0, 0.0, 0.0]))
    received = [
        message(torch.tensor([8.0, 8.0, 8.0, 0.0]), 1.0, mask=mask_of(1, 1, 1, 0)),
        message(torch.tensor([0.0, 5.0, 6.0, 0.0]), 1.0, mask=mask_of(0, 1, 1, 0)),
    ]
    state = state_of(torch.zeros(4), mask, next_mask)
    new, report = update(method(FLAT), state, own, received, home())
    # (2 + 8) / 2; pruned; (8 + 6) / 2, without the own model; regrown, and in no other mask.
    assert new.w[0].tolist() == [5.0, 0.0, 7.0, 0.0]
    assert torch.equal(new.mask[0], next_mask)
    assert report["density"] == 0.5
    inspection = stats(method(FLAT), state, own, received, home())
    # Over the three coordinates of the new mask: 1/2 + 1/2 and 1/2.
    assert inspection.weight == pytest.approx([1 / 3, 1 / 6])


def test_stale_model_counts_less_but_fully_where_no_other_mask_has_an_entry() -> None:
    mask = mask_of(1, 0, 0, 0)
    state = state_of(torch.zeros(4), mask, mask_of(1, 1, 0, 0))
    received = [message(torch.tensor([6.0, 6.0, 6.0, 6.0]), 0.5, mask=mask_of(1, 1, 1, 1))]
    new, _ = update(method(FLAT), state, trained(torch.tensor([3.0, 0, 0, 0])), received, home())
    assert new.w[0].tolist() == pytest.approx([4.0, 6.0, 0.0, 0.0])  # (3 + 6 / 2) / 1.5


def test_message_with_an_empty_mask_has_no_effect() -> None:
    mask = mask_of(1, 1, 0, 0)
    state, own = (
        state_of(torch.zeros(4), mask, mask_of(0, 1, 1, 0)),
        trained(torch.tensor([1.0, 2.0, 0.0, 0.0])),
    )
    received = [message(torch.full((4,), 3e38), 1.0, mask=mask_of(0, 0, 0, 0))]
    assert update(method(FLAT), state, own, received, home())[0].w[0].tolist() == [0.0, 2.0, 0.0, 0.0]
    inspection = stats(method(FLAT), state, own, received, home())
    assert inspection.weight == [0.0]
    assert inspection.distance_to_own == pytest.approx([5**0.5])  # to nothing but zeros


def test_round_without_messages_keeps_the_entries_under_the_new_mask() -> None:
    state = state_of(torch.zeros(4), mask_of(1, 1, 0, 0), mask_of(0, 1, 1, 0))
    new, _ = update(method(FLAT), state, trained(torch.tensor([1.0, 2.0, 0.0, 0.0])), [], home())
    assert new.w[0].tolist() == [0.0, 2.0, 0.0, 0.0]


def test_largest_numbers_do_not_overflow() -> None:
    largest = torch.finfo(torch.float32).max
    state = state_of(torch.zeros(4), mask_of(1, 0, 0, 0), mask_of(1, 1, 0, 0))
    received = [
        message(torch.full((4,), largest), weight, mask=mask_of(1, 1, 1, 1))
        for j, weight in enumerate([1.0, 0.9, 0.7, 0.3, 1e-30, 0.1, 0.2], start=1)
    ]
    new, _ = update(method(FLAT), state, trained(torch.tensor([1.0, 0, 0, 0])), received, home())
    assert torch.isfinite(new.w).all()
    assert new.w[0, 2:].tolist() == [0.0, 0.0]


def test_diverged_own_model_stays_within_its_mask() -> None:
    state = state_of(torch.zeros(4), mask_of(1, 1, 0, 0), mask_of(1, 0, 1, 0))
    new, _ = update(method(FLAT), state, trained(torch.tensor([nan, nan, 0.0, 0.0])), [], home())
    assert new.w[0].isnan().tolist() == [True, False, False, False]


def test_interrupted_round_leaves_the_model_under_its_mask() -> None:
    dispfl = method()
    state = start(dispfl, torch.ones(8), home(0))
    cut_short, _ = send(dispfl, state, trained(state.w[0] * 2), home(1))
    work = dispfl.training(cut_short)
    assert torch.equal(work.w, state.w)
    assert torch.equal(work.mask, state.mask)


def test_messages_are_half_as_large_as_those_of_dpsgd() -> None:
    def num_bytes(name: str) -> tuple[int, int]:
        scenario = small_scenario(model={"name": "mlp", "hidden": [32]}, method=name, topology="ring")
        messages = simulate(scenario).summary["messages"]
        return messages["sent"], messages["bytes"]

    (sent, sparse), (same, dense) = num_bytes("dispfl"), num_bytes("dpsgd")
    assert sent == same
    # 8 - 32 - 3 has 387 parameters: half of them in float32, and a bit for each.
    assert dense == sent * 387 * 4
    assert sparse / sent == pytest.approx(387 * 2 + 49, abs=8)


def test_models_of_a_run_have_the_configured_density() -> None:
    result = simulate(small_scenario(method={"name": "dispfl", "density": 0.3}, topology="complete"))
    for w in result.models.vectors:
        assert 0.15 <= float((w != 0).float().mean()) <= 0.35  # 27 numbers; entries in no mask are zero
