from functools import partial

import pytest
import torch

from rdpfl_sim.maths.types import Payload
from rdpfl_sim.randomness import Streams
from rdpfl_sim.world.bandwidth import Uplink
from rdpfl_sim.world.distributions import LATENCIES
from rdpfl_sim.world.kernel import Kernel
from rdpfl_sim.world.links import Link, bernoulli, lossless
from rdpfl_sim.world.message import Message
from rdpfl_sim.world.network import Network
from tests.support import Log

PAYLOAD = Payload(torch.zeros(250))  # 1,000 bytes


class Wires:
    """Three clients that only note when messages arrive."""

    def __init__(self, latency=lambda u: 0.5, loses=lossless, bandwidth=None, **options) -> None:
        self.kernel = Kernel()
        self.log = Log(self.kernel)
        self.arrivals: list[tuple[int, float]] = []
        self.network = Network(
            self.kernel,
            3,
            self.log,
            lambda i, j: Link(i, j, Streams(1).key("link", i, j), latency=latency, loses=loses),
            bandwidth=None if bandwidth is None else bandwidth(self.kernel),
            **options,
        )
        self.network.receivers = [self.arrive] * 3

    def arrive(self, message: Message) -> None:
        self.arrivals.append((message.recipient, self.kernel.now))

    def send(self, sender: int, recipient: int, round_: int = 1) -> None:
        self.network.send(sender, round_, round_, PAYLOAD, [recipient])


def test_message_arrives_after_the_latency() -> None:
    world = Wires()
    world.send(0, 1)
    assert world.network.num_in_flight == 1
    world.kernel.run()
    assert world.arrivals == [(1, 0.5)]
    assert world.network.num_in_flight == 0


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


@pytest.mark.parametrize(
    ("name", "options", "u", "expected"),
    [
        ("constant", {"seconds": 0.3}, 0.9, 0.3),
        ("uniform", {"low_s": 1.0, "high_s": 3.0}, 0.25, 1.5),
        ("exponential", {"mean_s": 2.0, "minimum_s": 1.0}, 0.5, 1.0 + 2.0 * 0.6931471805599453),
        ("lognormal", {"median_s": 2.0, "sigma": 1.0}, 0.5, 2.0),
        ("lognormal", {"median_s": 1.0, "sigma": 1.0}, 0.8413447460685429, 2.718281828459045),
        ("pareto", {"minimum_s": 1.0, "shape": 2.0}, 0.75, 2.0),
    ],
)
def test_a_latency_is_its_quantile_function(name: str, options: dict, u: float, expected: float) -> None:
    assert LATENCIES[name](u, **options) == pytest.approx(expected)


def test_two_directions_of_a_link_have_streams_of_their_own() -> None:
    world = Wires(latency=LATENCIES["exponential"])
    world.send(0, 1)
    world.send(1, 0)
    world.kernel.run()
    assert len({time for _, time in world.arrivals}) == 2


def test_whether_a_message_is_lost_says_nothing_about_the_delay_of_those_that_are_not() -> None:
    world = Wires(latency=lambda u: u, loses=partial(bernoulli, probability=0.5))
    for _ in range(2000):
        world.send(0, 1)
    world.kernel.run()
    early = sum(time < 0.5 for _, time in world.arrivals)
    assert abs(early / len(world.arrivals) - 0.5) < 0.06
