"""What a Byzantine client sends instead of its update.

An attack is a function from what the attacker knows (`View`) to the vector that it sends. The
arguments of its decorator say what it needs to know (`AttackFacts`). mu and sigma are the coordinate-wise
mean and (population) standard deviation of the honest updates g_1..g_h.

An update is whatever the method sends. Attacks that turn a change round or make it larger (sign_flip,
scaling, ipm, adaptive, zero) measure it from `View.origin`, so that they mean the same where models are sent.

What a mailbox would refuse does no harm. Finite updates, however large, therefore make finite messages: an
entry that overflows becomes the largest number there is. `nan` and `inf` are the exceptions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Annotated, Any, Literal, TypeAlias

import torch
from annotated_types import Ge, Le
from torch import Tensor

from rdpfl_sim.components.options import LARGE, Count, Doc, NonNegative, Positive
from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.maths.aggregators import mean
from rdpfl_sim.maths.distances import blocks, squared_distances


@dataclass(frozen=True)
class View:
    """What an attacker knows when it makes up a message.

    `own` is the update that it would have sent in this `round`. `honest` (h, d) are the updates of the
    clients `ids` as far as the attacker knows them, and `num_byzantine` is how many attackers work together.
    For an attack that sees its victim, both count the victim's neighbours only; `victim` is then the victim's
    own update and `expected` the direction that it predicts, where they are known. `origin` is what the
    attacker would send if it had learnt nothing: its model before the training, or None, for zero, where
    clients send directions. `seed` names a random stream for the message. `memory` is the attacker's
    notebook: what an attack writes into it is there in the next round.
    """

    own: Tensor
    seen: Tensor | None = None
    ids: Sequence[int] = ()
    victim: Tensor | None = None
    expected: Tensor | None = None
    num_byzantine: int = 1
    round: int = 1
    seed: int = 0
    origin: Tensor | None = None
    memory: dict[str, Any] = field(default_factory=dict)

    @property
    def honest(self) -> Tensor:
        """The honest updates (h, d), for an attack that declares that it needs them."""
        if self.seen is None:
            raise TypeError(
                "an attack that uses view.honest must be declared with @attack(needs='honest') or 'victim'"
            )
        return self.seen

    def changed(self, update: Tensor, factor: float) -> Tensor:
        """o + factor (update - o), with the origin o: a change turned round or made larger."""
        if self.origin is None:
            return update * factor
        origin = self.origin.double()  # in float32 a difference could be infinite, and 0 of it no number
        return origin + factor * (update - origin)


Attack: TypeAlias = Callable[[View], Tensor]


@dataclass(frozen=True, kw_only=True)
class AttackFacts(Facts):
    """What the simulator must know about an attack."""

    needs: Literal["own", "honest", "victim"] = "own"
    """What of the `View` it reads: with "honest", attackers wait until the honest updates of the round exist;
    "victim" includes "honest", and the attack is called once per recipient."""
    collective: bool = False
    """Whether all attackers that see the same honest updates send the same vector: it is computed once."""
    poisons_labels: bool = False
    """Whether attackers train on flipped labels."""
    sends_malformed: bool = False
    """Whether it sends vectors of a wrong shape, NaN or infinity on purpose."""


ATTACKS = Registry("attack", AttackFacts)
attack = ATTACKS.register


Signed: TypeAlias = Annotated[float, Ge(-LARGE), Le(LARGE)]
Spread: TypeAlias = Annotated[NonNegative, Doc("standard deviation per coordinate")]


@attack
def none(view: View) -> Tensor:
    """u: the own update, of a Byzantine client that behaves."""
    return view.own


@attack(poisons_labels=True)
def label_flip(view: View) -> Tensor:
    """u, the own update, learnt from flipped labels: y -> C - 1 - y for C classes (Fang et al. 2020)."""
    return view.own


@attack
def sign_flip(view: View, *, scale: Positive = 1.0) -> Tensor:
    """-scale u: the own update, reversed (Yin et al. 2018)."""
    return _sendable(view.changed(view.own, -scale), view)


@attack
def scaling(view: View, *, factor: Signed = 10.0) -> Tensor:
    """factor u: amplified to dominate an average (Bagdasaryan et al. 2020 scale by the number of clients)."""
    return _sendable(view.changed(view.own, factor), view)


@attack
def noise(view: View, *, sigma: Spread = 200.0) -> Tensor:
    """u + N(0, sigma^2 I): the own update, drowned in noise as strong as that of Blanchard et al. 2017."""
    return _sendable(view.own + sigma * _standard_normal(view), view)


@attack
def random(view: View, *, sigma: Spread = 200.0) -> Tensor:
    """N(0, sigma^2 I): nothing but Gaussian noise (Blanchard et al. 2017, with sigma = 200)."""
    return sigma * _standard_normal(view)


@attack
def constant(view: View, *, value: Signed = 1.0) -> Tensor:
    """value (1, ..., 1): the same number in every entry (the same-value attack of Li et al. 2019)."""
    return torch.full_like(view.own, value)


@attack
def zero(view: View) -> Tensor:
    """(0, ..., 0), no change: drags an average towards standing still."""
    return torch.zeros_like(view.own) if view.origin is None else view.origin.clone()


@attack(sends_malformed=True)
def nan(view: View) -> Tensor:
    """(NaN, ..., NaN): what a broken client sends; mailboxes should refuse it."""
    return torch.full_like(view.own, torch.nan)


@attack(sends_malformed=True)
def inf(view: View) -> Tensor:
    """(inf, ..., inf): what a diverged client sends; mailboxes should refuse it."""
    return torch.full_like(view.own, torch.inf)


@attack(needs="honest")
def ipm(
    view: View, *, epsilon: Annotated[Positive, Doc("above h / f it turns a plain average round")] = 0.1
) -> Tensor:
    """-epsilon mu: makes the inner product of the average and mu small or negative (Xie et al. 2020)."""
    return _sendable(view.changed(mean(view.honest), -epsilon), view)


@attack(needs="honest", collective=True)
def alie(
    view: View,
    *,
    z: Annotated[Positive | None, Doc("standard deviations to lie by; by default from h and f")] = None,
) -> Tensor:
    """mu - z sigma: a little is enough, hidden within the spread of the honest (Baruch et al. 2019).

    By default z = Phi^-1((h - s) / h): of h honest and f Byzantine clients, n together, the attackers need
    s = floor(n / 2 + 1) - f supporters for a majority. The quantile is kept between 1/2 and 1 - 1/h. A
    majority of attackers, which needs no support (s <= 0, z infinite), thus hides no farther out than one
    honest update of h; attackers so few that z would be negative send mu.
    """
    mu, sigma = _moments(view.honest)
    if z is None:
        h, f = len(view.honest), view.num_byzantine
        s = (h + f) // 2 + 1 - f
        z = NormalDist().inv_cdf(max(0.5, min((h - s) / h, 1 - 1 / h)))
    return _sendable(mu - z * sigma, view)


Direction: TypeAlias = Annotated[
    Literal["unit_vec", "sign", "std"], Doc("the perturbation p: mu/|mu|, sign(mu) or sigma")
]


@attack(needs="honest", collective=True)
def min_max(view: View, *, direction: Direction = "std") -> Tensor:
    """mu - gamma p, as far out as the two most distant honest updates are from each other.

    The largest gamma with max_i |m - g_i|^2 <= max_ij |g_i - g_j|^2 (Shejwalkar and Houmansadr, NDSS 2021).
    Each constraint is a quadratic in gamma that 0 satisfies, so gamma is the least of their larger roots.
    """
    g = view.honest
    mu, p = _mean_and_perturbation(g, direction)
    a = p.square().sum()
    if a == 0:
        return _sendable(mu, view)
    b = torch.stack([(m - rows) @ q for rows, m, q in blocks(g, mu, p)]).sum(dim=0)
    slack = (squared_distances(g).max() - _squared_distances_to(mu, g)).clamp(min=0)
    gamma = ((b + (b.square() + a * slack).sqrt()) / a).min()
    return _sendable(mu - gamma * p, view)


@attack(needs="honest", collective=True)
def min_sum(
    view: View,
    *,
    direction: Direction = "std",
    budget: Annotated[
        Literal["min", "max"], Doc("the authors' code uses the least sum, their text the largest")
    ] = "min",
) -> Tensor:
    """mu - gamma p, no farther from all honest updates together than an honest update is.

    The largest gamma with sum_i |m - g_i|^2 <= min_i sum_j |g_i - g_j|^2 (Shejwalkar and Houmansadr 2021).
    For every x, sum_j |x - g_j|^2 = h |x - mu|^2 + sum_j |mu - g_j|^2, so that the constraint says
    |m - mu| <= min_i |g_i - mu|: gamma = min_i |g_i - mu| / |p|.
    """
    g = view.honest
    mu, p = _mean_and_perturbation(g, direction)
    a = p.square().sum()
    if a == 0:
        return _sendable(mu, view)
    squares = _squared_distances_to(mu, g)
    gamma = ((squares.min() if budget == "min" else squares.max()) / a).sqrt()
    return _sendable(mu - gamma * p, view)


@attack(needs="honest")
def mimic(
    view: View,
    *,
    warmup: Annotated[Count, Doc("rounds in which the attacker still looks for its target")] = 10,
) -> Tensor:
    """g_k of the honest client k = argmax_i <z, g_i>, farthest out along the direction z of most variance.

    Copies that nothing tells from one honest client give it more than its share (Karimireddy et al. 2022).
    In round t of the warm-up, m is the running mean of the honest updates, and z takes a step of online power
    iteration: z <- (t - 1) z + y / |y|, normalised, with y = sum_i (g_i - m) <g_i - m, z>. After the warm-up
    k stays as it is. While nothing is known of k, the argmax of the others is copied; an attacker that knows
    nobody sends its own update. z starts from the g_i farthest from the mean, not at random: attackers who
    see the same find the same k, and z points to where somebody is far out.
    """
    g, memory = view.honest, view.memory
    if not view.ids:
        return view.own
    learning = memory.get("t", 0) < warmup
    if learning:
        _learn_direction(g, memory)
    elif memory["target"] in view.ids:
        return g[view.ids.index(memory["target"])].clone()
    k = int((g.double() @ memory["z"]).argmax())
    if learning:
        memory["target"] = view.ids[k]
    return g[k].clone()


def _learn_direction(g: Tensor, memory: dict[str, Any]) -> None:
    """One step of the power iteration of `mimic`, on its notes: the round t, the mean m, the direction z."""
    t = memory.get("t", 0) + 1
    mu, _ = _moments(g)
    m = mu if t == 1 else memory["m"] + (mu - memory["m"]) / t
    x = g - m
    z = memory.get("z", torch.zeros_like(m))
    if not z.any():  # the first round, or no two updates have differed so far
        z = _unit(x[x.square().sum(dim=1).argmax()])
    y = (x @ z) @ x
    memory.update(t=t, m=m, z=_unit((t - 1) * z + _unit(y)))


@attack(needs="victim")
def dissensus(
    view: View,
    *,
    epsilon: Annotated[Positive, Doc("1 undoes the pull of the honest neighbours, more reverses it")] = 1.0,
) -> Tensor:
    """x - epsilon sum_j (g_j - x) / f: keeps the victim, at x, from agreeing with its h honest neighbours.

    f attackers around the victim share the work. He, Karimireddy and Jaggi 2022, with equal gossip weights.
    A victim whose own update is not known is taken to be where its honest neighbours are, at mu.
    """
    mu = mean(view.honest).double()
    x = mu if view.victim is None else view.victim
    return _sendable(x - epsilon * len(view.honest) / view.num_byzantine * (mu - x), view)


@attack(needs="victim")
def adaptive(
    view: View, *, step: Annotated[NonNegative, Doc("size of the step, in units of the honest mean")] = 0.5
) -> Tensor:
    """d_hat - step mu: what the victim expects, less a part of its honest neighbours' mean (Section V-D).

    A victim that predicts nothing is met with (1 - step) mu.
    """
    mu = mean(view.honest)
    expected = mu if view.expected is None else view.expected
    change = mu if view.origin is None else mu - view.origin.double()
    return _sendable(expected - step * change, view)


def _sendable(m: Tensor, view: View) -> Tensor:
    """m as an update; what is too large for its type becomes the largest number of that type."""
    limit = torch.finfo(view.own.dtype).max
    return m.clamp(-limit, limit).to(view.own.dtype)


def _standard_normal(view: View) -> Tensor:
    generator = torch.Generator().manual_seed(view.seed)
    return torch.randn(view.own.shape, generator=generator).to(view.own)


def _moments(g: Tensor) -> tuple[Tensor, Tensor]:
    """mu and sigma, in float64: squares of large float32 overflow."""
    moments = []
    for (rows,) in blocks(g):
        mu = rows.mean(dim=0, dtype=torch.float64)
        moments.append(torch.stack([mu, (rows - mu).square().mean(dim=0).sqrt()]))
    mu, sigma = torch.cat(moments, dim=1)
    return mu, sigma


def _mean_and_perturbation(g: Tensor, direction: str) -> tuple[Tensor, Tensor]:
    mu, sigma = _moments(g)
    return mu, {"unit_vec": _unit(mu), "sign": mu.sign(), "std": sigma}[direction]


def _squared_distances_to(x: Tensor, g: Tensor) -> Tensor:
    """|x - g_i|^2 for every i, in float64."""
    return torch.stack([(y - rows).square().sum(dim=1) for rows, y in blocks(g, x)]).sum(dim=0)


def _unit(x: Tensor) -> Tensor:
    """x / |x|, or 0 for 0."""
    return torch.nn.functional.normalize(x, dim=0, eps=torch.finfo(x.dtype).tiny)
