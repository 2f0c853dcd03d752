from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdpfl_sim.components.options import ClientSet, client_ids
from rdpfl_sim.components.schema import Strict
from rdpfl_sim.errors import OptionError
from tests.world.faults.schedules import Section, context, problems, refusal, schedule


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("3", (3,)),
        ("0..4, 7", (0, 1, 2, 3, 4, 7)),
        (" 7 ,0 .. 1", (0, 1, 7)),
        ("2..2", (2,)),
        ("9,8", (8, 9)),
    ],
)
def test_string_of_ids_and_inclusive_ranges_is_listed_in_order(text, ids):
    assert client_ids("clients", text, 10) == ids


@given(ids=st.lists(st.integers(0, 20), min_size=1, unique=True))
def test_list_and_string_of_the_same_ids_are_the_same_set(ids):
    assert client_ids("c", ids, 21) == client_ids("c", ",".join(map(str, ids)), 21) == tuple(sorted(ids))


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        ([], "must name at least one client"),
        ([0, 5], "there is no client 5; allowed: 0 to 4"),
        ("0..999999999", "there is no client 999999999; allowed: 0 to 4"),
        ([2, 0, 2], "client 2 occurs twice"),
        ("0..3, 1", "client 1 occurs twice"),
        ("0, 4..2", "a range must be in ascending order; given: '4..2'"),
    ],
)
def test_impossible_set_of_clients_is_rejected(clients, message):
    with pytest.raises(OptionError) as raised:
        client_ids("who", clients, 5)
    assert (raised.value.option, raised.value.message) == ("who", message)


@pytest.mark.parametrize(
    "clients", ["", "a", "1;2", "1..", "-1", "1,,2", "1" * 10, "1\n", 3, [-1], [1.0], [True], {}]
)
def test_invalid_set_of_clients_is_reported_with_one_message(clients):
    message = "must be a list of client ids, or a string such as '0..4, 7'"
    assert problems("leave", clients=clients, at_s=1) == [(("clients",), message)]
    assert problems("partition", sides=["0", clients]) == [(("sides", 1), message)]


@pytest.mark.parametrize("clients", ["0..4, 7", [0, 3]])
def test_set_of_clients_is_kept_as_it_was_written(clients):
    section = Section.model_validate({"fault": {"name": "leave", "clients": clients, "at_s": 1}})
    assert section.model_dump()["fault"]["clients"] == clients


def test_schema_of_a_set_of_clients_names_both_ways_to_write_it():
    class Who(Strict):
        clients: ClientSet

    ids, text = Who.model_json_schema()["properties"]["clients"]["anyOf"]
    assert ids["type"] == "array"
    assert ids["items"]["type"] == "integer"
    assert ids["items"]["minimum"] == 0
    assert text["type"] == "string"
    assert text["pattern"].startswith("^ *[0-9]")


CHOOSING: dict[str, dict[str, Any]] = {
    "crash": {"at_s": 1.0},
    "late_join": {"at_s": 1.0},
    "leave": {"at_s": 1.0},
    "slow_down": {"factor": 2.0},
}


@pytest.mark.parametrize("name", CHOOSING)
def test_fraction_of_the_clients_is_drawn_from_the_key_and_grows_by_additions(name):
    def chosen(fraction: float, key: int = 7) -> tuple[int, ...]:
        where = context(num_clients=100, key=key)
        return next(schedule(name, where, **CHOOSING[name], fraction=fraction))[1].fault.clients

    assert len(chosen(0.29)) == 29
    assert chosen(0.29) == tuple(sorted(chosen(0.29)))
    assert set(chosen(0.1)) < set(chosen(0.29)) < set(chosen(1.0)) == set(range(100))
    assert chosen(0.29) != chosen(0.29, key=8)


@pytest.mark.parametrize("name", CHOOSING)
@pytest.mark.parametrize(
    ("choice", "refused"),
    [
        ({}, ("clients", "is required, unless fraction is given")),
        ({"clients": [0], "fraction": 0.5}, ("fraction", "give either clients or fraction, not both")),
        ({"fraction": 0.19}, ("fraction", "is less than one client; allowed: at least 1/5")),
        ({"clients": [7]}, ("clients", "there is no client 7; allowed: 0 to 4")),
    ],
)
def test_either_clients_or_a_fraction_is_required(name, choice, refused):
    assert refusal(name, **CHOOSING[name], **choice) == refused


def test_drawn_clients_are_uniform():
    # 2 of 5 clients, 1000 times: each is drawn 400 times, +- 15 (one standard deviation).
    drawn = [
        next(schedule("leave", context(key=key), fraction=0.4, at_s=1.0))[1].fault.clients
        for key in range(1000)
    ]
    assert all(abs(sum(client in clients for clients in drawn) - 400) < 75 for client in range(5))
