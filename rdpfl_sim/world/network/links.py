"""A directed link between two clients: how long a message takes on it, and whether it is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import Annotated, ClassVar, TypeAlias

from annotated_types import Ge, Le

from rdpfl_sim.components.options import LARGE, Doc, Fraction, Probability
from rdpfl_sim.randomness import uniform
from rdpfl_sim.world.durations import Latency

LOSS, LATENCY, COPY, COPY_LATENCY = range(4)
"""What the draws of one attempt to cross a link are for."""

ATTEMPT, MESSAGE, ROUND = 1 << 3, 1 << 8, 1 << 28
"""How far apart the draws of attempts, messages and rounds are: they never overlap."""

SPELLS = 1 << 61
"""The draws for spells of calm and of bursts are far from those for messages."""

SPELLS_PER_ERA = 1000

MAX_ATTEMPTS = MESSAGE // ATTEMPT


Spell: TypeAlias = Annotated[float, Ge(1e-3), Le(LARGE)]  # less, and a link would do nothing but change


@dataclass(slots=True)
class Link:
    """A directed link: what it is like, and what has happened on it.

    The draws that decide a message's fate are named by the sender's round and by the message's place in that
    round, so that a message which is not sent leaves the fate of all others as it is.
    """

    STATE: ClassVar = ("next_draws", "newest", "in_burst", "era", "num_spells", "spell_ends_s")

    sender: int
    recipient: int
    key: int
    latency: Latency
    loses: Loss
    propagation_s: float = 0.0
    next_draws: int = 0
    """The first draw that no message has had yet."""
    newest: int = -1
    """The draw of the newest message that has arrived, to see when one overtakes another."""
    in_burst: bool = False
    era: int = -1
    num_spells: int = 0
    spell_ends_s: float = 0.0
    """Spells of calm and of bursts take turns; the present one ends so long after its era began."""

    def next_draw(self, round_: int) -> int:
        """The name of the draws for the next message that is sent in this round, which never goes back."""
        draw = round_ * ROUND
        if draw < self.next_draws:
            draw = self.next_draws  # not the first message of the round
        self.next_draws = draw + MESSAGE
        return draw

    def delay_s(self, draw: int) -> float:
        """How long a message is on its way that has this draw for it."""
        return self.propagation_s + self.latency(uniform(self.key, draw))


Loss: TypeAlias = Callable[[Link, int, float], bool]
"""Whether a link loses the message with these draws at this time."""


def lossless(link: Link, draw: int, now_s: float) -> bool:
    """Nothing is lost."""
    return False


def bernoulli(link: Link, draw: int, now_s: float, *, probability: Probability = 0.1) -> bool:
    """Every message is lost with the same probability, independently of all others."""
    return uniform(link.key, draw + LOSS) < probability


def gilbert_elliott(
    link: Link,
    draw: int,
    now_s: float,
    *,
    mean_calm_s: Annotated[Spell, Doc("mean of the exponential time until a burst begins")] = 20.0,
    mean_burst_s: Annotated[Spell, Doc("mean of the exponential time that a burst lasts")] = 5.0,
    loss_calm: Fraction = 0.0,
    loss_burst: Fraction = 0.9,
) -> bool:
    """Losses come in bursts: every link changes between a calm and a bad state (Gilbert 1960, Elliott 1963).

    The Markov chain runs in time, not by messages, so that it does not depend on who sends how much. In the
    long run a link is bad for mean_burst_s / (mean_calm_s + mean_burst_s) of the time.
    """
    # The chain begins anew, in its stationary state, after many spells: long silences cost no time.
    era, since_s = divmod(now_s, SPELLS_PER_ERA * (mean_calm_s + mean_burst_s))
    draws = SPELLS + int(era) * ROUND
    if era != link.era:
        link.era, link.num_spells, link.spell_ends_s = int(era), 0, 0.0
        link.in_burst = uniform(link.key, draws) * (mean_calm_s + mean_burst_s) >= mean_burst_s  # turns below
    while link.spell_ends_s <= since_s:
        link.num_spells += 1
        link.in_burst = not link.in_burst
        mean_s = mean_burst_s if link.in_burst else mean_calm_s
        link.spell_ends_s -= mean_s * log(1.0 - uniform(link.key, draws + link.num_spells))
    return uniform(link.key, draw + LOSS) < (loss_burst if link.in_burst else loss_calm)


LOSSES: dict[str, Callable[..., bool]] = {
    "none": lossless,
    "bernoulli": bernoulli,
    "gilbert_elliott": gilbert_elliott,
}
