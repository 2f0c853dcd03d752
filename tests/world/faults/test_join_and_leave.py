from rdpfl_sim.world.faults.fault import End, Start
from rdpfl_sim.world.faults.join_and_leave import Absence, Leave
from tests.world.faults.schedules import schedule


def test_late_joiners_are_absent_from_the_start():
    assert list(schedule("late_join", clients=[4, 2], at_s=3.0)) == [
        (0.0, Start(Absence((2, 4)))),
        (3.0, End(Absence((2, 4)))),
    ]


def test_departure_is_permanent():
    assert list(schedule("leave", clients="0..1", at_s=3.0)) == [(3.0, Start(Leave((0, 1))))]
