"""Aggregators that select or weight whole messages by their pairwise distances.

They use only the squared distances D_ij = |u_i - u_j|^2. Once these are computed, the cost of a selection
does not depend on the size of the model. Rows or sets of rows with equal scores are averaged, so that the
result does not depend on the order of the rows.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Annotated, TypeAlias

import numpy as np
import torch
from annotated_types import Ge, Le
from numpy.typing import NDArray
from torch import Tensor

from rdpfl_sim.aggregators.aggregator import weighting_aggregator
from rdpfl_sim.aggregators.weighting import Byzantine, equal_shares, least, num_trusted
from rdpfl_sim.components.options import SLACK, Doc, PositiveFraction, round_up
from rdpfl_sim.vectors import distances_to, product, squared_distances

_Squares: TypeAlias = NDArray[np.float64]
MaxSubsets: TypeAlias = Annotated[
    int, Ge(1), Le(10**5), Doc("maximum number of sets of n - f rows to try; beyond it, only n are tried")
]


def _krum_weights(u: Tensor, byzantine: float, num_kept: int) -> Tensor:
    """Return the weights that average the rows with the least Krum scores, including ties."""
    num_neighbours = max(1, num_trusted(len(u), byzantine) - 2)
    in_order = squared_distances(u).sort(dim=1).values  # column 0: the distance of each row to itself
    scores = in_order[:, 1 : 1 + num_neighbours].sum(dim=1)
    return equal_shares(least(scores, num_kept))


@weighting_aggregator()
def krum(u: Tensor, *, byzantine: Byzantine = 0.3) -> Tensor:
    """The row with the least sum of squared distances to its n - f - 2 nearest others, f = ceil(byzantine n).

    Blanchard et al. 2017. At least one other row counts; with exactly one, the two closest rows always tie.
    """
    return _krum_weights(u, byzantine, 1)


@weighting_aggregator()
def multi_krum(
    u: Tensor,
    *,
    byzantine: Byzantine = 0.3,
    keep: Annotated[
        PositiveFraction | None, Doc("fraction of messages to average, rounded up (default: n - f of n)")
    ] = None,
) -> Tensor:
    """The mean of the rows with the least Krum scores: n - f of them, or the fraction `keep`.

    Blanchard et al. 2017. Rows that tie with the last one kept are kept too.
    """
    n = len(u)
    num_kept = num_trusted(n, byzantine) if keep is None else max(1, round_up(keep * n))
    return _krum_weights(u, byzantine, num_kept)


@weighting_aggregator(needs_own=True)
def monna(u: Tensor, own: Tensor, *, byzantine: Byzantine = 0.3) -> Tensor:
    """The mean of the n - f rows nearest to the client's own vector, f = ceil(byzantine n).

    Nearest-neighbour averaging, the mixing of MoNNA (Farhadkhani et al. 2023). In the paper, the client's own
    vector is one of the n. Methods that aggregate only neighbours, such as R-DPFL, average the rows nearest
    to the client's own vector. Rows that tie with the last one kept are kept too. If the client's own vector
    is not finite, all rows are equally near.
    """
    distances = distances_to(own, u).nan_to_num(nan=torch.inf)
    return equal_shares(least(distances, num_trusted(len(u), byzantine), slack=1e-6))


@weighting_aggregator()
def mda(u: Tensor, *, byzantine: Byzantine = 0.3, max_subsets: MaxSubsets = 5000) -> Tensor:
    """The mean of the n - f rows with the smallest diameter, f = ceil(byzantine n).

    Minimum diameter averaging (El Mhamdi et al. 2020, after Rousseeuw 1985). All sets of n - f rows are
    tried. If their number exceeds `max_subsets` (5000 is enough for 16 rows and f = 5), only the n - f
    nearest rows of each row are tried. The smallest diameter of these sets is at most twice the overall
    minimum, because a set of diameter D is within distance D of each of its rows.
    """
    squares: _Squares = squared_distances(u).numpy(force=True)
    sets = _candidates(squares, num_trusted(len(u), byzantine), max_subsets)
    diameters = np.zeros(len(sets))
    for i, to_i in enumerate(squares):
        np.maximum(diameters, sets[:, i] * (sets * to_i).max(axis=1), out=diameters)
    return _mean_of_best(sets, diameters, u)


@weighting_aggregator()
def smea(u: Tensor, *, byzantine: Byzantine = 0.3, max_subsets: MaxSubsets = 5000) -> Tensor:
    """The mean of the n - f rows whose covariance has the smallest top eigenvalue, f = ceil(byzantine n).

    Smallest maximum eigenvalue averaging (Allouah et al. 2023). All sets of n - f rows are tried. If their
    number exceeds `max_subsets` (5000 is enough for 16 rows and f = 5), only the n - f nearest rows of each
    row are tried, and the proof of robustness does not hold.
    """
    squares: _Squares = squared_distances(u).numpy(force=True)
    sets = _candidates(squares, num_trusted(len(u), byzantine), max_subsets)
    parts = np.array_split(sets, 1 + len(sets) // 1000)  # bounds memory use
    covariances = (_covariance(squares, part / part.sum(axis=1, keepdims=True))[1] for part in parts)
    eigenvalues = [torch.linalg.eigvalsh(torch.from_numpy(c))[:, -1].numpy() for c in covariances]
    return _mean_of_best(sets, np.concatenate(eigenvalues), u)


@weighting_aggregator()
def caf(u: Tensor, *, byzantine: Byzantine = 0.3) -> Tensor:
    """The weighted mean mu after reducing the weights of outliers along the direction of largest variance.

    Covariance-bound agnostic filter (Allouah, Guerraoui and Stephan 2025). Starting with c_i = 1, repeat
    while sum_i c_i > n - 2 f: c_i <- c_i (1 - tau_i / max_j tau_j), where tau_i = <u_i - mu, v>^2 and v is
    the top eigenvector of the covariance of the rows weighted by c. The result is the mu with the smallest
    top eigenvalue of all iterations. The maximum is over rows with positive weight, so that a distant row of
    weight 0 does not stop the weights of others from decreasing. Eigenvectors that tie are treated together.
    """
    n = len(u)
    squares: _Squares = squared_distances(u).numpy(force=True)
    enough = max(0, n - 2 * round_up(byzantine * n))
    c = np.ones(n)
    best, least_eigenvalue = c / n, np.inf
    while True:  # each pass sets the weight of at least one row to 0
        p = c / c.sum()
        gram, covariance = _covariance(squares, p)
        eigenvalues, vectors = (x.numpy() for x in torch.linalg.eigh(torch.from_numpy(covariance)))
        if eigenvalues[-1] < least_eigenvalue * (1 - SLACK):
            best, least_eigenvalue = p, eigenvalues[-1]
        top = vectors[:, eigenvalues >= eigenvalues[-1] * (1 - SLACK)]
        tau = (c > 0) * np.square(product(gram * np.sqrt(p), top)).sum(axis=1)
        farthest = tau >= tau.max() * (1 - SLACK)
        c = np.where(farthest, 0, c * (1 - tau / max(tau.max(), np.finfo(float).tiny)))
        if c.sum() <= enough + SLACK:
            break
    return torch.from_numpy(best).to(u.device)


def _candidates(squares: _Squares, k: int, max_subsets: int) -> NDArray[np.bool_]:
    """Return sets of k rows, (number of sets, n): all sets, or the k nearest rows of each row with ties."""
    n = len(squares)
    if comb(n, k) <= max_subsets:
        return _all_subsets(n, k)
    return least(torch.from_numpy(squares), k).numpy()


@lru_cache(maxsize=8)
def _all_subsets(n: int, k: int) -> NDArray[np.bool_]:
    members = np.array(list(combinations(range(n), k)))
    sets = np.zeros((len(members), n), dtype=np.bool_)
    np.put_along_axis(sets, members, True, axis=1)
    return sets


def _covariance(squares: _Squares, p: _Squares) -> tuple[_Squares, _Squares]:
    """Return B_ij = <u_i - mu, u_j - mu> and sqrt(p_i p_j) B_ij for weights p (..., n), mu = sum_i p_i u_i.

    The latter has the eigenvalues of the covariance sum_i p_i (u_i - mu) (u_i - mu)^T. B is computed from
    distances, 2 B_ij = (D p)_i + (D p)_j - p.D p - D_ij, so rows of weight 0 do not affect the others.
    """
    to_mean = product(p, squares)
    spread = (to_mean * p).sum(axis=-1)[..., None, None]
    gram: _Squares = (to_mean[..., :, None] + to_mean[..., None, :] - spread - squares) / 2
    root = np.sqrt(p)
    return gram, root[..., :, None] * gram * root[..., None, :]


def _mean_of_best(sets: NDArray[np.bool_], scores: _Squares, u: Tensor) -> Tensor:
    """Return the weights of the mean over the sets with the least score; each set is a mean of its rows."""
    best = sets[scores <= max(scores.min(), 0) * (1 + SLACK)]
    shares = best / best.sum(axis=1, keepdims=True)
    return torch.from_numpy(shares.mean(axis=0)).to(u.device)
