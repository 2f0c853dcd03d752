import pytest

from rdpfl_sim.world.kernel import Alarm, Kernel


class Clock:
    def __init__(self) -> None:
        self.kernel = Kernel(initial_time=0.0)
        self.rung: list[float] = []
        self.alarm = Alarm(self.kernel, lambda: self.rung.append(self.kernel.now))

    def at(self, time_s: float, action) -> None:
        self.kernel.timeout(time_s).callbacks.append(lambda _: action())


def test_alarm_rings_once_at_its_time() -> None:
    clock = Clock()
    clock.alarm.set(0.1 + 0.2)
    clock.kernel.run()
    assert clock.rung == [0.1 + 0.2]


@pytest.mark.parametrize(("new", "expected"), [(5.0, [5.0]), (1.5, [1.5])])
def test_alarm_can_be_moved_later_or_earlier(new: float, expected: list[float]) -> None:
    clock = Clock()
    clock.alarm.set(3.0)
    clock.at(1.0, lambda: clock.alarm.set(new))
    clock.kernel.run()
    assert clock.rung == expected


def test_cancelled_alarm_is_silent_until_it_is_set_again() -> None:
    clock = Clock()
    clock.alarm.set(3.0)
    clock.at(1.0, clock.alarm.cancel)
    clock.at(2.0, lambda: clock.alarm.set(4.0))
    clock.kernel.run()
    assert clock.rung == [4.0]


def test_alarm_rings_after_everything_else_of_its_instant() -> None:
    clock = Clock()
    clock.alarm.set(2.0)
    seen: list[int] = []
    clock.at(1.0, lambda: clock.at(1.0, lambda: seen.append(len(clock.rung))))
    clock.kernel.run()
    assert seen == [0]
    assert clock.rung == [2.0]


def test_alarm_that_is_set_a_thousand_times_takes_one_place_in_the_queue() -> None:
    clock = Clock()
    for time_s in range(1, 1000):
        clock.alarm.set(float(time_s))
    assert len(clock.kernel._queue) == 1
    clock.kernel.run()
    assert clock.rung == [999.0]
