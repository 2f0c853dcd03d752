from itertools import islice

import pytest

from rdpfl_sim.world.faults.fault import End, Start
from rdpfl_sim.world.faults.link_outage import LinkOutage
from tests.world.faults.schedules import MEANS, RING, context, problems, refusal, schedule


def test_link_outage_affects_both_directions():
    links = ((0, 1), (1, 0), (4, 3), (3, 4))
    changes = schedule("link_outage", links=[[0, 1], [4, 3]], from_s=1.0, until_s=4.0)
    assert list(changes) == [(1.0, Start(LinkOutage(links))), (4.0, End(LinkOutage(links)))]


def test_one_way_outage_affects_messages_from_the_first_client_to_the_second():
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
def test_impossible_link_outage_is_rejected(options, refused):
    assert refusal("link_outage", **options) == refused


def test_link_is_a_pair():
    (problem,) = problems("link_outage", links=[[0, 1], [2]])
    assert problem == (("links", 1), "must have at least 2 entries")


def test_outages_and_repairs_of_a_link_alternate():
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


def test_pair_that_is_not_linked_at_the_start_causes_a_warning():
    warnings: list[str] = []
    schedule("link_outage", context(warn=warnings.append), links=[[1, 0], [3, 1]])
    assert warnings == ["clients 3 and 1 are not linked at the start"]
