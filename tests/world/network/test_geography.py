from itertools import permutations, product
from math import sqrt
from typing import Annotated, Any

import pytest
from pydantic import ValidationError

from rdpfl_sim.components.schema import Component, OneOf, Strict
from rdpfl_sim.errors import OptionError
from rdpfl_sim.randomness import Streams
from rdpfl_sim.world.network.latency import GEOGRAPHIES, Propagation, nowhere, per_link, plane, regions

NUM_CLIENTS = 12
PAIRS = list(permutations(range(NUM_CLIENTS), 2))


def delays(propagation: Propagation) -> list[float]:
    return [propagation(i, j) for i, j in PAIRS]


class Section(Strict):
    geography: Annotated[Component, OneOf(GEOGRAPHIES)]


def test_without_geography_there_is_no_propagation_time() -> None:
    assert set(delays(nowhere(NUM_CLIENTS, Streams(1)))) == {0.0}


@pytest.mark.parametrize("build", [plane, per_link])
def test_delays_are_the_same_in_every_run_and_others_with_another_seed(build: Any) -> None:
    first, again, other = (delays(build(NUM_CLIENTS, Streams(seed))) for seed in (1, 1, 2))
    assert first == again
    assert not set(first) & set(other)


@pytest.mark.parametrize("build", [plane, per_link])
def test_delays_do_not_depend_on_the_number_of_clients(build: Any) -> None:
    few, many = build(3, Streams(1)), build(NUM_CLIENTS, Streams(1))
    assert [few(i, j) for i, j in permutations(range(3), 2)] == [
        many(i, j) for i, j in permutations(range(3), 2)
    ]


# Plane


def test_distances_in_the_plane_are_those_of_points_in_a_square() -> None:
    distance = plane(NUM_CLIENTS, Streams(1), side_s=2.0)
    for i, j in PAIRS:
        assert 0 < distance(i, j) == distance(j, i) <= 2 * sqrt(2)
    for i, j, k in product(range(NUM_CLIENTS), repeat=3):
        assert distance(i, k) <= distance(i, j) + distance(j, k) + 1e-12
    assert distance(4, 4) == 0.0


def test_clients_are_spread_over_the_whole_square() -> None:
    propagation = plane(400, Streams(1), side_s=1.0)
    between = [propagation(i, j) for i, j in permutations(range(400), 2) if i < j]
    # The mean distance of two random points in the unit square is 0.5214.
    assert sum(between) / len(between) == pytest.approx(0.5214, abs=0.03)
    assert max(between) > 1.2


def test_delays_grow_with_the_side_of_the_square() -> None:
    small, large = (delays(plane(NUM_CLIENTS, Streams(1), side_s=side_s)) for side_s in (0.1, 0.3))
    assert large == pytest.approx([3 * delay_s for delay_s in small])
    assert set(delays(plane(NUM_CLIENTS, Streams(1), side_s=0.0))) == {0.0}


# Regions


def test_matrix_contains_the_delays_between_regions() -> None:
    propagation = regions(4, Streams(1), delays_s=[[0.01, 0.1], [0.3, 0.02]], members=[0, 1, 1, 0])
    assert propagation(0, 3) == 0.01
    assert propagation(0, 1) == 0.1
    assert propagation(1, 0) == 0.3, "the matrix need not be symmetric: row is sender, column is recipient"
    assert propagation(2, 1) == 0.02


def test_clients_are_assigned_to_regions_in_turn_unless_members_are_given() -> None:
    delays_s = [[float(10 * row + column) for column in range(3)] for row in range(3)]
    propagation = regions(7, Streams(1), delays_s=delays_s)
    assert [propagation(0, client) for client in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    assert [propagation(client, 0) for client in range(7)] == [0, 10, 20, 0, 10, 20, 0]


def test_there_may_be_more_regions_than_clients() -> None:
    propagation = regions(2, Streams(1), delays_s=[[1.0] * 5] * 5)
    assert propagation(0, 1) == 1.0


@pytest.mark.parametrize(
    ("options", "option", "message"),
    [
        ({"delays_s": []}, "delays_s", "must be a square matrix with one row and one column per region"),
        (
            {"delays_s": [[1.0, 2.0]]},
            "delays_s",
            "must be a square matrix with one row and one column per region",
        ),
        (
            {"delays_s": [[1.0, 2.0], [1.0]]},
            "delays_s",
            "must be a square matrix with one row and one column per region",
        ),
        (
            {"delays_s": [[1.0]], "members": [0, 0]},
            "members",
            "needs 3 entries, one per client; has 2",
        ),
        ({"delays_s": [[1.0]], "members": []}, "members", "needs 3 entries, one per client; has 0"),
        (
            {"delays_s": [[1.0, 1.0], [1.0, 1.0]], "members": [0, 1, 2]},
            "members",
            "there is no region 2; allowed: 0 to 1",
        ),
    ],
)
def test_impossible_regions_are_rejected(options: dict[str, Any], option: str, message: str) -> None:
    with pytest.raises(OptionError) as raised:
        regions(3, Streams(1), **options)
    assert (raised.value.option, raised.value.message) == (option, message)


# A delay per link


def test_links_have_separate_delays_within_the_bounds() -> None:
    found = delays(per_link(40, Streams(1), low_s=0.2, high_s=0.6))
    assert len(set(found)) == len(PAIRS)
    assert 0.2 < min(found) < 0.25 < 0.55 < max(found) < 0.6
    assert sum(found) / len(found) == pytest.approx(0.4, abs=0.03)


def test_two_directions_of_a_link_differ_unless_they_are_symmetric() -> None:
    asymmetric, symmetric = (per_link(NUM_CLIENTS, Streams(1), symmetric=flag) for flag in (False, True))
    assert all(asymmetric(i, j) != asymmetric(j, i) for i, j in PAIRS)
    assert all(symmetric(i, j) == symmetric(j, i) for i, j in PAIRS)
    assert len(set(delays(symmetric))) == len(PAIRS) / 2


def test_equal_bounds_give_every_link_the_same_delay() -> None:
    assert set(delays(per_link(NUM_CLIENTS, Streams(1), low_s=0.3, high_s=0.3))) == {0.3}


# As options


@pytest.mark.parametrize(
    "table",
    [
        {"name": "plane", "side_s": -1.0},
        {"name": "regions"},
        {"name": "regions", "delays_s": [[-1.0]]},
        {"name": "regions", "delays_s": [1.0]},
        {"name": "regions", "delays_s": [[1.0]], "members": [-1]},
        {"name": "per_link", "low_s": -0.1},
        {"name": "per_link", "symmetric": 1},
        {"name": "sphere"},
    ],
)
def test_invalid_options_are_rejected(table: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Section.model_validate({"geography": table})


@pytest.mark.parametrize("geography", ["none", "plane", "per_link", {"name": "regions", "delays_s": [[0.5]]}])
def test_every_geography_can_be_chosen(geography: str | dict[str, Any]) -> None:
    build = Section.model_validate({"geography": geography}).geography.bind()
    assert build(2, Streams(1))(0, 1) >= 0.0
