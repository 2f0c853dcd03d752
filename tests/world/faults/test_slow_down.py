from rdpfl_sim.world.faults.fault import End, Start
from rdpfl_sim.world.faults.slow_down import SlowDown
from tests.world.faults.schedules import refusal, schedule


def test_slow_clients_are_fast_again_after_a_time():
    changes = schedule("slow_down", clients=[2], factor=10.0, from_s=1.0, until_s=4.0)
    assert list(changes) == [(1.0, Start(SlowDown((2,), 10.0))), (4.0, End(SlowDown((2,), 10.0)))]
    assert list(schedule("slow_down", clients=[2], factor=0.5)) == [(0.0, Start(SlowDown((2,), 0.5)))]
    options = {"clients": [2], "factor": 2.0, "from_s": 4.0, "until_s": 1.0}
    assert refusal("slow_down", **options) == ("until_s", "must be after from_s = 4")
