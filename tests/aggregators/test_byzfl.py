"""Our aggregators, pre-aggregators and attacks against those of byzfl, which counts f instead of a fraction.

Where the definitions differ, a comment explains how, and the test compares only common cases.
"""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from rdpfl_sim import attacks
from rdpfl_sim.aggregators import (
    Aggregator,
    aggregate,
    arc,
    bucketing,
    caf,
    centred_clipping,
    clipping,
    geometric_median,
    krum,
    mda,
    meamed,
    mean,
    median,
    monna,
    multi_krum,
    nnm,
    smea,
    trimmed_mean,
)
from tests.aggregators.matrices import assert_close

byzfl = pytest.importorskip("byzfl")

CASES = pytest.mark.parametrize(("n", "f"), [(3, 1), (5, 1), (8, 2), (9, 4), (10, 3), (15, 4)])


def messages(n: int, f: int, d: int = 2000) -> Tensor:
    """Return honest rows around one vector with different noise, and f rows in the opposite direction."""
    generator = torch.Generator().manual_seed(100 * n + f)
    noise = torch.linspace(0.5, 1, n).unsqueeze(1) * torch.randn(n, d, generator=generator)
    u = torch.randn(d, generator=generator) + noise
    u[:f] *= -2
    return u


@CASES
@pytest.mark.parametrize("rule", ["mean", "median", "trimmed_mean", "meamed", "monna"])
def test_aggregators_with_a_common_definition_agree(rule: str, n: int, f: int) -> None:
    u = messages(n, f)
    ours: dict[str, Aggregator] = {
        "mean": mean,
        "median": median,
        "trimmed_mean": partial(trimmed_mean, trim=f / n),
        "meamed": partial(meamed, byzantine=f / n),
        "monna": partial(monna, byzantine=f / n),
    }
    theirs = {
        "mean": byzfl.Average(),
        "median": byzfl.Median(),
        "trimmed_mean": byzfl.TrMean(f),
        "meamed": byzfl.Meamed(f),
        "monna": byzfl.MoNNA(f, idx=n - 1),
    }
    result, reference = aggregate(ours[rule], u, own=u[n - 1]), theirs[rule](u)
    assert_close(result, reference, 1e-5)


def test_trimmed_mean_of_a_fraction_cuts_what_byzfl_cuts_for_f() -> None:
    # byzfl cuts f per side whatever n is, and fails if nothing is left (n <= 2 f). Ours cuts ceil(trim n), as
    # the other rules round f up, but leaves a value or two of few messages: of 4, f = 2 becomes 1.
    for n in range(1, 16):
        u, f = messages(n, 0), -(-3 * n // 10)
        if n > 2 * f:
            assert_close(trimmed_mean(u, trim=0.3), byzfl.TrMean(f)(u), 1e-5)
        else:
            assert n in (1, 2, 4)
            assert_close(trimmed_mean(u, trim=0.3), byzfl.TrMean(f - 1)(u), 1e-5)


def test_krum_agrees_up_to_the_number_of_neighbours() -> None:
    # Blanchard et al. count n - f - 2 neighbours, byzfl n - f - 1: theirs is ours for f - 1.
    for n, f in [(8, 2), (10, 3), (15, 4)]:
        u = messages(n, f)
        assert_close(krum(u, byzantine=(f - 1) / n), byzfl.Krum(f)(u), 1e-6)
        kept = partial(multi_krum, byzantine=(f - 1) / n, keep=(n - f) / n)
        assert_close(kept(u), byzfl.MultiKrum(f)(u), 1e-5)


@CASES
def test_mda_agrees_on_all_rows(n: int, f: int) -> None:
    # Of several sets with the least diameter byzfl takes the first, and we average: here there is only one.
    u = messages(n, f)
    assert_close(mda(u, byzantine=f / n), byzfl.MDA(f)(u), 1e-5)


@pytest.mark.parametrize(("n", "f"), [(3, 1), (5, 1), (8, 2), (10, 3)])
def test_smea_agrees_in_one_dimension(n: int, f: int) -> None:
    # For the eigenvalue byzfl takes one step of the power iteration from a random vector, another one for
    # each set of rows: only in one dimension is that the eigenvalue.
    u = messages(n, f, d=1)
    assert_close(smea(u, byzantine=f / n), byzfl.SMEA(f)(u), 1e-5)


@pytest.mark.parametrize(
    ("f", "rows"),
    [
        (1, [-4, 5, -1, 0, 1]),
        (1, [2, 0, 3, -3, 0, 2]),
        (2, [2, 0, 4, 5, -3, -3, -4]),
        (2, [-5, -4, 2, -3, -5, -5, 4, 4]),
    ],
)
def test_caf_agrees_in_one_dimension_if_two_passes_are_enough(f: int, rows: list[float]) -> None:
    # The eigenvalue is as in SMEA. byzfl divides by the largest tau of all rows, also of those without
    # weight, so that its loop need not end; ours is that of the others, the same in the first pass.
    u = torch.tensor(rows, dtype=torch.float32).unsqueeze(1)
    result = caf(u, byzantine=f / len(rows))
    assert_close(result, byzfl.CAF(f)(u), 1e-5)
    assert (result - u.mean()).abs() > 0.3, "more than one pass"


def test_geometric_median_has_at_most_the_sum_of_distances_of_byzfl() -> None:
    # byzfl smooths and takes a fixed number of steps from zero; ours goes on until they are short.
    u = messages(10, 3)
    reference = byzfl.GeometricMedian(nu=1e-6, T=1000)(u)
    assert_close(geometric_median(u, tolerance=1e-9, iterations=1000), reference, 1e-4)


@pytest.mark.parametrize("iterations", [1, 2, 5])
@pytest.mark.parametrize("radius", [5.0, 40.0, 1000.0])
def test_centred_clipping_from_zero_agrees_in_the_first_round(iterations: int, radius: float) -> None:
    # byzfl then stores its result for the next call, and we do not.
    u = messages(10, 3)
    ours = centred_clipping(u, radius=radius, iterations=iterations, start="zero")
    assert_close(ours, byzfl.CenteredClipping(L=iterations, tau=radius)(u), 1e-5)


@CASES
def test_rows_mixed_by_nnm_agree(n: int, f: int) -> None:
    u = messages(n, f)
    assert_close(nnm(u, byzantine=f / n), byzfl.NNM(f)(u), 1e-5)


@CASES
def test_rows_clipped_by_clipping_and_arc_agree(n: int, f: int) -> None:
    u = messages(n, f)
    # byzfl writes its result into its argument.
    assert_close(clipping(u, max_norm=50.0), byzfl.Clipping(50.0)(u.clone()), 1e-5)
    assert_close(arc(u, byzantine=f / n), byzfl.ARC(f)(u.clone()), 1e-5)


@pytest.mark.parametrize("size", [1, 2, 3, 10])
def test_bucketing_agrees_up_to_the_shuffle(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # byzfl draws from torch's global generator; give it the shuffle that we draw from the messages.
    u = messages(10, 3)
    order = [int((u == row).all(dim=1).nonzero()) for row in bucketing(u, size=1)]
    monkeypatch.setattr("byzfl.utils.torch_tools.permutation", lambda vectors: vectors[order])
    assert_close(bucketing(u, size=size), byzfl.Bucketing(size)(u), 1e-5)


# Attacks.


def view(honest: Tensor) -> attacks.View:
    return attacks.View(own=honest.mean(dim=0), seen=honest, ids=range(len(honest)), num_byzantine=2)


def test_attacks_with_a_common_definition_agree() -> None:
    honest = messages(8, 0)
    assert_close(
        attacks.ipm(view(honest), epsilon=0.7), byzfl.InnerProductManipulation(tau=0.7)(honest), 1e-5
    )
    assert torch.equal(attacks.inf(view(honest)).double(), byzfl.Inf()(honest))
    # Attackers of byzfl flip the honest mean, ours flip their own update: here that is the mean.
    assert_close(attacks.sign_flip(view(honest)), byzfl.SignFlipping()(honest), 1e-5)


def test_alie_agrees_up_to_its_direction_and_the_standard_deviation() -> None:
    # byzfl adds, with the deviation of a sample (h - 1); Baruch et al. and we subtract, and divide by h.
    honest, h = messages(8, 0), 8
    mu = honest.mean(dim=0)
    theirs = byzfl.ALittleIsEnough(tau=1.5)(honest)
    ours = attacks.alie(view(honest), z=1.5 * (h / (h - 1)) ** 0.5)
    assert_close(ours - mu, mu - theirs, 1e-5)


def test_noise_has_the_same_mean_and_standard_deviation() -> None:
    honest = messages(8, 0, d=100_000)
    for sample in (attacks.random(view(honest), sigma=3.0), byzfl.Gaussian(sigma=3.0)(honest)):
        assert sample.mean().item() == pytest.approx(0.0, abs=0.05)
        assert sample.std().item() == pytest.approx(3.0, rel=0.02)


def test_mimic_copies_an_honest_update() -> None:
    # byzfl copies a client of the user's choice, and we the one that is farthest out.
    honest = messages(8, 0)
    copied = attacks.mimic(view(honest))
    assert any(torch.equal(copied, byzfl.Mimic(epsilon=i)(honest)) for i in range(8))
