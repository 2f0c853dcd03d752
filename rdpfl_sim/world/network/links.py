"""A directed link between two clients. It determines the delay and the loss of each message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, TypeAlias

from annotated_types import Ge, Le

from rdpfl_sim.components.options import LARGE, Doc, Fraction, Probability
from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.randomness import exponential_quantile, uniform
from rdpfl_sim.world.network.latency import Latency


@dataclass(frozen=True, kw_only=True)
class LossFacts(Facts):
    """Metadata of a loss model, set by its decorator."""

    loses: Callable[..., bool] = lambda **options: True
    """Whether a message can be lost, given all options."""


LOSSES = Registry("loss", LossFacts)
loss = LOSSES.register

LOSS, LATENCY, COPY, COPY_LATENCY = range(4)
"""Purposes of the draws for one transmission attempt."""

ATTEMPT, MESSAGE, ROUND = 1 << 3, 1 << 8, 1 << 28
"""Offsets between the draws for attempts, messages and rounds, so that draws never overlap."""

MAX_ATTEMPTS = MESSAGE // ATTEMPT

BURST_STATES = 1 << 61
"""The first draw for calm and burst states, far from the draws for messages."""

STATES_PER_EPOCH = 1000

MeanDuration: TypeAlias = Annotated[float, Ge(1e-3), Le(LARGE)]
"""Mean duration of a state in seconds. The minimum limits the number of state changes to compute."""


@dataclass(slots=True)
class Link:
    """A directed link: its properties and its state.

    The draws for a message depend only on the sender's round and the position of the message in that round.
    A message that is not sent therefore does not change the outcome of any other message.
    """

    STATE: ClassVar = ("next_draws", "newest", "in_burst", "epoch", "num_states", "state_ends_s")

    sender: int
    recipient: int
    key: int
    latency: Latency
    loses: Loss
    propagation_s: float = 0.0
    next_draws: int = 0
    """The first draw that no message has used yet."""
    newest: int = -1
    """The draw of the newest message that has arrived. A message with a smaller draw is out of order."""
    in_burst: bool = False
    epoch: int = -1
    num_states: int = 0
    """The number of calm and burst states in this epoch so far."""
    state_ends_s: float = 0.0
    """End of the current state, in seconds from the start of the epoch."""

    def next_draw(self, round_: int) -> int:
        """Reserve the draws for the next message of the sender's current round, and return the first."""
        draw = round_ * ROUND
        if draw < self.next_draws:
            draw = self.next_draws
        self.next_draws = draw + MESSAGE
        return draw

    def delay_s(self, draw: int) -> float:
        """Return the propagation time plus the random latency."""
        return self.propagation_s + self.latency(uniform(self.key, draw))


Loss: TypeAlias = Callable[[Link, int, float], bool]
"""A function of a link, a draw and a time that returns whether the link loses the message."""


@loss(name="none", loses=lambda: False)
def lossless(link: Link, draw: int, now_s: float) -> bool:
    """No message is lost."""
    return False


@loss(loses=lambda probability: probability > 0)
def bernoulli(
    link: Link,
    draw: int,
    now_s: float,
    *,
    probability: Annotated[Probability, Doc("probability that a message is lost")] = 0.1,
) -> bool:
    """Every message is lost with the same probability, independently of all others."""
    return uniform(link.key, draw + LOSS) < probability


@loss(loses=lambda loss_calm, loss_burst, **durations: max(loss_calm, loss_burst) > 0)
def gilbert_elliott(
    link: Link,
    draw: int,
    now_s: float,
    *,
    mean_calm_s: Annotated[MeanDuration, Doc("mean of the exponential time until a burst begins")] = 20.0,
    mean_burst_s: Annotated[MeanDuration, Doc("mean of the exponential duration of a burst")] = 5.0,
    loss_calm: Annotated[Fraction, Doc("probability that a message is lost between bursts")] = 0.0,
    loss_burst: Annotated[Fraction, Doc("probability that a message is lost in a burst")] = 0.9,
) -> bool:
    """Losses come in bursts: every link alternates between calm and burst (Gilbert 1960, Elliott 1963).

    The state changes with time, not with messages, so it does not depend on the traffic. In the long run, a
    link is in a burst for mean_burst_s / (mean_calm_s + mean_burst_s) of the time. The mean loss is
    (mean_calm_s loss_calm + mean_burst_s loss_burst) / (mean_calm_s + mean_burst_s), 0.18 by default.
    """
    # The chain restarts from its stationary distribution in each epoch, so a long pause costs no computation.
    epoch, since_s = divmod(now_s, STATES_PER_EPOCH * (mean_calm_s + mean_burst_s))
    draws = BURST_STATES + int(epoch) * ROUND
    if epoch != link.epoch:
        link.epoch, link.num_states, link.state_ends_s = int(epoch), 0, 0.0
        # The opposite of the first state, because the loop below starts with a change.
        link.in_burst = uniform(link.key, draws) * (mean_calm_s + mean_burst_s) >= mean_burst_s
    while link.state_ends_s <= since_s:
        link.num_states += 1
        link.in_burst = not link.in_burst
        mean_s = mean_burst_s if link.in_burst else mean_calm_s
        link.state_ends_s += exponential_quantile(uniform(link.key, draws + link.num_states), mean_s)
    return uniform(link.key, draw + LOSS) < (loss_burst if link.in_burst else loss_calm)
