import pytest

from rdpfl_sim.world.network.obstacles import Obstacles

SIDES = (frozenset({0}), frozenset({1, 2}))


def test_no_obstacle_exists_at_the_start() -> None:
    assert Obstacles().reason(0, 1) is None


def test_outage_affects_one_direction_and_needs_one_end_per_start() -> None:
    obstacles = Obstacles()
    obstacles.take_down([(0, 1)])
    obstacles.take_down([(0, 1), (2, 1)])
    assert obstacles.reason(0, 1) == obstacles.reason(2, 1) == "link is down"
    assert obstacles.reason(1, 0) is None
    obstacles.bring_up([(0, 1)])
    assert obstacles.reason(0, 1) == "link is down"
    obstacles.bring_up([(0, 1)])
    assert obstacles.reason(0, 1) is None


@pytest.mark.parametrize(
    ("link", "reason"),
    [((0, 1), "partition"), ((2, 0), "partition"), ((1, 2), None), ((0, 3), None), ((3, 1), None)],
)
def test_partition_affects_clients_on_different_sides(link: tuple[int, int], reason: str | None) -> None:
    obstacles = Obstacles()
    obstacles.partitions.append(SIDES)
    assert obstacles.reason(*link) == reason


def test_client_that_is_down_receives_nothing_but_its_sent_messages_may_arrive() -> None:
    obstacles = Obstacles()
    obstacles.clients_down.add(1)
    assert obstacles.reason(0, 1) == "recipient is down"
    assert obstacles.reason(1, 0) is None


def test_reason_of_the_link_precedes_that_of_the_partition() -> None:
    obstacles = Obstacles()
    obstacles.clients_down.add(1)
    obstacles.partitions.append(SIDES)
    assert obstacles.reason(0, 1) == "partition"
    obstacles.take_down([(0, 1)])
    assert obstacles.reason(0, 1) == "link is down"
