from collections import Counter
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rdpfl_sim.methods.base import Payload
from rdpfl_sim.randomness import Streams
from rdpfl_sim.world.kernel import Call, Kernel
from rdpfl_sim.world.network.bandwidth import Shared, Unlimited, Uplink
from rdpfl_sim.world.network.latency import LATENCIES
from rdpfl_sim.world.network.links import Link, bernoulli, gilbert_elliott, lossless
from rdpfl_sim.world.network.message import Message
from rdpfl_sim.world.network.network import Network
from rdpfl_sim.world.network.transport import datagram, reliable
from tests.support import Log, TinyWorld

PAYLOAD = Payload(torch.zeros(250))  # 1,000 bytes


class Wires:
    """Three clients that only record the arrivals of messages."""

    def __init__(
        self, latency=lambda u: 0.5, loses=lossless, bandwidth=None, on_arrival=None, **options
    ) -> None:
        self.on_arrival = on_arrival
        self.kernel = Kernel()
        self.log = Log(self.kernel)
        self.arrivals: list[tuple[int, float]] = []
        self.network = Network(
            self.kernel,
            3,
            [self] * 3,
            self.log,
            lambda i, j: Link(i, j, Streams(1).key("link", i, j), latency=latency, loses=loses),
            bandwidth=None if bandwidth is None else bandwidth(self.kernel),
            **options,
        )

    def receive(self, message: Message) -> None:
        self.arrivals.append((message.recipient, self.kernel.now))
        if self.on_arrival is not None:
            self.on_arrival(message)

    def send(self, sender: int, recipient: int, round_: int = 1) -> None:
        self.network.send(sender, round_, PAYLOAD, [recipient])


def test_message_arrives_after_the_latency() -> None:
    world = Wires()
    world.send(0, 1)
    assert world.network.num_in_flight == 1
    world.kernel.run()
    assert world.arrivals == [(1, 0.5)]
    assert world.network.num_in_flight == 0


@pytest.mark.parametrize(
    ("bandwidth", "arrives_at_s"),
    [
        (partial(Uplink, bytes_per_s=1000.0), 5.5),
        (partial(Shared, up_bytes_per_s=1000.0, down_bytes_per_s=1000.0), 5.5),
    ],
)
def test_queued_messages_of_a_crashed_sender_are_lost_and_transmitted_ones_arrive(
    bandwidth, arrives_at_s: float
) -> None:
    world = Wires(bandwidth=bandwidth)
    world.send(0, 1)  # leaves at 1
    for time_s, act in [
        (1.0, lambda: (world.send(0, 1), world.send(0, 2))),  # would leave at 2 and 3, or both at 3
        (1.25, lambda: world.network.stop(0)),
        (1.75, lambda: world.network.obstacles.clients_down.discard(0)),
        (4.0, lambda: world.send(0, 2)),  # finds no queue
    ]:
        world.kernel.call_at(Call(lambda _, act=act: act()), time_s)
    world.kernel.run()
    assert world.arrivals == [(1, 1.5), (2, arrives_at_s)]
    assert world.log.lost == [(1.25, 0, 1, "sender is down"), (1.25, 0, 2, "sender is down")]
    assert world.network.num_in_flight == 0


def test_bandwidth_of_a_crashed_senders_transfers_is_given_to_others() -> None:
    world = Wires(bandwidth=partial(Shared, up_bytes_per_s=1000.0, down_bytes_per_s=1000.0))
    world.send(0, 2)
    world.send(1, 2)
    world.kernel.call_at(Call(lambda _: world.network.stop(0)), 1.0)
    world.kernel.run()
    # Until 1 each has half of the recipient's downlink; the rest, 500 bytes, goes at full speed.
    assert world.arrivals == [(2, 2.0)]


def test_messages_of_a_sender_queue_behind_each_other_on_its_uplink() -> None:
    world = Wires(bandwidth=partial(Uplink, bytes_per_s=1000.0))
    for recipient in (1, 2, 1):
        world.send(0, recipient)
    world.send(1, 0)
    world.kernel.run()
    assert world.arrivals == [(1, 1.5), (0, 1.5), (2, 2.5), (1, 3.5)]


def test_lost_messages_are_counted_and_never_arrive() -> None:
    world = Wires(loses=partial(bernoulli, probability=0.3))
    for number in range(10_000):
        world.send(0, 1 + number % 2)
    world.kernel.run()
    network = world.network
    assert network.num_sent == network.num_delivered + network.num_lost == 10_000
    assert len(world.arrivals) == network.num_delivered
    assert abs(network.num_lost / 10_000 - 0.3) < 0.02


def test_delays_and_losses_of_a_link_do_not_depend_on_the_traffic_of_others() -> None:
    def deliveries(noise: bool) -> list[float]:
        world = Wires(latency=LATENCIES["exponential"], loses=partial(bernoulli, probability=0.5))
        for _ in range(20):
            if noise:
                world.send(0, 2)
                world.send(1, 0)
            world.send(0, 1)
        world.kernel.run()
        return [time for recipient, time in world.arrivals if recipient == 1]

    assert deliveries(noise=False) == deliveries(noise=True)
    assert len(set(deliveries(noise=False))) > 5


def test_two_directions_of_a_link_have_separate_streams() -> None:
    world = Wires(latency=LATENCIES["exponential"])
    world.send(0, 1)
    world.send(1, 0)
    world.kernel.run()
    assert len({time for _, time in world.arrivals}) == 2


def test_losses_and_delays_are_independent() -> None:
    world = Wires(latency=lambda u: u, loses=partial(bernoulli, probability=0.5))
    for _ in range(2000):
        world.send(0, 1)
    world.kernel.run()
    early = sum(time < 0.5 for _, time in world.arrivals)
    assert abs(early / len(world.arrivals) - 0.5) < 0.06


# Independence of other messages


@given(st.frozensets(st.integers(1, 20)), st.frozensets(st.integers(1, 20)))
def test_message_that_is_not_sent_does_not_change_the_others(silent: frozenset[int], twice: frozenset[int]):
    def arrivals(silent: frozenset[int], twice: frozenset[int]) -> dict[int, list[float]]:
        world = Wires(LATENCIES["exponential"], partial(bernoulli, probability=0.3), duplication=0.3)
        for round_ in range(1, 21):
            for _ in range((round_ not in silent) + (round_ in twice)):
                world.send(0, 1, round_)
        world.kernel.run()
        times: dict[int, list[float]] = {}
        for time_s, _, _, stamp in world.log.delivered:
            times.setdefault(stamp, []).append(time_s)
        return times

    full, changed = arrivals(frozenset(), frozenset()), arrivals(silent, twice)
    for round_ in set(range(1, 21)) - silent:
        assert set(full.get(round_, ())) <= set(changed.get(round_, ()))
    for round_ in set(range(1, 21)) - silent - twice:
        assert full.get(round_) == changed.get(round_)
    assert not (silent - twice) & changed.keys()


def test_messages_of_one_round_have_different_draws() -> None:
    world = Wires(latency=lambda u: u)
    for _ in range(50):
        world.send(0, 1)
    world.kernel.run()
    assert len({time for _, time in world.arrivals}) == 50


# Duplication


def test_copies_count_as_sent_and_have_separate_delays() -> None:
    world = Wires(latency=lambda u: u, duplication=1.0)
    copies: list[tuple[int, int, int, float]] = []
    world.log.message_copied = lambda copy, original: copies.append(
        (copy.number, original, copy.round, copy.sent_at_s)
    )
    world.send(0, 1, round_=3)
    world.send(0, 2, round_=3)
    network = world.network
    assert (network.num_sent, network.num_copied, network.num_in_flight) == (4, 2, 4)
    assert copies == [(1, 0, 3, 0.0), (3, 2, 3, 0.0)]
    assert len(world.log.sent) == 2, "a sender knows nothing of copies"
    assert network.num_bytes == 2000.0, "nor does it transmit them"
    world.kernel.run()
    assert (network.num_delivered, network.num_in_flight) == (4, 0)
    assert len({time for _, time in world.arrivals}) == 4


def test_delivered_messages_are_copied_with_the_given_probability() -> None:
    world = Wires(loses=partial(bernoulli, probability=0.4), duplication=0.25)
    for _ in range(10_000):
        world.send(0, 1)
    world.kernel.run()
    network = world.network
    assert network.num_lost / 10_000 == pytest.approx(0.4, abs=0.02)
    assert network.num_copied / (10_000 - network.num_lost) == pytest.approx(0.25, abs=0.02)
    assert network.num_sent == 10_000 + network.num_copied == network.num_delivered + network.num_lost


def test_copy_can_be_lost_in_transit() -> None:
    delays = iter([0.5, 2.0])
    world = Wires(latency=lambda u: next(delays), duplication=1.0)
    world.send(0, 1)
    world.kernel.run(until=1.0)
    world.network.obstacles.clients_down.add(1)
    world.kernel.run()
    assert world.arrivals == [(1, 0.5)]
    assert world.log.lost == [(2.0, 0, 1, "recipient is down")]
    assert world.network.num_in_flight == 0


def test_mailbox_drops_the_copy_as_a_duplicate() -> None:
    world = TinyWorld(rounds=3, duplication=1.0).run()
    assert world.network.num_sent == world.network.num_delivered == 2 * 3 * 6
    assert world.times(0) == [1.25, 2.5, 3.75]
    assert {num_used for *_, num_used in world.log.rounds} == {2}
    assert world.log.dropped.count((1, "duplicate")) == 6
    assert {outcome for _, outcome in world.log.dropped} == {"duplicate"}


# Reordering


def test_message_that_is_overtaken_is_counted() -> None:
    delays = iter([3.0, 1.0, 2.0])
    world = Wires(latency=lambda u: next(delays))
    for round_ in (1, 2, 3):
        world.send(0, 1, round_)
    world.kernel.run()
    assert [stamp for *_, stamp in world.log.delivered] == [2, 3, 1]
    assert world.network.num_reordered == 1


def test_messages_in_order_or_on_different_links_are_not_reordered() -> None:
    delays = iter([2.0, 1.0, 0.5, 3.0])
    world = Wires(latency=lambda u: next(delays))
    for sender, recipient in ((0, 1), (1, 0), (0, 2), (0, 1)):
        world.send(sender, recipient)
    world.kernel.run()
    assert world.network.num_reordered == 0


def test_copy_on_time_does_not_make_the_messages_behind_it_reordered() -> None:
    world = Wires(bandwidth=partial(Uplink, bytes_per_s=1000.0), duplication=1.0)
    for round_ in (1, 2):
        world.send(0, 1, round_)
    world.kernel.run()
    assert [entry[::3] for entry in world.log.delivered] == [(1.5, 1), (1.5, 1), (2.5, 2), (2.5, 2)]
    assert world.network.num_reordered == 0


# Compression


def test_compression_divides_the_transmitted_bytes_but_not_the_payload() -> None:
    sizes: list[tuple[float, int]] = []
    world = Wires(
        bandwidth=partial(Uplink, bytes_per_s=1000.0),
        compression=4.0,
        on_arrival=lambda m: sizes.append((m.size_bytes, len(m.payload.vector))),
    )
    world.send(0, 1)
    world.send(0, 2)
    world.kernel.run()
    assert [time for time, *_ in world.log.delivered] == [0.75, 1.0]
    assert sizes == [(250.0, 250)] * 2
    assert world.network.num_bytes == 500.0


# Propagation


def test_propagation_is_added_to_the_latency_of_messages_and_of_copies() -> None:
    world = Wires(duplication=1.0)
    world.network.links[0][1].propagation_s = 2.0
    world.send(0, 1)
    world.send(1, 0)
    world.kernel.run()
    assert world.arrivals == [(0, 0.5), (0, 0.5), (1, 2.5), (1, 2.5)]


# Order of transmission


def test_another_recipient_is_first_every_round_if_bandwidth_is_scarce() -> None:
    world = Wires(bandwidth=partial(Uplink, bytes_per_s=1000.0))
    for round_ in (1, 2):
        world.network.send(0, round_, PAYLOAD, [1, 2])
    world.network.send(0, 3, PAYLOAD, [])
    world.kernel.run()
    assert [recipient for recipient, _ in world.arrivals] == [2, 1, 1, 2]


# Obstacles


def test_link_is_down_until_every_interruption_has_ended() -> None:
    world = Wires()
    world.network.obstacles.take_down([(0, 1)])
    world.network.obstacles.take_down([(0, 1), (0, 2)])
    world.network.obstacles.bring_up([(0, 1)])
    for sender, recipient in ((0, 1), (1, 0), (0, 2)):
        world.send(sender, recipient)
    world.network.obstacles.bring_up([(0, 1), (0, 2)])
    assert not world.network.obstacles.links_down, "what is over does not slow the network down"
    world.send(0, 1)
    world.kernel.run()
    assert world.log.lost == [(0.0, 0, 1, "link is down"), (0.0, 0, 2, "link is down")]
    assert sorted(world.arrivals) == [(0, 0.5), (1, 0.5)]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_message_to_a_client_that_is_down_when_it_leaves_is_lost_whatever_happens_elsewhere(
    elsewhere: bool,
) -> None:
    world = Wires()
    if elsewhere:
        world.network.obstacles.take_down([(2, 0)])
    world.network.obstacles.clients_down.add(1)
    world.send(0, 1)
    world.kernel.run(until=0.25)
    world.network.obstacles.clients_down.remove(1)
    world.kernel.run()
    assert world.log.lost == [(0.0, 0, 1, "recipient is down")]
    assert world.arrivals == []


def test_message_that_is_lost_by_chance_is_not_blamed_on_an_outage_elsewhere() -> None:
    world = Wires(loses=lambda link, draw, now_s: True)
    world.network.obstacles.take_down([(2, 0)])
    world.send(0, 1)
    assert world.log.lost == [(0.0, 0, 1, "loss")]


# Accounting


@st.composite
def networks(draw: st.DrawFn) -> dict[str, Any]:
    rate = st.sampled_from([0.0, 0.2, 0.7])
    loss = draw(rate)
    return {
        "latency": LATENCIES["exponential"],
        "loses": draw(
            st.sampled_from([partial(bernoulli, probability=loss), partial(gilbert_elliott, loss_calm=loss)])
        ),
        "duplication": draw(rate),
        "transport": draw(
            st.sampled_from([datagram(), reliable(timeout_s=0.3), reliable(timeout_s=0.05, max_attempts=2)])
        ),
        "bandwidth": draw(
            st.sampled_from(
                [None, Unlimited, partial(Uplink, bytes_per_s=5e3), partial(Shared, up_bytes_per_s=5e3)]
            )
        ),
        "compression": draw(st.sampled_from([1.0, 3.0])),
    }


moments = st.floats(0.0, 3.0)
pairs = st.permutations(range(3)).map(lambda order: tuple(order[:2]))


@given(
    networks(),
    st.lists(st.tuples(moments, pairs), max_size=25),
    st.lists(st.tuples(moments, moments, pairs, st.booleans()), max_size=4),
)
def test_every_message_is_delivered_lost_or_in_flight(options, sends, troubles) -> None:
    numbers: Counter[int] = Counter()

    def on_arrival(message: Message) -> None:
        numbers[message.number] += 1
        assert network.obstacles.reason(message.sender, message.recipient) is None

    world = Wires(on_arrival=on_arrival, **options)
    network, kernel = world.network, world.kernel

    def at(time_s: float, act) -> None:
        kernel.call_at(Call(lambda _: act()), time_s)

    for time_s, (sender, recipient) in sends:
        at(time_s, partial(world.send, sender, recipient))
    for time_s, length_s, pair, is_crash in troubles:
        at(
            time_s,
            partial(network.obstacles.clients_down.add, pair[0])
            if is_crash
            else partial(network.obstacles.take_down, [pair]),
        )
        end = (
            partial(network.obstacles.clients_down.discard, pair[0])
            if is_crash
            else partial(network.obstacles.bring_up, [pair])
        )
        at(time_s + length_s, end)

    log = world.log
    while kernel.peek() < float("inf"):
        kernel.step()
        assert network.num_sent == len(log.sent) + network.num_copied
        assert network.num_delivered == len(log.delivered) == numbers.total()
        assert network.num_lost == len(log.lost)
        assert network.num_in_flight >= 0
    assert network.num_in_flight == 0
    assert len(log.sent) == len(sends)
    assert set(numbers.values()) <= {1}, "a message, or a copy with a number of its own, arrives once"
    assert network.reliable is None or not network.reliable.deliveries
    attempts = [1] if network.reliable is None else range(1, network.reliable.transport.max_attempts + 1)
    size = 1000 / options["compression"]
    least, most = len(sends) * size, max(attempts) * len(sends) * (size + 40)
    assert least <= network.num_bytes + 1e-6
    assert network.num_bytes <= most + 1e-6
