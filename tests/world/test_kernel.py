import pytest
from simpy.core import EmptySchedule

from rdpfl_sim.world.kernel import Alarm, Call, Kernel


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


# The kernel's own loop


def test_kernel_pauses_after_the_event_that_asks_for_it_and_goes_on_from_there() -> None:
    kernel, seen = Kernel(), []

    def note(call: Call) -> None:
        seen.append((kernel.now, call.subject))
        if call.subject == "pause":
            kernel.pause()

    for time_s, name in [
        (1.0, "first"),
        (2.0, "pause"),
        (2.0, "same instant"),
        (3.0, "pause"),
        (4.0, "last"),
    ]:
        kernel.post(Call(note, name), time_s)
    kernel.run_on()
    assert seen == [(1.0, "first"), (2.0, "pause")]
    kernel.run_on()
    assert seen[2:] == [(2.0, "same instant"), (3.0, "pause")]
    with pytest.raises(EmptySchedule):
        kernel.run_on()
    assert seen[4:] == [(4.0, "last")]


def test_step_lets_one_event_happen_of_either_kind() -> None:
    kernel, seen = Kernel(), []
    kernel.timeout(1.0).callbacks.append(lambda _: seen.append("SimPy's"))
    kernel.post(Call(lambda _: seen.append("own")), 2.0)
    kernel.step()
    assert seen == ["SimPy's"]
    kernel.step()
    assert (seen, kernel.now) == (["SimPy's", "own"], 2.0)


def test_process_that_fails_ends_the_run_with_its_error() -> None:
    kernel = Kernel()

    def process():
        yield kernel.timeout(1.0)
        raise ZeroDivisionError("in a process")

    kernel.process(process())
    kernel.post(Call(lambda _: None), 2.0)
    with pytest.raises(ZeroDivisionError, match="in a process"):
        kernel.run_on()
    assert kernel.now == 1.0


@pytest.mark.parametrize("also_due", [False, True])
def test_event_that_is_fired_at_once_comes_after_what_else_is_due(also_due: bool) -> None:
    kernel, seen = Kernel(), []
    event = kernel.event()
    event.callbacks.append(lambda _: seen.append("event"))

    def fire(_: Call) -> None:
        kernel.fire_at_once(event)
        seen.append("rest of the callback")

    kernel.post(Call(fire), 1.0)
    kernel.post(Call(lambda _: seen.append("other")), 1.0 if also_due else 1.5)
    with pytest.raises(EmptySchedule):
        kernel.run_on()
    assert seen == (
        ["rest of the callback", "other", "event"] if also_due else ["event", "rest of the callback", "other"]
    )
