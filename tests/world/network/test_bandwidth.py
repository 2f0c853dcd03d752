from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdpfl_sim.components.schema import OneOf
from rdpfl_sim.world.kernel import Call, Kernel
from rdpfl_sim.world.network.bandwidth import BANDWIDTHS, Bandwidth, Shared, Unlimited, Uplink

quick = settings(max_examples=100, deadline=None)


@dataclass(eq=False)
class Sent:
    sender: int
    recipient: int
    size_bytes: float
    starts_at_s: float = 0.0


def times(
    build: Callable[[Kernel], Bandwidth], parcels: list[Sent], initial_time: float = 0.0
) -> list[float]:
    """Return the time at which each parcel is transmitted; assert that each is transmitted exactly once."""
    kernel = Kernel(initial_time=initial_time)
    bandwidth = build(kernel)
    through: dict[Sent, float] = {}

    def done(parcel: Sent) -> None:
        assert parcel not in through, f"{parcel} is through twice"
        through[parcel] = kernel.now

    for parcel in parcels:
        kernel.call_at(
            Call(lambda _, p=parcel: bandwidth.transmit(p, done)), initial_time + parcel.starts_at_s
        )
    kernel.run()
    return [through[parcel] for parcel in parcels]


def shared(up: float, down: float) -> Callable[[Kernel], Shared]:
    return lambda kernel: Shared(kernel, up_bytes_per_s=up, down_bytes_per_s=down)


def uplink(bytes_per_s: float) -> Callable[[Kernel], Uplink]:
    return lambda kernel: Uplink(kernel, bytes_per_s=bytes_per_s)


def test_unlimited_bandwidth_transmits_immediately_without_an_event() -> None:
    kernel = Kernel()
    through: list[Sent] = []
    parcel = Sent(0, 1, 1e9)
    Unlimited(kernel).transmit(parcel, through.append)
    assert through == [parcel]
    assert kernel.peek() == float("inf")


def test_uplink_sends_one_message_after_the_other() -> None:
    parcels = [
        Sent(0, 1, 40),
        Sent(0, 2, 10),
        Sent(0, 1, 20, starts_at_s=3),
        Sent(0, 1, 5, 20),
    ]
    assert times(uplink(10), parcels) == [4.0, 5.0, 7.0, 20.5]


def test_uplinks_of_different_senders_do_not_wait_for_each_other() -> None:
    assert times(uplink(10), [Sent(0, 2, 40), Sent(1, 2, 10)]) == [4.0, 1.0]


def test_uplink_keeps_the_order_of_messages_that_take_no_time() -> None:
    kernel = Kernel(initial_time=1e9)
    bandwidth = Uplink(kernel, bytes_per_s=1e6)
    parcels = [Sent(0, 1, size) for size in (0, 1e-6, 0)]
    through: list[Sent] = []
    for parcel in parcels:
        bandwidth.transmit(parcel, through.append)
    kernel.run()
    assert through == parcels
    assert kernel.now == 1e9


def test_two_transfers_share_an_uplink_until_the_shorter_one_ends() -> None:
    # 5 bytes/s each, until 20 bytes are through at 4; the other then has 20 of its 40 left, at 10 bytes/s.
    assert times(shared(10, 1000), [Sent(0, 1, 20), Sent(0, 2, 40)]) == [4.0, 6.0]


def test_transfer_that_starts_during_another_gets_half_of_the_uplink() -> None:
    # At 2 the first has 20 of 40 left and slows down to 5 bytes/s: 6. By then 20 of the other 30 are through.
    parcels = [Sent(0, 1, 40), Sent(0, 2, 30, starts_at_s=2)]
    assert times(shared(10, 1000), parcels) == [6.0, 7.0]


def test_transfers_to_one_recipient_share_its_downlink() -> None:
    # Three at 4 bytes/s until the shortest ends at 2; two at 6 with 12 and 24 left, until 4; then 12 at 12.
    parcels = [Sent(0, 3, 8), Sent(1, 3, 20), Sent(2, 3, 32)]
    assert times(shared(1000, 12), parcels) == [2.0, 4.0, 5.0]


def test_rate_is_that_of_the_slower_end() -> None:
    # Sender 0 has 6 bytes/s for each of its two; recipient 2 has 4 for each of its two, which 0 cannot use
    # elsewhere. At 2 the transfer 0 -> 1 ends; 0 -> 2 stays at 4 and ends at 3, and 1 -> 2 goes on at 8.
    parcels = [Sent(0, 1, 12), Sent(0, 2, 12), Sent(1, 2, 28)]
    assert times(shared(12, 8), parcels) == [2.0, 3.0, 5.0]


def test_transfer_that_starts_when_another_ends_gets_the_whole_uplink() -> None:
    parcels = [
        Sent(0, 1, 20),
        Sent(0, 1, 20, starts_at_s=2),
        Sent(0, 1, 20, starts_at_s=4),
    ]
    assert times(shared(10, 10), parcels) == [2.0, 4.0, 6.0]


def test_callback_may_start_the_next_transfer() -> None:
    kernel = Kernel()
    bandwidth = Shared(kernel, up_bytes_per_s=10)
    through: list[float] = []

    def done(parcel: Sent) -> None:
        through.append(kernel.now)
        if len(through) < 3:
            bandwidth.transmit(Sent(0, 1, 20), done)

    bandwidth.transmit(Sent(0, 1, 10), done)
    kernel.run()
    assert through == [1.0, 3.0, 5.0]


def test_equal_transfers_of_a_burst_end_together_after_a_linear_number_of_events() -> None:
    class Counting(Kernel):
        num_scheduled = 0

        def call_at(self, *event: Any) -> None:
            self.num_scheduled += 1
            super().call_at(*event)

    kernel = Counting()
    bandwidth = Shared(kernel, up_bytes_per_s=1000.0)
    through: list[int] = []
    for recipient in range(100):
        bandwidth.transmit(Sent(0, recipient, 50), lambda p: through.append(p.recipient))
    kernel.run()
    assert kernel.now == 5.0
    assert through == list(range(100))
    assert 100 <= kernel.num_scheduled < 200, (
        "the number of events must not grow with the square of the transfers"
    )


@pytest.mark.parametrize("size_bytes", [0.0, 1e-12, 0.1])
def test_transfer_too_short_to_move_the_clock_ends(size_bytes: float) -> None:
    parcels = [Sent(0, r % 3, size_bytes, starts_at_s=r // 4) for r in range(12)]
    assert times(shared(1e9, 1e9), parcels, initial_time=1e9) == [1e9 + r // 4 for r in range(12)]


def test_remainder_due_to_rounding_is_sent() -> None:
    # At 1e9 the clock moves by steps of 1.2e-7, so that what is gone and what is left are never exact.
    parcels = [Sent(0, r % 3, 1 + r / 7, starts_at_s=r * 1e-7) for r in range(30)]
    finish = times(shared(1e6, 1e6), parcels, initial_time=1e9)
    total_s = sum(p.size_bytes for p in parcels) / 1e6
    assert max(finish) - 1e9 == pytest.approx(total_s, abs=30 * 1.2e-7)


@given(st.floats(0, 1e9), st.floats(0.1, 1e9), st.floats(0.1, 1e9), st.floats(0, 1e6))
@quick
def test_shared_with_one_transfer_is_an_uplink(size: float, up: float, down: float, start: float) -> None:
    parcels = [Sent(0, 1, size, start)]
    assert times(shared(up, down), parcels) == times(uplink(min(up, down)), parcels)


parcels = st.lists(
    st.builds(Sent, st.integers(0, 2), st.integers(0, 2), st.integers(0, 60), st.integers(0, 12)),
    min_size=1,
    max_size=12,
)
capacities = st.sampled_from([1, 3, 7, 10, 24])


def exact_times(parcels: list[Sent], up: int, down: int) -> list[Fraction]:
    """Compute the same with rational arithmetic, in small steps."""
    now = Fraction(0)
    left = {i: Fraction(p.size_bytes) for i, p in enumerate(parcels)}
    finish: dict[int, Fraction] = {}
    while left:
        running = [i for i in left if parcels[i].starts_at_s <= now]
        rates = {
            i: min(
                Fraction(up, sum(parcels[j].sender == parcels[i].sender for j in running)),
                Fraction(down, sum(parcels[j].recipient == parcels[i].recipient for j in running)),
            )
            for i in running
        }
        ends = [left[i] / rates[i] for i in running]
        step = min(ends + [Fraction(parcels[i].starts_at_s) - now for i in left if i not in running])
        now += step
        for i in running:
            left[i] -= step * rates[i]
            if left[i] == 0:
                finish[i] = now
                del left[i]
    return [finish[i] for i in range(len(parcels))]


@given(parcels, capacities, capacities)
@quick
def test_shared_agrees_with_rational_arithmetic(parcels: list[Sent], up: int, down: int) -> None:
    expected = [float(time_s) for time_s in exact_times(parcels, up, down)]
    assert times(shared(up, down), parcels) == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
@given(parcels, st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
@quick
def test_no_end_exceeds_its_capacity(parcels: list[Sent], up: float, down: float) -> None:
    finish = times(shared(up, down), parcels)
    for parcel, ends_at_s in zip(parcels, finish, strict=True):
        least_s = parcel.size_bytes / min(up, down)
        assert ends_at_s >= (parcel.starts_at_s + least_s) * (1 - 1e-12)
    for end, capacity in (("sender", up), ("recipient", down)):
        for client in range(3):
            mine = [(p, t) for p, t in zip(parcels, finish, strict=True) if getattr(p, end) == client]
            busy_s, until_s = 0.0, 0.0
            for parcel, ends_at_s in sorted(mine, key=lambda pair: pair[0].starts_at_s):
                busy_s += max(0.0, ends_at_s - max(until_s, parcel.starts_at_s))
                until_s = max(until_s, ends_at_s)
            num_bytes = sum(parcel.size_bytes for parcel, _ in mine)
            assert num_bytes <= capacity * busy_s * (1 + 1e-9) + 1e-9


@given(parcels, st.floats(1e-3, 1e3))
@quick
def test_shared_uplink_is_never_idle_while_recipients_are_fast(parcels: list[Sent], up: float) -> None:
    # Whatever the order of service, the last byte of a sender is through at the same time.
    fair, fifo = times(shared(up, 1e9), parcels), times(uplink(up), parcels)
    for client in {parcel.sender for parcel in parcels}:
        mine = [i for i, parcel in enumerate(parcels) if parcel.sender == client]
        assert max(fair[i] for i in mine) == pytest.approx(max(fifo[i] for i in mine), rel=1e-9)


def test_options_are_read_from_the_signatures() -> None:
    chosen = OneOf(BANDWIDTHS).validate({"name": "shared", "up_bytes_per_s": 5.0})
    bandwidth = chosen.bind()(Kernel())
    assert isinstance(bandwidth, Shared)
    assert (bandwidth.up_bytes_per_s, bandwidth.down_bytes_per_s) == (5.0, 1e6)
