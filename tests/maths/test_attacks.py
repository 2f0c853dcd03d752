import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rdpfl_sim.maths.attacks import ATTACKS, View, adaptive, min_max, min_sum, noise, none, scaling, sign_flip

OWN = torch.tensor([1.0, -2.0, 3.0])
ONLY_OWN = OWN.unsqueeze(0)


def view(honest: Tensor = ONLY_OWN, expected: Tensor | None = None, seed: int = 1) -> View:
    return View(OWN, honest, expected, seed)


def random_updates(seed: int, num: int, size: int) -> Tensor:
    return torch.randn(num, size, generator=torch.Generator().manual_seed(seed)) + 0.5


def perturbation(g: Tensor, direction: str) -> Tensor:
    mu = g.mean(dim=0)
    return {"unit_vec": mu / mu.norm(), "sign": mu.sign(), "std": g.std(dim=0, correction=0)}[direction]


def test_none_is_the_honest_update() -> None:
    assert torch.equal(none(view()), OWN)


def test_sign_flip_reverses_and_scales() -> None:
    assert sign_flip(view(), scale=2.0).tolist() == [-2.0, 4.0, -6.0]


def test_scaling_amplifies() -> None:
    assert scaling(view(), factor=10.0).tolist() == [10.0, -20.0, 30.0]


def test_noise_has_the_given_spread_around_the_own_update_and_depends_on_the_seed_alone() -> None:
    big = View(torch.full((100_000,), 3.0), torch.zeros(1, 100_000), None, seed=5)
    m = noise(big, sigma=2.0)
    assert m.mean().item() == pytest.approx(3.0, abs=0.05)
    assert m.std().item() == pytest.approx(2.0, abs=0.05)
    assert torch.equal(m, noise(big, sigma=2.0))
    assert not torch.equal(m, noise(View(big.own, big.honest, None, seed=6), sigma=2.0))


def test_min_max_on_a_line_reaches_exactly_the_farthest_pair() -> None:
    # g = 0 and 2: mu = 1, sigma = 1, budget = 4. |1 - gamma - 2| <= 2 gives gamma = 1, so m = 0.
    g = torch.tensor([[0.0], [2.0]])
    assert min_max(view(g), direction="std").tolist() == [0.0]
    assert min_max(view(g), direction="unit_vec").tolist() == [0.0]


def test_min_sum_on_a_line_spends_exactly_the_least_sum() -> None:
    # g = 0, 1, 5: mu = 2; sums of squares 26, 17, 41; sum |mu - g|^2 = 14; gamma^2 * 3 * p^2 = 17 - 14 = 3.
    g = torch.tensor([[0.0], [1.0], [5.0]])
    assert min_sum(view(g), direction="sign").item() == pytest.approx(1.0)
    # The text's budget, the largest sum: gamma^2 = (41 - 14) / 3 = 9.
    assert min_sum(view(g), direction="sign", budget="max").item() == pytest.approx(-1.0)


@pytest.mark.parametrize("direction", ["unit_vec", "sign", "std"])
@given(seed=st.integers(0, 1000), num=st.integers(2, 8))
def test_min_max_is_the_largest_feasible_step(direction: str, seed: int, num: int) -> None:
    g = random_updates(seed, num, 6)
    p = perturbation(g, direction)
    budget = max(float((a - b).square().sum()) for a in g for b in g)

    def excess(gamma: float) -> float:
        return max(float((g.mean(dim=0) - gamma * p - row).square().sum()) for row in g) - budget

    assert_is_largest_feasible(excess, p, g.mean(dim=0), min_max(view(g), direction=direction), budget)


@pytest.mark.parametrize("direction", ["unit_vec", "sign", "std"])
@given(seed=st.integers(0, 1000), num=st.integers(2, 8))
def test_min_sum_is_the_largest_feasible_step(direction: str, seed: int, num: int) -> None:
    g = random_updates(seed, num, 6)
    p = perturbation(g, direction)
    budget = min(sum(float((a - b).square().sum()) for b in g) for a in g)

    def excess(gamma: float) -> float:
        return sum(float((g.mean(dim=0) - gamma * p - row).square().sum()) for row in g) - budget

    assert_is_largest_feasible(excess, p, g.mean(dim=0), min_sum(view(g), direction=direction), budget)


def assert_is_largest_feasible(excess, p: Tensor, mu: Tensor, m: Tensor, budget: float) -> None:
    """Compare with a doubling-and-halving search that never trusts an infeasible step."""
    feasible, step = 0.0, 1.0
    while step > 1e-6:
        if excess(feasible + step) <= 0:
            feasible += step
            step *= 2
        else:
            step /= 2
    gamma = float(torch.dot(mu - m, p) / torch.dot(p, p))
    assert gamma == pytest.approx(feasible, rel=1e-3, abs=1e-4)
    assert excess(gamma) <= 1e-4 * budget


@pytest.mark.parametrize("attack", [min_max, min_sum])
def test_without_diversity_there_is_nothing_to_hide_in(attack) -> None:
    assert torch.allclose(attack(view(OWN.repeat(4, 1))), OWN)
    assert torch.allclose(attack(view(OWN.unsqueeze(0))), OWN)
    assert torch.equal(attack(view(torch.zeros(3, 3))), torch.zeros(3))


def test_adaptive_steps_from_the_victims_prediction_against_the_honest_mean() -> None:
    honest = torch.tensor([[1.0, 0.0, 0.0], [3.0, 0.0, 2.0]])
    expected = torch.tensor([10.0, 10.0, 10.0])
    assert adaptive(view(honest, expected), step=0.5).tolist() == [9.0, 10.0, 9.5]
    assert adaptive(view(honest), step=0.25).tolist() == [1.5, 0.0, 0.75]


@pytest.mark.parametrize("name", ATTACKS)
def test_no_attack_changes_what_it_sees(name: str) -> None:
    honest, expected, own = random_updates(1, 4, 3), torch.ones(3), OWN.clone()
    copies = honest.clone(), expected.clone(), own.clone()
    ATTACKS[name](View(own, honest, expected, 1))
    assert all(torch.equal(a, b) for a, b in zip((honest, expected, own), copies, strict=True))


def test_attack_that_looks_without_saying_so_is_told() -> None:
    with pytest.raises(TypeError, match="@sees_honest"):
        min_max(View(OWN, None, None, seed=1))
