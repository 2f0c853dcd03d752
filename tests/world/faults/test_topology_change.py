from itertools import islice

import pytest

from rdpfl_sim.errors import ScenarioError, errors_at
from rdpfl_sim.world.faults.fault import Start
from rdpfl_sim.world.faults.topology_change import TopologyChange
from rdpfl_sim.world.network.topology import TOPOLOGIES
from tests.world.faults.schedules import Section, context, schedule


def test_resampled_topologies_come_at_multiples_of_the_period():
    assert list(islice(schedule("resample_topology", every_s=0.1), 3)) == [
        (0.1, Start(TopologyChange(((1,), (0,))))),
        (0.2, Start(TopologyChange(((2,), (0,))))),
        (3 * 0.1, Start(TopologyChange(((3,), (0,))))),
    ]


def test_topology_is_not_resampled_before_it_is_needed():
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


def test_topology_that_does_not_exist_is_rejected_with_its_path():
    section = Section.model_validate(
        {"fault": {"name": "change_topology", "at_s": 4, "topology": {"name": "k_regular", "k": 9}}}
    )
    with pytest.raises(ScenarioError, match=r"^faults\[0\].topology.k: must be"):  # noqa: SIM117
        with errors_at("faults[0]", section.fault):
            section.fault.bind()(context())
