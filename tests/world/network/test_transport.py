from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdpfl_sim.world.kernel import Call
from rdpfl_sim.world.network.bandwidth import Shared, Uplink
from rdpfl_sim.world.network.links import ATTEMPT, MAX_ATTEMPTS, MESSAGE, Link, bernoulli
from rdpfl_sim.world.network.transport import TRANSPORTS, Transport, datagram, reliable
from rdpfl_sim.world.waiting import Wait
from tests.support import TinyWorld
from tests.world.network.test_network import PAYLOAD, Wires

FOUR_TIMES = Transport(max_attempts=4, timeout_s=1.0, backoff=2.0, acknowledgement_bytes=40)


class Script(Wires):
    """Loses the listed messages, and records when each client uses a link.

    `lost` names crossings as (sender, n), the n-th that this sender begins, from 0 on; messages of 0 and the
    acknowledgements of 1 are crossings alike. `delays_s` are those of the crossings that are not lost.
    """

    def __init__(
        self,
        lost: Sequence[tuple[int, int]] = (),
        delays_s: Sequence[float] = (),
        transport: Transport = FOUR_TIMES,
        **options: Any,
    ) -> None:
        self.lost = lost
        self.crossings: list[tuple[int, float]] = []
        """sender, time"""
        self.draws: list[tuple[int, int]] = []
        """sender, draw"""
        delays = iter(delays_s)
        super().__init__(lambda u: next(delays, 0.5), self.loses, transport=transport, **options)

    def loses(self, link: Link, draw: int, now_s: float) -> bool:
        number = sum(sender == link.sender for sender, _ in self.crossings)
        self.crossings.append((link.sender, self.kernel.now))
        self.draws.append((link.sender, draw))
        return (link.sender, number) in self.lost

    def at(self, time_s: float, act: Callable[[], object]) -> None:
        self.kernel.call_at(Call(lambda _: act()), time_s)

    def attempts(self, sender: int = 0) -> list[float]:
        """Return the times at which a client started to use a link."""
        return [time_s for who, time_s in self.crossings if who == sender]

    def run(self) -> "Script":
        """Send one message from 0 to 1, and run until all its attempts have ended."""
        self.send(0, 1)
        self.kernel.run()
        network = self.network
        assert network.num_in_flight == 0
        assert network.reliable is not None
        assert network.reliable.deliveries == {}
        return self


ALL = [(0, n) for n in range(MAX_ATTEMPTS)]


def test_message_that_is_acknowledged_is_sent_once() -> None:
    world = Script().run()
    assert world.crossings == [(0, 0.0), (1, 0.5)]
    assert world.arrivals == [(1, 0.5)]
    assert world.network.num_bytes == 1000 + 40


def test_each_retransmission_waits_longer_than_the_one_before() -> None:
    world = Script(lost=ALL).run()
    assert world.attempts() == [0.0, 1.0, 3.0, 7.0]
    assert world.log.lost == [(15.0, 0, 1, "all attempts failed")]
    assert world.arrivals == []
    assert world.network.num_bytes == 4 * 1000
    assert (world.network.num_sent, world.network.num_lost) == (1, 1)


@pytest.mark.parametrize("max_attempts", [2, 3, MAX_ATTEMPTS])
def test_message_is_abandoned_after_max_attempts(max_attempts: int) -> None:
    world = Script(lost=ALL, transport=reliable(timeout_s=2.0, backoff=1.0, max_attempts=max_attempts)).run()
    assert world.attempts() == [2.0 * attempt for attempt in range(max_attempts)]
    assert world.log.lost == [(2.0 * max_attempts, 0, 1, "all attempts failed")]


def test_last_attempt_can_succeed() -> None:
    world = Script(lost=ALL[:3]).run()
    assert world.arrivals == [(1, 7.5)]
    assert world.log.lost == []


def test_lost_acknowledgement_causes_a_retransmission_but_one_delivery() -> None:
    world = Script(lost=[(1, 0)]).run()
    assert world.crossings == [(0, 0.0), (1, 0.5), (0, 1.0), (1, 1.5)]
    assert world.arrivals == [(1, 0.5)]
    assert world.network.num_delivered == 1
    assert world.network.num_bytes == 2 * (1000 + 40)


def test_message_that_arrived_is_not_lost_even_without_an_acknowledgement() -> None:
    world = Script(lost=[(1, n) for n in range(4)]).run()
    assert world.attempts() == [0.0, 1.0, 3.0, 7.0]
    assert world.arrivals == [(1, 0.5)]
    assert world.log.lost == []


def test_acknowledgement_at_the_end_of_the_wait_is_in_time() -> None:
    assert Script(delays_s=[0.5, 0.5]).run().attempts() == [0.0]
    assert Script(delays_s=[0.5, 0.75]).run().attempts() == [0.0, 1.0]


def test_late_acknowledgement_of_the_first_attempt_prevents_the_third() -> None:
    world = Script(delays_s=[0.5, 2.0], lost=[(0, 1)]).run()
    # The answer to the first attempt is on its way until 2.5; the second leaves at 1 and waits until 3.
    assert world.attempts() == [0.0, 1.0]


def test_first_acknowledgement_to_arrive_ends_the_attempts_even_if_a_later_one_is_slow() -> None:
    world = Script(delays_s=[0.5, 2.0, 0.5, 5.0]).run()
    # The answers to the attempts of 0 and 1 arrive at 2.5 and 6.5; a third attempt would be due at 3.
    assert world.attempts() == [0.0, 1.0]
    assert world.attempts(sender=1) == [0.5, 1.5]


def test_slow_first_attempt_is_overtaken_by_the_second() -> None:
    world = Script(delays_s=[5.0, 0.5]).run()
    assert world.crossings == [(0, 0.0), (0, 1.0), (1, 1.5), (1, 5.0)]
    assert world.arrivals == [(1, 1.5)]
    assert world.network.num_delivered == 1
    assert world.network.num_reordered == 0
    assert world.network.num_bytes == 2 * (1000 + 40)


def test_message_that_is_still_in_transit_when_it_is_abandoned_can_arrive() -> None:
    transport = Transport(max_attempts=2, timeout_s=1.0, backoff=2.0)
    world = Script(delays_s=[10.0], lost=[(0, 1)], transport=transport)
    world.send(0, 1)
    world.kernel.run(until=9.0)
    assert world.attempts() == [0.0, 1.0]
    assert (world.network.num_lost, world.network.num_in_flight) == (0, 1)
    world.kernel.run()
    assert world.arrivals == [(1, 10.0)]
    assert world.log.lost == []


def test_retransmission_that_arrives_behind_a_later_message_is_reordered() -> None:
    world = Script(lost=[(0, 0)])
    world.send(0, 1, round_=1)
    world.send(0, 1, round_=2)
    world.kernel.run()
    assert [entry[::3] for entry in world.log.delivered] == [(0.5, 2), (1.5, 1)]
    assert world.network.num_reordered == 1


def test_messages_are_acknowledged_separately() -> None:
    world = Script(lost=[(0, 1)])
    world.network.send(0, 1, PAYLOAD, [1, 2])
    world.kernel.run()
    assert world.attempts() == [0.0, 0.0, 1.0]
    assert world.arrivals == [(1, 0.5), (2, 1.5)]


# Crashes and outages


@pytest.mark.parametrize("recovers_at_s", [2.5, 99.0])
def test_crash_of_the_sender_ends_its_retransmissions_even_if_it_recovers(recovers_at_s: float) -> None:
    world = Script(lost=ALL)
    world.at(2.0, lambda: world.network.stop(0))
    world.at(recovers_at_s, lambda: world.network.obstacles.clients_down.discard(0))
    world.run()
    assert world.attempts() == [0.0, 1.0]
    assert world.log.lost == [(2.0, 0, 1, "sender is down")]


def test_messages_of_a_crashed_sender_in_transit_still_arrive() -> None:
    world = Script(delays_s=[2.0])
    world.at(0.5, lambda: world.network.stop(0))
    world.run()
    assert world.arrivals == [(1, 2.0)]
    assert world.attempts() == [0.0]
    assert world.log.lost == []


def test_messages_of_a_crashed_sender_in_transit_can_be_lost_on_arrival() -> None:
    world = Script(delays_s=[2.0])
    world.at(0.5, lambda: world.network.stop(0))
    world.at(1.5, lambda: world.network.obstacles.take_down([(0, 1)]))
    world.run()
    assert world.log.lost == [(2.0, 0, 1, "all attempts failed")]


def test_message_that_arrived_before_its_sender_crashed_is_not_lost() -> None:
    world = Script(lost=[(1, 0)])
    world.at(0.75, lambda: world.network.stop(0))
    world.run()
    assert world.arrivals == [(1, 0.5)]
    assert world.attempts() == [0.0]
    assert world.log.lost == []


@pytest.mark.parametrize(
    "bandwidth",
    [partial(Uplink, bytes_per_s=1000.0), partial(Shared, up_bytes_per_s=1000.0, down_bytes_per_s=1000.0)],
)
def test_retransmission_that_waits_for_bandwidth_is_lost_with_its_sender(bandwidth: Any) -> None:
    world = Script(lost=[(0, 0)], bandwidth=bandwidth)
    world.at(2.5, lambda: world.network.stop(0))
    world.at(2.75, lambda: world.network.obstacles.clients_down.discard(0))
    world.at(4.0, lambda: world.send(0, 2))
    world.run()
    # The first attempt leaves at 1; the second, from 2 on, would have left at 3.
    assert world.attempts() == [1.0, 5.0]
    assert world.log.lost == [(2.5, 0, 1, "sender is down")]
    assert world.arrivals == [(2, 5.5)]


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (
            lambda network: network.obstacles.take_down([(0, 1)]),
            lambda network: network.obstacles.bring_up([(0, 1)]),
        ),
        (
            lambda network: network.obstacles.clients_down.add(1),
            lambda network: network.obstacles.clients_down.discard(1),
        ),
        (
            lambda network: network.obstacles.partitions.append((frozenset({0}), frozenset({1, 2}))),
            lambda network: network.obstacles.partitions.clear(),
        ),
    ],
    ids=["outage", "crash of the recipient", "partition"],
)
@pytest.mark.parametrize(
    ("from_s", "until_s", "arrives_at_s"),
    [
        (0.0, 2.5, 3.5),  # lost when leaving at 0 and 1
        (0.25, 0.75, 1.5),  # lost when arriving at 0.5
        (0.1, 0.4, 0.5),  # in the air all the time
        (0.0, 7.0, 7.5),  # over when the last attempt leaves
        (0.0, 7.25, None),
    ],
)
def test_message_arrives_if_the_obstacle_ends_in_time(
    begin: Callable[..., None], end: Callable[..., None], from_s: float, until_s: float, arrives_at_s: float
) -> None:
    world = Script()
    world.at(until_s, lambda: end(world.network))
    if from_s == 0:
        begin(world.network)
    else:
        world.at(from_s, lambda: begin(world.network))
    world.run()
    assert world.arrivals == ([] if arrives_at_s is None else [(1, arrives_at_s)])
    assert world.log.lost == ([(15.0, 0, 1, "all attempts failed")] if arrives_at_s is None else [])


def test_acknowledgements_do_not_pass_a_link_that_is_down_in_their_direction() -> None:
    world = Script()
    world.network.obstacles.take_down([(1, 0)])
    world.at(2.0, lambda: world.network.obstacles.bring_up([(1, 0)]))
    world.run()
    assert world.attempts() == [0.0, 1.0, 3.0]
    assert world.arrivals == [(1, 0.5)]


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (
            lambda network: network.obstacles.take_down([(1, 0)]),
            lambda network: network.obstacles.bring_up([(1, 0)]),
        ),
        (
            lambda network: network.obstacles.partitions.append((frozenset({0}), frozenset({1, 2}))),
            lambda network: network.obstacles.partitions.clear(),
        ),
    ],
    ids=["outage", "partition"],
)
@pytest.mark.parametrize(
    ("from_s", "until_s", "attempts"),
    [
        (0.6, 0.9, [0.0]),  # in the air all the time
        (0.6, 1.25, [0.0, 1.5]),  # lost when arriving at 1; the second is acknowledged at 2.5
        (1.0, 1.25, [0.0, 1.5]),  # begins at the very instant
        (0.6, 1.0, [0.0]),  # over at the very instant
    ],
)
def test_acknowledgements_are_lost_if_there_is_an_obstacle_when_they_arrive(
    begin: Callable[..., None], end: Callable[..., None], from_s: float, until_s: float, attempts: list[float]
) -> None:
    world = Script(transport=Transport(max_attempts=4, timeout_s=1.5, backoff=2.0))
    world.at(from_s, lambda: begin(world.network))
    world.at(until_s, lambda: end(world.network))
    world.run()
    assert world.attempts() == attempts
    assert world.arrivals == [(1, 0.5)]


# Bandwidth


def test_timeout_starts_when_the_last_byte_has_left_the_uplink() -> None:
    world = Script(
        lost=[(0, 0)],
        transport=Transport(max_attempts=4, timeout_s=1.5, backoff=2.0),
        bandwidth=partial(Uplink, bytes_per_s=1000.0),
    )
    world.send(0, 1, round_=1)
    world.send(0, 2, round_=1)
    world.kernel.run()
    # The first leaves at 1 and is lost; at 2.5 it goes to the end of the queue, which is empty, until 3.5.
    assert world.attempts() == [1.0, 2.0, 3.5]
    assert world.arrivals == [(2, 2.5), (1, 4.0)]
    assert world.network.num_bytes == 3000


def test_retransmission_queues_behind_newer_messages() -> None:
    world = Script(
        lost=[(0, 0)],
        transport=Transport(max_attempts=4, timeout_s=1.5, backoff=2.0),
        bandwidth=partial(Uplink, bytes_per_s=1000.0),
    )
    for recipient in (1, 2, 2, 2):
        world.send(0, recipient)
    world.kernel.run()
    assert world.attempts() == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert world.arrivals[-1] == (1, 5.5)


def test_retransmission_has_its_share_of_a_shared_bandwidth() -> None:
    world = Script(lost=[(0, 0)], bandwidth=partial(Shared, up_bytes_per_s=1000.0, down_bytes_per_s=1000.0))
    world.send(0, 1)
    world.send(0, 2)
    world.kernel.run()
    # Both share the uplink until 2; the retransmission begins at 3 and has it for itself.
    assert world.attempts() == [2.0, 2.0, 4.0]
    assert world.arrivals == [(2, 2.5), (1, 4.5)]


# Draws


def test_attempts_and_acknowledgements_of_a_message_have_separate_draws() -> None:
    # The second attempt arrives first, then the first: two acknowledgements after two attempts.
    world = Script(delays_s=[5.0, 0.5], lost=[(1, 0)], transport=reliable(max_attempts=2)).run()
    assert len(world.draws) == 4
    assert len(set(world.draws)) == 4


def test_draws_of_attempts_stay_within_those_of_their_message() -> None:
    world = Script(lost=ALL, transport=reliable(max_attempts=MAX_ATTEMPTS, backoff=1.0)).run()
    first, *_, last = (draw for _, draw in world.draws)
    assert last - first == (MAX_ATTEMPTS - 1) * ATTEMPT < MESSAGE


def test_attempts_are_lost_independently_of_each_other() -> None:
    world = Wires(loses=partial(bernoulli, probability=0.5), transport=reliable(max_attempts=3))
    for round_ in range(1, 4001):
        world.send(0, 1, round_)
    world.kernel.run()
    assert world.network.num_lost / 4000 == pytest.approx(0.5**3, abs=0.02)


@given(st.frozensets(st.integers(1, 12)))
def test_message_that_is_not_sent_does_not_change_the_deliveries_of_others(silent: frozenset[int]) -> None:
    def deliveries(silent: frozenset[int]) -> dict[int, float]:
        world = Wires(lambda u: u, partial(bernoulli, probability=0.6), transport=reliable(max_attempts=4))
        for round_ in range(1, 13):
            if round_ not in silent:
                world.send(0, 1, round_)
        world.kernel.run()
        return {stamp: time_s for time_s, _, _, stamp in world.log.delivered}

    full = deliveries(frozenset())
    assert deliveries(silent) == {round_: time_s for round_, time_s in full.items() if round_ not in silent}


# As a choice


def test_datagrams_are_never_repeated() -> None:
    assert not datagram().retransmits
    world = Script(lost=ALL, transport=datagram())
    world.send(0, 1)
    world.kernel.run()
    assert world.attempts() == [0.0]
    assert world.log.lost == [(0.0, 0, 1, "loss")]


def test_reliable_transport_uses_its_options() -> None:
    transport = TRANSPORTS["reliable"](timeout_s=3.0, backoff=1.5, max_attempts=7, acknowledgement_bytes=9)
    assert transport == Transport(7, 3.0, 1.5, 9)
    assert transport.retransmits


def test_every_message_arrives_on_lossy_links_with_a_reliable_transport() -> None:
    def num_used(transport: Transport) -> list[int]:
        world = TinyWorld(
            rounds=20,
            latency_s=0.01,
            loses=partial(bernoulli, probability=0.3),
            wait=Wait(1.0, 5.0),
            transport=transport,
        ).run()
        return [used for *_, used in world.log.rounds]

    assert set(num_used(reliable(timeout_s=0.05, backoff=1.0, max_attempts=32))) == {2}
    assert set(num_used(datagram())) == {0, 1, 2}
