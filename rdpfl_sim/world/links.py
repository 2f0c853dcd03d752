"""A directed link between two clients: how long a message takes on it, and whether it is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from rdpfl_sim.options import Doc, Fraction, Probability
from rdpfl_sim.randomness import uniform
from rdpfl_sim.world.distributions import Latency

LOSS, BURST, LATENCY, COPY, COPY_LATENCY = range(5)
"""What the draws of one attempt to cross a link are for."""

ATTEMPT, MESSAGE, ROUND = 1 << 3, 1 << 8, 1 << 28
"""How far apart the draws of attempts, messages and rounds are: they never overlap."""

MAX_ATTEMPTS = MESSAGE // ATTEMPT


@dataclass(slots=True)
class Link:
    """A directed link: what it is like, and what has happened on it.

    The draws that decide a message's fate are named by the sender's round and by the message's place in that
    round, so that a message which is not sent leaves the fate of all others as it is.
    """

    sender: int
    recipient: int
    key: int
    latency: Latency
    loses: Loss
    propagation_s: float = 0.0
    round: int = 0
    num_in_round: int = 0
    in_burst: bool = False
    newest: int = -1
    """The number of the newest message that has arrived, to see when one overtakes another."""

    def next_draw(self, round_: int) -> int:
        """The name of the draws for the next message that is sent in this round."""
        if round_ != self.round:
            self.round, self.num_in_round = round_, 0
        draw = round_ * ROUND + self.num_in_round * MESSAGE
        self.num_in_round += 1
        return draw


Loss: TypeAlias = Callable[[Link, int], bool]


def lossless(link: Link, draw: int) -> bool:
    """Nothing is lost."""
    return False


def bernoulli(link: Link, draw: int, *, probability: Probability = 0.1) -> bool:
    """Every message is lost with the same probability, independently of all others."""
    return uniform(link.key, draw + LOSS) < probability


def gilbert_elliott(
    link: Link,
    draw: int,
    *,
    to_burst: Annotated[Fraction, Doc("probability that a burst begins with a message")] = 0.05,
    to_calm: Annotated[Fraction, Doc("probability that a burst has ended by the next message")] = 0.3,
    loss_calm: Fraction = 0.0,
    loss_burst: Fraction = 0.9,
) -> bool:
    """Losses come in bursts: a two-state Markov chain per link, one step a message.

    Gilbert 1960, Elliott 1963. In the long run a fraction to_burst / (to_burst + to_calm) of the messages
    meets a burst.
    """
    u = uniform(link.key, draw + BURST)
    link.in_burst = u >= to_calm if link.in_burst else u < to_burst
    return uniform(link.key, draw + LOSS) < (loss_burst if link.in_burst else loss_calm)


LOSSES: dict[str, Callable[..., bool]] = {
    "none": lossless,
    "bernoulli": bernoulli,
    "gilbert_elliott": gilbert_elliott,
}
