from itertools import islice
from math import log

import numpy as np
import pytest

from rdpfl_sim.randomness import Streams, uniform
from rdpfl_sim.world.faults.fault import End, Start
from rdpfl_sim.world.faults.partition import Partition
from tests.world.faults.schedules import MEANS, context, refusal, schedule


def test_partition_starts_and_ends():
    sides = (frozenset({0, 1}), frozenset({3}))
    changes = schedule("partition", sides=["0..1", [3]], from_s=2.0, until_s=5.0)
    assert list(changes) == [(2.0, Start(Partition(sides))), (5.0, End(Partition(sides)))]


def test_partition_without_an_end_is_never_healed():
    sides = (frozenset({0}), frozenset({1}), frozenset({2, 4}))
    assert list(schedule("partition", sides=[[0], [1], "2,4"])) == [(0.0, Start(Partition(sides)))]


def test_single_side_is_separated_from_all_others():
    sides = (frozenset({1, 3}), frozenset({0, 2, 4}))
    assert list(schedule("partition", sides=[[3, 1]])) == [(0.0, Start(Partition(sides)))]


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({"sides": [[0, 1], [2, 4, 1]]}, ("sides", "client 1 is on two sides")),
        ({"sides": ["0..4"]}, ("sides", "a single side must not contain all clients")),
        ({"sides": [[0], []]}, ("sides", "must name at least one client")),
        ({"sides": [[0], [5]]}, ("sides", "there is no client 5; allowed: 0 to 4")),
        ({"sides": [[0]], "from_s": 3.0, "until_s": 3.0}, ("until_s", "must be after from_s = 3")),
    ],
)
def test_impossible_partition_is_rejected(options, refused):
    assert refusal("partition", **options) == refused


def test_random_partition_splits_all_clients_differently_each_time():
    changes = list(islice(schedule("random_partitions", context(num_clients=7), **MEANS, fraction=0.3), 40))
    cuts, heals = changes[::2], changes[1::2]
    for (_, cut), (_, heal) in zip(cuts, heals, strict=True):
        assert isinstance(cut, Start)
        assert heal == End(cut.fault)
        smaller, larger = cut.fault.sides
        assert len(smaller) == 2  # 2.1, rounded down
        assert smaller | larger == frozenset(range(7))
        assert not smaller & larger
    assert len({cut.fault.sides for _, cut in cuts}) > 10


def test_random_partition_happens_after_the_exponential_times_of_its_stream():
    key = Streams(7).key("cuts")
    times = [-mean * log(1 - uniform(key, draw)) for draw, mean in enumerate([3.0, 1.0, 3.0])]
    changes = islice(schedule("random_partitions", **MEANS), 3)
    assert [time for time, _ in changes] == pytest.approx(np.cumsum(times))


@pytest.mark.parametrize(
    ("num_clients", "fraction", "refused"),
    [
        (1, 0.5, ("", "a partition needs at least two clients")),
        (5, 0.1, ("fraction", "is less than one client; allowed: at least 1/5")),
    ],
)
def test_impossible_random_partition_is_rejected(num_clients, fraction, refused):
    assert refusal("random_partitions", context(num_clients), **MEANS, fraction=fraction) == refused
