from collections.abc import Sequence
from functools import partial
from itertools import groupby
from math import exp
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rdpfl_sim.randomness import Streams
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.simulation.deployment import Deployment
from rdpfl_sim.world.network.links import (
    ATTEMPT,
    COPY_LATENCY,
    LOSSES,
    MAX_ATTEMPTS,
    MESSAGE,
    ROUND,
    Link,
    Loss,
    bernoulli,
    gilbert_elliott,
)
from rdpfl_sim.world.network.transport import ACKNOWLEDGEMENT


def new_link(loses: Loss, seed: int = 1) -> Link:
    return Link(0, 1, Streams(seed).key("link", 0, 1), latency=lambda u: 0.0, loses=loses)


def losses(
    loses: Loss, num_messages: int = 20_000, seed: int = 1, without: frozenset[int] = frozenset()
) -> list[bool]:
    """Return whether each message is lost: one per second and round, except for the rounds `without`."""
    link = new_link(loses, seed)
    return [
        loses(link, link.next_draw(round_), float(round_))
        for round_ in range(1, num_messages + 1)
        if round_ not in without
    ]


def mean_run(lost: list[bool]) -> float:
    """Return the mean number of consecutive lost messages."""
    runs = [len(list(run)) for is_lost, run in groupby(lost) if is_lost]
    return sum(runs) / len(runs)


# Bernoulli


def test_bernoulli_loses_messages_independently_at_its_rate() -> None:
    lost = losses(partial(bernoulli, probability=0.2))
    assert sum(lost) / len(lost) == pytest.approx(0.2, abs=0.01)
    assert mean_run(lost) == pytest.approx(1 / (1 - 0.2), rel=0.05)


def test_higher_probability_loses_all_messages_that_a_lower_one_loses() -> None:
    few, many = (losses(partial(bernoulli, probability=p), 1000) for p in (0.2, 0.4))
    assert all(more for less, more in zip(few, many, strict=True) if less)
    assert 0 < sum(few) < sum(many)


def test_probability_zero_and_no_loss_lose_nothing() -> None:
    assert not any(losses(partial(bernoulli, probability=0.0)))
    assert not any(losses(LOSSES["none"]))


# Gilbert-Elliott


@pytest.mark.parametrize(
    ("options", "rate"),
    [
        ({}, 5 / 25 * 0.9),
        ({"mean_calm_s": 5.0, "mean_burst_s": 5.0, "loss_burst": 1.0}, 0.5),
        (
            {"mean_calm_s": 6.0, "mean_burst_s": 2.0, "loss_calm": 0.1, "loss_burst": 0.5},
            0.75 * 0.1 + 0.25 * 0.5,
        ),
        ({"mean_calm_s": 1.0, "mean_burst_s": 3.0, "loss_calm": 0.5, "loss_burst": 0.0}, 0.25 * 0.5),
    ],
)
def test_bursty_losses_have_the_stationary_rate_of_the_chain(options: dict[str, float], rate: float) -> None:
    lost = losses(partial(gilbert_elliott, **options), 40_000)
    assert sum(lost) / len(lost) == pytest.approx(rate, abs=0.02)


@pytest.mark.parametrize("mean_burst_s", [3.0, 10.0, 30.0])
def test_bursts_have_the_length_of_the_chain_and_are_longer_than_independent_losses(
    mean_burst_s: float,
) -> None:
    loses = partial(gilbert_elliott, mean_calm_s=60.0, mean_burst_s=mean_burst_s, loss_burst=1.0)
    bursts = losses(loses, 60_000)
    independent = losses(partial(bernoulli, probability=sum(bursts) / len(bursts)))
    # A burst that meets a message at all holds 1 / (1 - exp(-1 / mean)) of them on average.
    assert mean_run(bursts) == pytest.approx(1 / (1 - exp(-1 / mean_burst_s)), rel=0.12)
    assert mean_run(bursts) > 1.3 * mean_run(independent)


def test_calm_or_burst_may_last_for_the_whole_run() -> None:
    starts = [
        losses(partial(gilbert_elliott, mean_calm_s=1e9, mean_burst_s=1e9, loss_burst=1.0), 50, seed)
        for seed in range(40)
    ]
    assert {len(set(lost)) for lost in starts} == {1}, "it does not change"
    assert 10 < sum(lost[0] for lost in starts) < 30, "every second link begins in a burst"


@pytest.mark.slow
def test_long_time_without_messages_is_skipped_quickly_and_keeps_the_rate() -> None:
    loses = partial(gilbert_elliott, mean_calm_s=1.0, mean_burst_s=1.0, loss_burst=1.0)
    link = new_link(loses)
    lost = [loses(link, link.next_draw(round_), 1e25 * round_) for round_ in range(1, 2001)]
    assert sum(lost) / len(lost) == pytest.approx(0.5, abs=0.05)
    assert loses(link, link.next_draw(2001), 1e30) in (True, False)


def test_message_that_is_not_sent_does_not_change_the_bursts() -> None:
    loses = partial(gilbert_elliott, mean_calm_s=3.0, mean_burst_s=3.0, loss_burst=0.7)
    full = losses(loses, 300)
    for skipped in range(1, 30):
        thinned = losses(loses, 300, without=frozenset({skipped, 2 * skipped}))
        assert thinned == [
            lost for round_, lost in enumerate(full, 1) if round_ not in (skipped, 2 * skipped)
        ]


def test_each_link_has_separate_bursts() -> None:
    loses = partial(gilbert_elliott, mean_calm_s=3.0, mean_burst_s=3.0)
    assert losses(loses, 200, seed=1) != losses(loses, 200, seed=2)


@pytest.mark.parametrize("loses", [bernoulli, gilbert_elliott])
def test_losses_are_the_same_in_every_run_and_others_with_another_seed(loses: Loss) -> None:
    assert losses(loses, 500) == losses(loses, 500)
    assert losses(loses, 500) != losses(loses, 500, seed=2)


# The names of draws

LAST_ROUND = 1 << 31
NUM_IN_ROUND = ROUND // MESSAGE
SIZES = (2, LAST_ROUND, NUM_IN_ROUND, MAX_ATTEMPTS, COPY_LATENCY + 1)


def counter(place: Sequence[int]) -> int:
    """Return the counter of a draw: acknowledgement or not, round, position in it, attempt, purpose."""
    acknowledgement, round_, number, attempt, purpose = place
    link = new_link(LOSSES["none"])
    link.next_draws = round_ * ROUND + number * MESSAGE
    return acknowledgement * ACKNOWLEDGEMENT + link.next_draw(round_) + attempt * ATTEMPT + purpose


@example((0, *(size - 1 for size in SIZES[1:])))
@given(st.tuples(*(st.sampled_from([0, size - 1]) | st.integers(0, size - 1) for size in SIZES)))
def test_draws_of_attempts_messages_rounds_and_acknowledgements_never_overlap(place: tuple[int, ...]) -> None:
    # The next place, as an odometer counts, has a larger counter: so no two places have the same.
    following = list(place)
    for axis in reversed(range(len(SIZES))):
        following[axis] += 1
        if following[axis] < SIZES[axis]:
            assert counter(following) > counter(place)
            return
        following[axis] = 0


@given(st.lists(st.integers(1, 6), max_size=40).map(sorted))
def test_messages_of_a_round_are_numbered_from_zero(rounds: list[int]) -> None:
    link = new_link(LOSSES["none"])
    draws = [link.next_draw(round_) for round_ in rounds]
    assert len(set(draws)) == len(draws)
    for round_ in set(rounds):
        alone = new_link(LOSSES["none"])
        drawn = [draw for other, draw in zip(rounds, draws, strict=True) if other == round_]
        assert drawn == [alone.next_draw(round_) for _ in drawn]


@given(st.frozensets(st.integers(1, 30)))
def test_message_that_is_not_sent_does_not_change_the_losses_of_others(without: frozenset[int]) -> None:
    loses = partial(bernoulli, probability=0.5)
    full = losses(loses, 30)
    kept = [lost for round_, lost in enumerate(full, start=1) if round_ not in without]
    assert losses(loses, 30, without=without) == kept


def deployment_with(network: dict[str, Any]) -> Deployment:
    raw = {"clients": {"count": 3}, "network": network, "timing": {"wait": "none"}}
    return Deployment(Scenario.from_dict(raw))


def test_links_share_their_models_but_not_the_state_of_a_burst() -> None:
    loss = {"name": "gilbert_elliott", "mean_calm_s": 1.0, "mean_burst_s": 1.0}
    deployment = deployment_with({"loss": loss})
    first, second = deployment.link(0, 1), deployment.link(1, 2)
    assert first.loses is second.loses
    before = [getattr(second, name) for name in Link.STATE]
    first.loses(first, 0, 10.0)
    assert first.epoch == 0
    assert [getattr(second, name) for name in Link.STATE] == before


def test_link_with_an_override_has_its_own_model() -> None:
    override = {"from": [0], "to": [1], "loss": {"name": "bernoulli", "probability": 0.5}}
    deployment = deployment_with({"links": [override]})
    assert deployment.link(0, 1).loses is not deployment.link(1, 2).loses
    assert deployment.link(0, 1).latency is deployment.link(1, 2).latency
