from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise
from math import log
from pathlib import Path
from typing import Annotated, Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rdpfl_sim.components.choice import OneOf
from rdpfl_sim.components.option_table import Component
from rdpfl_sim.components.options import ClientSet, client_ids
from rdpfl_sim.components.table import Strict
from rdpfl_sim.errors import OptionError, ScenarioError, errors_at
from rdpfl_sim.randomness import Streams, uniform
from rdpfl_sim.world.faults import FAULTS
from rdpfl_sim.world.faults.churn import Absence, Leave
from rdpfl_sim.world.faults.crash import Crash
from rdpfl_sim.world.faults.fault import Change, End, FaultContext, Start, merged
from rdpfl_sim.world.faults.link_outage import LinkOutage
from rdpfl_sim.world.faults.partition import Partition
from rdpfl_sim.world.faults.slow_down import SlowDown
from rdpfl_sim.world.faults.topology_change import TopologyChange
from rdpfl_sim.world.network.topology import TOPOLOGIES, neighbours

RING = [(0, 1), (0, 4), (1, 2), (2, 3), (3, 4)]
MEANS = {"mean_time_to_fail_s": 3.0, "mean_time_to_heal_s": 1.0}
INFINITE: dict[str, dict[str, Any]] = {
    "random_partitions": MEANS,
    "random_outages": MEANS,
    "random_crashes": {"mean_time_to_fail_s": 3.0, "mean_time_to_recover_s": 1.0},
    "resample_topology": {"every_s": 2.0},
}


def context(num_clients: int = 5, key: int = 7, **changes: Any) -> FaultContext:
    def build(topology: Callable[..., nx.Graph]) -> Sequence[Sequence[int]]:
        return neighbours(topology(num_clients, np.random.default_rng(0)))

    facts = {
        "links": RING,
        "draw_topology": lambda k: [[k], [0]],
        "build_topology": build,
        **changes,
    }
    return FaultContext(num_clients=num_clients, key=key, **facts)


def schedule(name: str, where: FaultContext | None = None, **options: Any) -> Iterator[tuple[float, Change]]:
    return FAULTS[name](where or context(), **options)


def refusal(name: str, where: FaultContext | None = None, **options: Any) -> tuple[str, str]:
    """The option and the message with which a fault is refused, before its schedule is looked at."""
    with pytest.raises(OptionError) as raised:
        schedule(name, where, **options)
    return raised.value.option, raised.value.message


class Section(Strict):
    fault: Annotated[Component, OneOf(FAULTS)]


def problems(name: str, **options: Any) -> list[tuple[tuple[int | str, ...], str]]:
    with pytest.raises(ValidationError) as raised:
        Section.model_validate({"fault": {"name": name, **options}})
    return [(error["loc"][1:], error["msg"]) for error in raised.value.errors()]


# Sets of clients


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
        ("0, 4..2", "a range goes upwards, unlike '4..2'"),
    ],
)
def test_impossible_set_of_clients_is_refused(clients, message):
    with pytest.raises(OptionError) as raised:
        client_ids("who", clients, 5)
    assert (raised.value.option, raised.value.message) == ("who", message)


@pytest.mark.parametrize(
    "clients", ["", "a", "1;2", "1..", "-1", "1,,2", "1" * 10, "1\n", 3, [-1], [1.0], [True], {}]
)
def test_what_is_no_set_of_clients_gets_one_readable_message(clients):
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


# Partitions


def test_partition_cuts_and_heals():
    sides = (frozenset({0, 1}), frozenset({3}))
    changes = schedule("partition", sides=["0..1", [3]], from_s=2.0, until_s=5.0)
    assert list(changes) == [(2.0, Start(Partition(sides))), (5.0, End(Partition(sides)))]


def test_partition_without_an_end_is_never_healed():
    sides = (frozenset({0}), frozenset({1}), frozenset({2, 4}))
    assert list(schedule("partition", sides=[[0], [1], "2,4"])) == [(0.0, Start(Partition(sides)))]


def test_single_side_is_parted_from_all_others():
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
def test_impossible_partition_is_refused(options, refused):
    assert refusal("partition", **options) == refused


def test_random_partition_splits_all_clients_anew_each_time():
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
def test_impossible_random_partition_is_refused(num_clients, fraction, refused):
    assert refusal("random_partitions", context(num_clients), **MEANS, fraction=fraction) == refused


# Links


def test_link_outage_concerns_both_directions():
    links = ((0, 1), (1, 0), (4, 3), (3, 4))
    changes = schedule("link_outage", links=[[0, 1], [4, 3]], from_s=1.0, until_s=4.0)
    assert list(changes) == [(1.0, Start(LinkOutage(links))), (4.0, End(LinkOutage(links)))]


def test_one_way_outage_concerns_messages_from_the_first_client_to_the_second():
    assert list(schedule("link_outage", links=[[1, 0]], one_way=True)) == [
        (0.0, Start(LinkOutage(((1, 0),))))
    ]
    both = schedule("link_outage", links=[[1, 0], [0, 1]], one_way=True)
    assert list(both) == [(0.0, Start(LinkOutage(((1, 0), (0, 1)))))]


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({"links": [[0, 1], [2, 99]]}, ("links", "there is no client 99; allowed: 0 to 4")),
        ({"links": [[1, 1]]}, ("links", "client 1 occurs twice")),
        ({"links": [[0, 1], [1, 0]]}, ("links", "the link between 1 and 0 occurs twice")),
        ({"links": [[0, 1], [0, 1]], "one_way": True}, ("links", "the link between 0 and 1 occurs twice")),
        ({"links": [[0, 1]], "from_s": 3.0, "until_s": 2.0}, ("until_s", "must be after from_s = 3")),
    ],
)
def test_impossible_link_outage_is_refused(options, refused):
    assert refusal("link_outage", **options) == refused


def test_link_is_a_pair():
    (problem,) = problems("link_outage", links=[[0, 1], [2]])
    assert problem == (("links", 1), "list should have at least 2 items after validation, not 1")


def test_each_link_fails_and_heals_in_turn():
    changes = list(islice(schedule("random_outages", **MEANS), 1000))
    for i, j in RING:
        own = [change for _, change in changes if change.fault.links == ((i, j), (j, i))]
        assert [type(change) for change in own] == [Start, End] * (len(own) // 2) + [Start] * (len(own) % 2)
    assert {change.fault.links for _, change in changes} == {((i, j), (j, i)) for i, j in RING}


def test_outages_of_a_link_do_not_depend_on_the_other_links():
    alone = list(islice(schedule("random_outages", context(links=[(2, 3)]), **MEANS), 20))
    all_links = islice(schedule("random_outages", **MEANS), 500)
    assert [item for item in all_links if (2, 3) in item[1].fault.links][:20] == alone


def test_without_links_nothing_fails():
    assert list(schedule("random_outages", context(links=[]), **MEANS)) == []


# Crashes


def test_crashed_clients_stay_down_unless_they_are_to_recover():
    assert list(schedule("crash", clients=[3, 1], at_s=2.0)) == [(2.0, Start(Crash((1, 3), for_good=True)))]


def test_recovered_clients_keep_their_model_and_catch_up_unless_told_otherwise():
    kept = schedule("crash", clients="1", at_s=2.0, recover_after_s=0.5)
    assert list(kept) == [
        (2.0, Start(Crash((1,)))),
        (2.5, End(Crash((1,), fresh=False, catch_up=True))),
    ]
    options = {"recover_after_s": 0.5, "state": "fresh", "catch_up": False}
    *_, fresh = schedule("crash", clients="1", at_s=2.0, **options)
    assert fresh == (2.5, End(Crash((1,), fresh=True, catch_up=False)))


@pytest.mark.parametrize(
    ("name", "needed", "options"),
    [
        ("crash", "recover_after_s", {"clients": "1", "at_s": 2.0}),
        ("random_crashes", "mean_time_to_recover_s", {"mean_time_to_fail_s": 2.0}),
    ],
)
def test_how_to_recover_is_refused_where_nobody_does(name, needed, options):
    message = f"has no effect without {needed}"
    assert refusal(name, **options, state="fresh") == ("state", message)
    assert refusal(name, **options, catch_up=False) == ("catch_up", message)


def test_random_crash_stop_happens_to_every_chosen_client_once():
    changes = list(schedule("random_crashes", clients="0, 2..3", mean_time_to_fail_s=4.0))
    assert sorted(change.fault.clients for _, change in changes) == [(0,), (2,), (3,)]
    assert all(isinstance(change.fault, Crash) and change.fault.for_good for _, change in changes)
    for time_s, crash in changes:
        u = uniform(Streams(7).key("client", *crash.fault.clients), 0)
        assert time_s == pytest.approx(-4 * log(1 - u))


def test_random_crashes_and_recoveries_of_a_client_take_turns():
    options = {**INFINITE["random_crashes"], "state": "fresh", "catch_up": False}
    own = [c for _, c in islice(schedule("random_crashes", **options), 1000) if c.fault.clients == (4,)]
    assert len(own) > 100
    assert set(own[::2]) == {Start(Crash((4,), fresh=True, catch_up=False))}
    assert set(own[1::2]) == {End(Crash((4,), fresh=True, catch_up=False))}


def test_crashes_of_a_client_do_not_depend_on_who_else_may_crash():
    options = INFINITE["random_crashes"]
    alone = list(islice(schedule("random_crashes", clients=[2], **options), 20))
    everybody = islice(schedule("random_crashes", **options), 500)
    assert [item for item in everybody if item[1].fault.clients == (2,)][:20] == alone


def test_unknown_client_cannot_crash_at_random():
    refused = ("clients", "there is no client 9; allowed: 0 to 4")
    assert refusal("random_crashes", clients=[9], mean_time_to_fail_s=1.0) == refused


# Joining, leaving, slowing down


def test_late_joiners_are_absent_from_the_start():
    assert list(schedule("late_join", clients=[4, 2], at_s=3.0)) == [
        (0.0, Start(Absence((2, 4)))),
        (3.0, End(Absence((2, 4)))),
    ]


def test_leaving_is_for_good():
    assert list(schedule("leave", clients="0..1", at_s=3.0)) == [(3.0, Start(Leave((0, 1))))]


def test_slow_clients_are_fast_again_after_a_time():
    changes = schedule("slow_down", clients=[2], factor=10.0, from_s=1.0, until_s=4.0)
    assert list(changes) == [(1.0, Start(SlowDown((2,), 10.0))), (4.0, End(SlowDown((2,), 10.0)))]
    assert list(schedule("slow_down", clients=[2], factor=0.5)) == [(0.0, Start(SlowDown((2,), 0.5)))]
    options = {"clients": [2], "factor": 2.0, "from_s": 4.0, "until_s": 1.0}
    assert refusal("slow_down", **options) == ("until_s", "must be after from_s = 4")


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


# Traces


def trace(folder: Path, *lines: str, header: str = "time_s,client,state") -> str:
    path = folder / "trace.csv"
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return str(path)


def test_trace_is_sorted_and_who_comes_up_first_was_absent(tmp_path):
    path = trace(
        tmp_path, "9,3,down", "5.5,0,up", "4, 0 ,down", "", "2,3,up", "1,1,fresh", "7,0,down", "8,0,fresh"
    )
    assert list(schedule("churn_trace", path=path, catch_up=False)) == [
        (0.0, Start(Absence((1, 3)))),
        (1.0, End(Absence((1,)))),
        (2.0, End(Absence((3,)))),
        (4.0, Start(Crash((0,)))),
        (5.5, End(Crash((0,), fresh=False, catch_up=False))),
        (7.0, Start(Crash((0,)))),
        (8.0, End(Crash((0,), fresh=True, catch_up=False))),
        (9.0, Start(Crash((3,), for_good=True))),
    ]


def test_client_that_is_up_at_time_zero_is_there_from_the_start(tmp_path):
    assert list(schedule("churn_trace", path=trace(tmp_path, "0,2,up", "3,2,down"))) == [
        (3.0, Start(Crash((2,), for_good=True)))
    ]


def test_simultaneous_rows_of_a_trace_keep_the_order_of_the_file(tmp_path):
    changes = schedule("churn_trace", path=trace(tmp_path, "3,4,down", "3,0,down", "3,4,up"))
    assert list(changes) == [
        (3.0, Start(Crash((4,)))),
        (3.0, Start(Crash((0,), for_good=True))),
        (3.0, End(Crash((4,), fresh=False, catch_up=True))),
    ]


def test_trace_may_begin_with_a_byte_order_mark_and_end_lines_as_windows_does(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_bytes(b"\xef\xbb\xbftime_s,client,state\r\n1,0,down\r\n")
    assert list(schedule("churn_trace", path=str(path))) == [(1.0, Start(Crash((0,), for_good=True)))]


def test_trace_without_rows_changes_nothing(tmp_path):
    assert list(schedule("churn_trace", path=trace(tmp_path))) == []


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["1,0,down", "soon,0,up"], "line 3: the time 'soon' is not a number of seconds from 0 on"),
        (["-1,0,down"], "line 2: the time '-1' is not a number of seconds from 0 on"),
        (["nan,0,down"], "line 2: the time 'nan' is not a number of seconds from 0 on"),
        (["inf,0,down"], "line 2: the time 'inf' is not a number of seconds from 0 on"),
        (["1,5,down"], "line 2: there is no client '5'; allowed: 0 to 4"),
        (["1,-1,down"], "line 2: there is no client '-1'; allowed: 0 to 4"),
        (["1,one,down"], "line 2: there is no client 'one'; allowed: 0 to 4"),
        (["1," + "1" * 5000 + ",down"], f"line 2: there is no client '{'1' * 5000}'; allowed: 0 to 4"),
        (["", "1,0,off"], "line 3: there is no state 'off'; allowed: down, up, fresh"),
        (["1,0"], "line 2: has 2 columns; needed: time_s,client,state"),
        (["5,0,fresh", "1,0,up"], "line 2: client 0 is already up at 5 s"),
        (["1,0,down", "2,1,down", "3,0,down"], "line 4: client 0 is already down at 3 s"),
    ],
)
def test_bad_line_of_a_trace_is_named(tmp_path, lines, message):
    assert refusal("churn_trace", path=trace(tmp_path, *lines)) == ("path", message)


def test_trace_needs_its_header(tmp_path):
    refused = ("path", "line 1: must be the header time_s,client,state")
    assert refusal("churn_trace", path=trace(tmp_path, header="1,0,down")) == refused
    (tmp_path / "empty.csv").touch()
    assert refusal("churn_trace", path=str(tmp_path / "empty.csv")) == refused


def test_trace_that_cannot_be_read_is_refused(tmp_path):
    refused = ("path", "cannot be read: No such file or directory")
    assert refusal("churn_trace", path=str(tmp_path / "none.csv")) == refused
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    option, message = refusal("churn_trace", path=str(tmp_path / "binary.csv"))
    assert option == "path"
    assert message.startswith("is not a CSV file: 'utf-8' codec can't decode")
    assert refusal("churn_trace", path="\0") == (
        "path",
        "cannot be read: is not a valid path (embedded null byte)",
    )


# Topologies


def test_resampled_topologies_come_at_multiples_of_the_period():
    assert list(islice(schedule("resample_topology", every_s=0.1), 3)) == [
        (0.1, Start(TopologyChange(((1,), (0,))))),
        (0.2, Start(TopologyChange(((2,), (0,))))),
        (3 * 0.1, Start(TopologyChange(((3,), (0,))))),
    ]


def test_topology_is_not_resampled_before_it_is_asked_for():
    drawn: list[int] = []
    changes = schedule(
        "resample_topology", context(draw_topology=lambda k: drawn.append(k) or []), every_s=1.0
    )
    assert drawn == []
    next(changes)
    assert drawn == [1]


def test_topology_changes_to_another():
    changes = schedule("change_topology", at_s=4.0, topology=TOPOLOGIES["star"])
    assert list(changes) == [(4.0, Start(TopologyChange(((1, 2, 3, 4), (0,), (0,), (0,), (0,)))))]


def test_topology_that_does_not_exist_is_refused_at_its_own_option():
    section = Section.model_validate(
        {"fault": {"name": "change_topology", "at_s": 4, "topology": {"name": "k_regular", "k": 9}}}
    )
    with pytest.raises(ScenarioError, match=r"^faults\[0\].topology.k: must be"):  # noqa: SIM117
        with errors_at("faults[0]", section.fault):
            section.fault.bind()(context())


# All faults


@pytest.mark.parametrize("name", INFINITE)
def test_endless_schedule_is_lazy_and_in_order(name):
    times = [time_s for time_s, _ in islice(schedule(name, **INFINITE[name]), 1000)]
    assert len(times) == 1000
    assert times[0] > 0
    assert all(earlier <= later for earlier, later in pairwise(times))


@pytest.mark.parametrize("name", INFINITE)
def test_schedule_does_not_depend_on_what_else_is_drawn_meanwhile(name):
    first = schedule(name, **INFINITE[name])
    beginning = list(islice(first, 3))
    other = list(islice(schedule(name, **INFINITE[name]), 50))
    assert beginning + list(islice(first, 47)) == other


@pytest.mark.parametrize("name", sorted(set(INFINITE) - {"resample_topology"}))
def test_another_key_gives_another_schedule(name):
    first, second = (list(islice(schedule(name, context(key=key), **INFINITE[name]), 9)) for key in (1, 2))
    assert first != second


@pytest.mark.parametrize(
    ("name", "num_independent"), [("random_partitions", 1), ("random_outages", 5), ("random_crashes", 5)]
)
def test_mean_times_are_those_of_the_options(name, num_independent):
    # One of `num_independent` spells begins every (3 + 1) / num_independent seconds, and it lasts 1 of 4 s.
    changes = list(islice(schedule(name, **INFINITE[name]), 8000))
    signs = [1 if isinstance(change, Start) else -1 for _, change in changes]
    times = np.array([time_s for time_s, _ in changes])
    assert times[-1] == pytest.approx(8000 / 2 * 4 / num_independent, rel=0.05)
    down_s = (np.cumsum(signs)[:-1] * np.diff(times)).sum()
    assert down_s / num_independent / times[-1] == pytest.approx(1 / 4, rel=0.07)


def test_merged_schedules_are_in_order_of_time_and_then_of_position():
    late = schedule("leave", clients=[0], at_s=5.0)
    slow = schedule("slow_down", clients=[1], factor=2.0, until_s=5.0)
    endless = schedule("resample_topology", every_s=2.5)
    assert list(islice(merged([late, slow, endless]), 6)) == [
        (0.0, 1, Start(SlowDown((1,), 2.0))),
        (2.5, 2, Start(TopologyChange(((1,), (0,))))),
        (5.0, 0, Start(Leave((0,)))),
        (5.0, 1, End(SlowDown((1,), 2.0))),
        (5.0, 2, Start(TopologyChange(((2,), (0,))))),
        (7.5, 2, Start(TopologyChange(((3,), (0,))))),
    ]


def test_nothing_merged_is_nothing():
    assert list(merged([])) == []


@given(times=st.lists(st.lists(st.integers(0, 5)), max_size=4))
def test_merging_is_a_stable_sort(times):
    items = [[(float(t), Start(Leave((n,)))) for n, t in enumerate(sorted(own))] for own in times]
    flat = [(t, position, change) for position, own in enumerate(items) for t, change in own]
    assert list(merged(map(iter, items))) == sorted(flat, key=lambda item: item[0])


def test_only_slowness_is_harmless_to_messages():
    assert [name for name in FAULTS if not FAULTS.facts(name).may_lose_messages] == ["slow_down"]


def test_changes_can_be_members_of_a_set():
    assert (
        len(
            {
                Start(Partition((frozenset({0}),))),
                Start(TopologyChange(((1,), (0,)))),
                Start(Crash((1,), for_good=True)),
                Start(Crash((1,), for_good=True)),
            }
        )
        == 3
    )


def test_every_fault_has_a_schema_and_is_bound_by_the_registry():
    assert "random_outages_options" in str(Section.model_json_schema())
    fault = {"name": "crash", "clients": "0..1", "at_s": 2, "recover_after_s": 1}
    changes = Section.model_validate({"fault": fault}).fault.bind()(context())
    assert [time_s for time_s, _ in changes] == [2.0, 3.0]


def test_times_so_short_that_the_clock_would_stand_still_are_refused():
    (problem,) = problems("resample_topology", every_s=1e-9)
    assert problem == (("every_s",), "input should be greater than or equal to 0.000001")
