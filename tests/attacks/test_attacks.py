import io
from collections.abc import Callable
from dataclasses import replace
from math import hypot, isfinite, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from rdpfl_sim.attacks import (
    ATTACKS,
    View,
    adaptive,
    alie,
    constant,
    dissensus,
    inf,
    ipm,
    label_flip,
    mimic,
    min_max,
    min_sum,
    nan,
    noise,
    none,
    random,
    scaling,
    sign_flip,
    zero,
)
from rdpfl_sim.components.schema import OneOf

MAX = torch.finfo(torch.float32).max
OWN = torch.tensor([1.0, -2.0, 3.0])
ONLY_OWN = OWN.unsqueeze(0)
quick = settings(max_examples=25, deadline=None)
every_direction = pytest.mark.parametrize("direction", ["unit_vec", "sign", "std"])


def view(honest: Tensor = ONLY_OWN, **knowledge: Any) -> View:
    return View(own=OWN, seen=honest, **knowledge)


def random_updates(seed: int, num: int, size: int) -> Tensor:
    return torch.randn(num, size, generator=torch.Generator().manual_seed(seed)) + 0.5


def matrices(limit: float = MAX) -> st.SearchStrategy[Tensor]:
    shapes = st.tuples(st.integers(1, 8), st.integers(1, 4))
    entries = st.floats(-limit, limit, width=32) | st.integers(-3, 3).map(float)
    return shapes.flatmap(lambda shape: arrays(np.float32, shape, elements=entries)).map(torch.from_numpy)


# Attacks that look at nothing but the own update.


def test_none_sends_the_honest_update() -> None:
    assert torch.equal(none(view()), OWN)


def test_label_flip_sends_the_update_of_poisoned_data() -> None:
    assert torch.equal(label_flip(view()), OWN)
    assert {name for name in ATTACKS if ATTACKS.facts(name).poisons_labels} == {"label_flip"}


def test_sign_flip_reverses_and_scales() -> None:
    assert sign_flip(view(), scale=2.0).tolist() == [-2.0, 4.0, -6.0]


def test_scaling_multiplies_the_update() -> None:
    assert scaling(view(), factor=10.0).tolist() == [10.0, -20.0, 30.0]


def test_noise_has_the_given_spread_around_the_own_update_and_depends_on_the_seed_alone() -> None:
    big = View(own=torch.full((100_000,), 3.0), seed=5)
    m = noise(big, sigma=2.0)
    assert m.mean().item() == pytest.approx(3.0, abs=0.05)
    assert m.std().item() == pytest.approx(2.0, abs=0.05)
    assert torch.equal(m, noise(big, sigma=2.0))
    assert not torch.equal(m, noise(replace(big, seed=6), sigma=2.0))


def test_random_has_the_given_spread_around_zero_whatever_the_own_update() -> None:
    big = View(own=torch.full((100_000,), 3.0), seed=5)
    m = random(big, sigma=2.0)
    assert m.mean().item() == pytest.approx(0.0, abs=0.05)
    assert m.std().item() == pytest.approx(2.0, abs=0.05)
    assert torch.equal(m, random(replace(big, own=torch.zeros(100_000)), sigma=2.0))
    assert not torch.equal(m, random(replace(big, seed=6), sigma=2.0))


@pytest.mark.parametrize("attack", [noise, random])
def test_random_draws_do_not_use_the_global_generator(attack: Callable[..., Tensor]) -> None:
    before = torch.get_rng_state()
    attack(view(seed=2**64 - 1))
    assert torch.equal(torch.get_rng_state(), before)


def test_constant_zero_nan_and_inf_send_fixed_vectors() -> None:
    assert constant(view(), value=-2.5).tolist() == [-2.5, -2.5, -2.5]
    assert zero(view()).tolist() == [0.0, 0.0, 0.0]
    assert nan(view()).isnan().tolist() == [True, True, True]
    assert inf(view()).tolist() == [float("inf")] * 3


# Attacks on the mean and the spread of the honest updates.


def test_ipm_sends_a_small_multiple_of_the_negative_mean() -> None:
    honest = torch.tensor([[1.0, 0.0, 4.0], [3.0, 0.0, 0.0]])
    assert ipm(view(honest), epsilon=0.5).tolist() == [-1.0, 0.0, -1.0]
    assert ipm(view(honest)).tolist() == pytest.approx([-0.2, 0.0, -0.2])


def test_alie_moves_the_mean_by_z_standard_deviations() -> None:
    # mu = (1, 10), sigma = (1, 2).
    honest = torch.tensor([[0.0, 8.0], [2.0, 12.0]])
    assert alie(view(honest), z=1.5).tolist() == [-0.5, 7.0]


@pytest.mark.parametrize(
    ("num_honest", "num_byzantine", "quantile"),
    [
        (4, 4, 3 / 4),  # n = 8: 5 are a majority, so one honest supporter is enough
        (38, 12, 24 / 38),  # n = 50: s = 26 - 12 = 14
        (7, 3, 4 / 7),  # n = 10: s = 6 - 3 = 3
        (4, 5, 3 / 4),  # a majority: as if it needed one supporter
        (4, 100, 3 / 4),
        (5, 1, 1 / 2),  # n = 6: s = 4 - 1 = 3, and (5 - 3) / 5 lies on the other side of the mean
        (3, 0, 1 / 2),
        (1, 9, 1 / 2),
    ],
)
def test_alie_derives_z_from_the_numbers_of_clients(
    num_honest: int, num_byzantine: int, quantile: float
) -> None:
    honest = torch.arange(num_honest).float().unsqueeze(1)
    mu, sigma = honest.mean().item(), honest.std(correction=0).item()
    m = alie(view(honest, num_byzantine=num_byzantine))
    assert m.item() == pytest.approx(mu - NormalDist().inv_cdf(quantile) * sigma)


# Min-max and min-sum.


def perturbation(g: Tensor, direction: str) -> Tensor:
    mu = g.mean(dim=0)
    return {"unit_vec": mu / mu.norm(), "sign": mu.sign(), "std": g.std(dim=0, correction=0)}[direction]


def largest_feasible(excess: Callable[[float], float]) -> float:
    """The largest gamma with excess(gamma) <= 0: doubling, then bisection that trusts no infeasible step."""
    high = 1.0
    while excess(high) <= 0:
        high *= 2
    low = 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) <= 0 else (low, middle)
    return low


def test_min_max_on_a_line_reaches_exactly_the_farthest_pair() -> None:
    # g = 0 and 2: mu = 1, sigma = 1, budget = 4. |1 - gamma - 2| <= 2 gives gamma = 1, so m = 0.
    g = torch.tensor([[0.0], [2.0]])
    assert min_max(view(g), direction="std").tolist() == [0.0]
    assert min_max(view(g), direction="unit_vec").tolist() == [0.0]


def test_min_max_in_the_plane_equals_the_hand_computed_value() -> None:
    # mu = (3, 0), p = (1, 0), budget = 8^2: gamma^2 + 4^2 = 8^2.
    g = torch.tensor([[3.0, 4.0], [3.0, -4.0]])
    assert min_max(view(g), direction="unit_vec").tolist() == pytest.approx([3 - sqrt(48), 0.0])


def test_min_sum_on_a_line_reaches_exactly_the_least_sum() -> None:
    # g = 0, 1, 5: mu = 2; sums of squares 26, 17, 41; sum |mu - g|^2 = 14; gamma^2 * 3 * p^2 = 17 - 14 = 3.
    g = torch.tensor([[0.0], [1.0], [5.0]])
    assert min_sum(view(g), direction="sign").item() == pytest.approx(1.0)
    # The text's budget, the largest sum: gamma^2 = (41 - 14) / 3 = 9.
    assert min_sum(view(g), direction="sign", budget="max").item() == pytest.approx(-1.0)


@every_direction
@quick
@given(seed=st.integers(0, 1000), num=st.integers(2, 8))
def test_min_max_is_the_largest_feasible_step(direction: str, seed: int, num: int) -> None:
    g = random_updates(seed, num, 6)
    exact = g.double()
    mu, p = exact.mean(dim=0), perturbation(exact, direction)
    budget = max(float((a - b).square().sum()) for a in exact for b in exact)
    gamma = largest_feasible(
        lambda step: max(float((mu - step * p - row).square().sum()) for row in exact) - budget
    )
    assert min_max(view(g), direction=direction).tolist() == pytest.approx(
        (mu - gamma * p).tolist(), rel=1e-5
    )


@every_direction
@pytest.mark.parametrize("budget", ["min", "max"])
@quick
@given(seed=st.integers(0, 1000), num=st.integers(2, 8))
def test_min_sum_is_the_largest_feasible_step(direction: str, budget: str, seed: int, num: int) -> None:
    g = random_updates(seed, num, 6)
    exact = g.double()
    mu, p = exact.mean(dim=0), perturbation(exact, direction)
    choose = {"min": min, "max": max}[budget]
    allowed = choose(sum(float((a - b).square().sum()) for b in exact) for a in exact)
    gamma = largest_feasible(
        lambda step: sum(float((mu - step * p - row).square().sum()) for row in exact) - allowed
    )
    m = min_sum(view(g), direction=direction, budget=budget)
    assert m.tolist() == pytest.approx((mu - gamma * p).tolist(), rel=1e-5, abs=1e-6)


@every_direction
@pytest.mark.parametrize("attack", [min_max, min_sum])
@given(g=matrices())
def test_step_is_feasible_for_all_honest_updates(
    attack: Callable[..., Tensor], direction: str, g: Tensor
) -> None:
    m = attack(View(own=g[0], seen=g), direction=direction).tolist()
    rows = g.tolist()
    rounding = 1e-6 * max(abs(x) for row in [*rows, m] for x in row) + 1e-44

    def distance(a: list[float], b: list[float]) -> float:
        return hypot(*(x - y for x, y in zip(a, b, strict=True)))

    if attack is min_max:
        allowed = max(distance(a, b) for a in rows for b in rows)
        assert max(distance(m, a) for a in rows) <= allowed * (1 + 1e-6) + 2 * rounding
    else:
        # In roots of sums of squares, in which rounding m moves every distance by the same small amount.
        allowed = min(hypot(*(distance(a, b) for b in rows)) for a in rows)
        spent = hypot(*(distance(m, a) for a in rows))
        assert spent <= allowed * (1 + 1e-6) + 2 * len(rows) * rounding


@every_direction
@pytest.mark.parametrize("attack", [min_max, min_sum])
def test_equal_honest_updates_allow_no_deviation(attack: Callable[..., Tensor], direction: str) -> None:
    assert torch.allclose(attack(view(OWN.repeat(4, 1)), direction=direction), OWN)
    assert torch.allclose(attack(view(OWN.unsqueeze(0)), direction=direction), OWN)
    assert torch.equal(attack(view(torch.zeros(3, 3)), direction=direction), torch.zeros(3))
    exact = torch.tensor([0.1, 0.7, 0.2], dtype=torch.float64)  # the mean of three of these is rounded
    assert torch.allclose(attack(View(own=exact, seen=exact.repeat(3, 1)), direction=direction), exact)


@pytest.mark.parametrize("attack", [min_max, min_sum])
def test_direction_of_length_zero_gives_the_mean(attack: Callable[..., Tensor]) -> None:
    g = torch.tensor([[1.0, -2.0], [-1.0, 2.0]])
    assert attack(view(g), direction="unit_vec").tolist() == [0.0, 0.0]
    assert attack(view(g), direction="sign").tolist() == [0.0, 0.0]


# Mimic.

LINE = torch.tensor([[0.0], [1.0], [10.0]])
IDS = (4, 7, 9)


def test_mimic_copies_the_most_extreme_client_and_keeps_copying_it() -> None:
    memory: dict[str, Any] = {}
    assert mimic(view(LINE, ids=IDS, memory=memory), warmup=1).item() == 10.0
    assert mimic(view(torch.tensor([[50.0], [60.0], [3.0]]), ids=IDS, memory=memory), warmup=1).item() == 3.0
    assert (
        mimic(view(torch.tensor([[2.0], [60.0], [8.0]]), ids=(9, 4, 7), memory=memory), warmup=1).item()
        == 2.0
    )


def test_mimic_follows_the_most_extreme_client_during_the_warm_up() -> None:
    memory: dict[str, Any] = {}
    assert mimic(view(LINE, ids=IDS, memory=memory), warmup=2).item() == 10.0
    assert mimic(view(torch.tensor([[50.0], [60.0], [3.0]]), ids=IDS, memory=memory), warmup=2).item() == 60.0
    assert mimic(view(torch.tensor([[50.0], [6.0], [3.0]]), ids=IDS, memory=memory), warmup=2).item() == 6.0


def test_mimic_copies_another_client_only_while_its_target_is_absent() -> None:
    memory: dict[str, Any] = {}
    mimic(view(LINE, ids=IDS, memory=memory), warmup=1)
    assert mimic(view(torch.tensor([[5.0], [6.0]]), ids=(4, 7), memory=memory), warmup=1).item() == 6.0
    assert mimic(view(LINE - 20, ids=IDS, memory=memory), warmup=1).item() == -10.0


def test_mimic_updates_its_direction_with_the_clients_that_are_present() -> None:
    memory: dict[str, Any] = {}
    assert mimic(view(LINE[:1], ids=(4,), memory=memory), warmup=3).item() == 0.0
    assert mimic(view(-LINE, ids=IDS, memory=memory), warmup=3).item() == -10.0
    assert mimic(view(torch.tensor([[5.0], [6.0]]), ids=(4, 7), memory=memory), warmup=3).item() == 5.0


def test_mimic_without_honest_updates_sends_its_own_and_keeps_its_direction() -> None:
    memory: dict[str, Any] = {}
    assert torch.equal(mimic(view(memory=memory)), OWN)
    assert not memory


def test_mimic_takes_the_steps_of_the_power_iteration() -> None:
    memory: dict[str, Any] = {}
    # The mean is 0 and the farthest is (2, 0), so z = (1, 0); y = 2 (2, 0) - (-1, 1) - (-1, -1) = (6, 0).
    mimic(view(torch.tensor([[2.0, 0.0], [-1.0, 1.0], [-1.0, -1.0]]), ids=IDS, memory=memory))
    assert memory["m"].tolist() == [0.0, 0.0]
    assert memory["z"].tolist() == [1.0, 0.0]
    # The running mean is ((0, 0) + (2, 0)) / 2, which leaves (4, 3) and (-2, -3): y = (16, 12) + (4, 6).
    mimic(view(torch.tensor([[5.0, 3.0], [-1.0, -3.0]]), ids=(4, 9), memory=memory))
    assert memory["m"].tolist() == [1.0, 0.0]
    total = (1 + 20 / hypot(20, 18), 18 / hypot(20, 18))
    assert memory["z"].tolist() == pytest.approx([x / hypot(*total) for x in total])


def test_direction_of_mimic_converges_to_the_first_principal_component() -> None:
    memory: dict[str, Any] = {}
    generator = torch.Generator().manual_seed(3)
    base = torch.randn(8, 5, generator=generator) * torch.tensor([1.0, 4.0, 1.0, 1.0, 1.0])
    for _ in range(200):
        g = base + 0.1 * torch.randn(8, 5, generator=generator)
        mimic(view(g, ids=range(8), memory=memory), warmup=200)
    z = torch.linalg.eigh(base.T.cov())[1][:, -1].double()
    assert abs(float(z @ memory["z"])) > 0.999
    assert memory["target"] == (base @ memory["z"].float()).argmax()


@pytest.mark.parametrize("scale", [1e-38, 1e38])
def test_mimic_finds_the_same_direction_and_client_at_every_scale(scale: float) -> None:
    g = random_updates(2, 5, 3).clamp(-3, 3)
    usual, scaled = view(g, ids=range(5)), view(g * scale, ids=range(5))
    assert torch.equal(mimic(scaled), mimic(usual) * scale)
    assert torch.allclose(scaled.memory["z"], usual.memory["z"])


def test_memory_of_mimic_can_be_checkpointed_and_contains_no_view_of_the_honest_updates() -> None:
    memory: dict[str, Any] = {}
    g = random_updates(1, 50, 40)
    m = mimic(view(g, ids=range(50), memory=memory))
    assert m.untyped_storage().nbytes() == 40 * 4
    file = io.BytesIO()
    torch.save(memory, file)
    assert file.tell() < 5000
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert torch.equal(mimic(view(g, ids=range(50), memory=loaded)), m)
    assert loaded["t"] == 2


# Attacks on one victim.


def test_dissensus_steps_from_the_victim_away_from_its_neighbours() -> None:
    honest = torch.tensor([[1.0, 0.0, 0.0], [3.0, 0.0, 2.0]])
    known = view(honest, victim=torch.tensor([1.0, 1.0, 1.0]), num_byzantine=2)
    # The sum of g_j - x is (2, -2, 0), shared by two attackers.
    assert dissensus(known, epsilon=1.0).tolist() == [0.0, 2.0, 1.0]
    assert dissensus(known, epsilon=3.0).tolist() == [-2.0, 4.0, 1.0]
    assert dissensus(view(honest, num_byzantine=2)).tolist() == [2.0, 0.0, 1.0]


@quick
@given(seed=st.integers(0, 1000), num_honest=st.integers(1, 6), num_byzantine=st.integers(1, 6))
def test_dissensus_undoes_plain_gossip(seed: int, num_honest: int, num_byzantine: int) -> None:
    honest, victim = random_updates(seed, num_honest, 3), random_updates(seed + 1, 1, 3)
    m = dissensus(view(honest, victim=victim[0], num_byzantine=num_byzantine), epsilon=1.0)
    gossip = torch.cat([victim, honest, m.repeat(num_byzantine, 1)]).mean(dim=0)
    assert gossip.tolist() == pytest.approx(victim[0].tolist(), abs=1e-5)


def test_adaptive_steps_from_the_victims_prediction_against_the_honest_mean() -> None:
    honest = torch.tensor([[1.0, 0.0, 0.0], [3.0, 0.0, 2.0]])
    expected = torch.tensor([10.0, 10.0, 10.0])
    assert adaptive(view(honest, expected=expected), step=0.5).tolist() == [9.0, 10.0, 9.5]
    assert adaptive(view(honest), step=0.25).tolist() == [1.5, 0.0, 0.75]


@pytest.mark.parametrize(("attack", "factor"), [(ipm, -0.1), (dissensus, 1.0), (adaptive, 0.5)])
def test_mean_of_huge_updates_does_not_overflow(attack: Callable[..., Tensor], factor: float) -> None:
    honest = torch.full((10, 3), 1e38)
    assert attack(view(honest)).tolist() == pytest.approx([factor * 1e38] * 3)


# What holds for every attack.

every_attack = pytest.mark.parametrize("name", ATTACKS)
BLIND = {"none", "label_flip", "sign_flip", "scaling", "noise", "random", "constant", "zero", "nan", "inf"}


def test_decorator_declares_what_an_attack_reads() -> None:
    victims = {name for name in ATTACKS if ATTACKS.facts(name).needs == "victim"}
    assert victims == {"dissensus", "adaptive"}
    assert {name for name in ATTACKS if ATTACKS.facts(name).needs == "own"} == BLIND


@every_attack
def test_attack_without_a_declaration_reads_only_its_own_update(name: str) -> None:
    if name in BLIND:
        assert ATTACKS[name](View(own=OWN)).shape == OWN.shape
    else:
        with pytest.raises(TypeError, match="needs='honest'"):
            ATTACKS[name](View(own=OWN))


@every_attack
def test_attacks_do_not_change_their_view(name: str) -> None:
    seen = {"own": OWN.clone(), "seen": random_updates(1, 4, 3), "victim": torch.ones(3) * 2}
    seen["expected"] = torch.ones(3)
    copies = {key: tensor.clone() for key, tensor in seen.items()}
    ATTACKS[name](View(**seen, ids=range(4)))
    assert all(torch.equal(seen[key], copies[key]) for key in seen)


@every_attack
def test_options_of_an_attack_can_be_read_from_a_scenario(name: str) -> None:
    attack = OneOf(ATTACKS).validate(name).bind()
    assert attack(view(ids=(0,))).shape == OWN.shape


@pytest.mark.parametrize("name", [name for name in ATTACKS if name not in ("nan", "inf")])
@quick
@given(g=matrices(), num_byzantine=st.integers(1, 9), seed=st.integers(0, 2**64 - 1))
def test_large_finite_updates_give_finite_messages(
    name: str, g: Tensor, num_byzantine: int, seed: int
) -> None:
    own, victim, expected = g[0], g[-1], -g[0]
    knowledge = {"seen": g, "ids": range(len(g)), "victim": victim, "expected": expected, "seed": seed}
    m = ATTACKS[name](View(own=own, num_byzantine=num_byzantine, **knowledge))
    assert m.shape == own.shape
    assert m.dtype == own.dtype
    assert all(isfinite(x) for x in m.tolist())


@pytest.mark.parametrize("name", [name for name in ATTACKS if name not in BLIND])
@quick
@given(seed=st.integers(0, 100))
def test_attacks_do_not_depend_on_the_order_of_the_honest_clients(name: str, seed: int) -> None:
    g = random_updates(seed, 6, 3)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(seed)).tolist()
    m, shuffled = (ATTACKS[name](view(g[ids], ids=ids, victim=OWN)) for ids in (list(range(6)), order))
    assert torch.allclose(m, shuffled, atol=1e-5)


@pytest.mark.parametrize("attack", [ipm, alie, min_max, min_sum])
def test_wide_updates_give_the_same_step_as_narrow_ones(attack: Callable[..., Tensor]) -> None:
    g = random_updates(4, 5, 4)
    narrow = attack(View(own=g[0], seen=g, num_byzantine=3))
    wide = g.repeat(1, 10_000)
    assert torch.allclose(attack(View(own=wide[0], seen=wide, num_byzantine=3)), narrow.repeat(10_000))


# Where clients send models, a change is measured from the attacker's model before its training.

ORIGIN = torch.tensor([1.0, 1.0, 1.0])


def test_sign_flip_of_a_model_reverses_its_training() -> None:
    # w + scale (w - w~), w~ = (1, -2, 3): (1, 1, 1) + (0, 3, -2), and twice that.
    assert sign_flip(view(origin=ORIGIN)).tolist() == [1.0, 4.0, -1.0]
    assert sign_flip(view(origin=ORIGIN), scale=2.0).tolist() == [1.0, 7.0, -3.0]


def test_scaling_of_a_model_multiplies_its_training_step() -> None:
    assert scaling(view(origin=ORIGIN), factor=10.0).tolist() == [1.0, -29.0, 21.0]
    assert torch.equal(scaling(view(origin=ORIGIN), factor=0.0), ORIGIN)
    assert torch.equal(scaling(view(origin=ORIGIN), factor=1.0), OWN)


def test_zero_change_of_a_model_is_the_model_itself_and_a_new_vector() -> None:
    m = zero(view(origin=ORIGIN))
    assert torch.equal(m, ORIGIN)
    assert m is not ORIGIN


def test_ipm_on_models_moves_against_the_honest_mean_change() -> None:
    # mu = (3, 3, 5): (1, 1, 1) - 0.5 (2, 2, 4).
    honest = torch.tensor([[2.0, 4.0, 5.0], [4.0, 2.0, 5.0]])
    assert ipm(view(honest, origin=ORIGIN), epsilon=0.5).tolist() == [0.0, 0.0, -1.0]


def test_adaptive_on_models_subtracts_a_part_of_the_honest_change() -> None:
    # Gossip predicts nothing: mu - 0.5 (mu - w) = (3, 3, 5) - 0.5 (2, 2, 4).
    honest = torch.tensor([[2.0, 4.0, 5.0], [4.0, 2.0, 5.0]])
    assert adaptive(view(honest, origin=ORIGIN), step=0.5).tolist() == [2.0, 2.0, 3.0]


@pytest.mark.parametrize("attack", [min_max, min_sum])
@pytest.mark.parametrize("direction", ["unit_vec", "sign", "std"])
def test_perturbation_of_models_is_that_of_their_changes(
    attack: Callable[..., Tensor], direction: str
) -> None:
    changes = torch.tensor([[1.0, -2.0, 0.5], [1.5, -1.0, 1.0], [0.5, -1.5, 0.0]])
    origin = 10 * ORIGIN  # the models lie in another direction than the one in which they move
    of_models = attack(view(changes + origin, origin=origin), direction=direction)
    of_changes = attack(view(changes), direction=direction)
    assert (of_models - origin).tolist() == pytest.approx(of_changes.tolist(), abs=1e-4)


@pytest.mark.parametrize("name", sorted(ATTACKS))
def test_origin_at_zero_is_equivalent_to_none(name: str) -> None:
    honest = random_updates(3, 4, 3)
    looks = [view(honest, ids=range(4), seed=1, origin=origin) for origin in (None, torch.zeros(3))]
    one, other = (ATTACKS[name](look) for look in looks)
    torch.testing.assert_close(one, other, equal_nan=True)


@pytest.mark.parametrize("name", ["sign_flip", "scaling", "ipm", "adaptive"])
@pytest.mark.parametrize("factor", [1e-30, 1.0, 1e30])
def test_changes_too_large_for_float32_give_finite_messages(name: str, factor: float) -> None:
    option = {"sign_flip": "scale", "scaling": "factor", "ipm": "epsilon", "adaptive": "step"}[name]
    own = torch.tensor([MAX, -MAX, 0.0])
    look = View(own, seen=torch.stack([own, own]), origin=-own)
    m = ATTACKS[name](look, **{option: factor})
    assert torch.isfinite(m).all()
    assert m.dtype == torch.float32
    assert torch.equal(scaling(look, factor=0.0), -own)


@pytest.mark.parametrize("knows_victim", [False, True])
@pytest.mark.parametrize("name", sorted(ATTACKS.keys() - {"random", "constant", "nan", "inf"}))
def test_message_moves_with_the_origin_of_models(name: str, knows_victim: bool) -> None:
    """Methods that send models have an origin; an attack that ignores it is a different attack there."""
    generator = torch.Generator().manual_seed(0)
    own, victim, expected = torch.randn(3, 6, generator=generator)
    seen, shift = torch.randn(5, 6, generator=generator), torch.arange(1.0, 7.0) * 3

    def message(by: torch.Tensor, origin: torch.Tensor | None) -> torch.Tensor:
        of_victim = {"victim": victim + by, "expected": expected + by} if knows_victim else {}
        view = View(
            own + by, seen + by, range(5), num_byzantine=2, round=3, seed=5, origin=origin, **of_victim
        )
        return ATTACKS[name](view)

    torch.testing.assert_close(
        message(shift, shift) - shift, message(torch.zeros(6), None), atol=1e-3, rtol=0.0
    )
