import pytest
from simpy.core import EmptySchedule

from rdpfl_sim.world.kernel import Call, Kernel, Timer


class Clock:
    def __init__(self) -> None:
        self.kernel = Kernel(initial_time=0.0)
        self.calls: list[float] = []
        self.timer = Timer(self.kernel, lambda: self.calls.append(self.kernel.now))

    def at(self, time_s: float, action) -> None:
        self.kernel.timeout(time_s).callbacks.append(lambda _: action())


def test_timer_calls_once_at_its_time() -> None:
    clock = Clock()
    clock.timer.set(0.1 + 0.2)
    clock.kernel.run()
    assert clock.calls == [0.1 + 0.2]


@pytest.mark.parametrize(("new", "expected"), [(5.0, [5.0]), (1.5, [1.5])])
def test_timer_can_be_moved_later_or_earlier(new: float, expected: list[float]) -> None:
    clock = Clock()
    clock.timer.set(3.0)
    clock.at(1.0, lambda: clock.timer.set(new))
    clock.kernel.run()
    assert clock.calls == expected


def test_cancelled_timer_does_nothing_until_it_is_set_again() -> None:
    clock = Clock()
    clock.timer.set(3.0)
    clock.at(1.0, clock.timer.cancel)
    clock.at(2.0, lambda: clock.timer.set(4.0))
    clock.kernel.run()
    assert clock.calls == [4.0]


def test_timer_calls_after_all_other_events_of_its_instant() -> None:
    clock = Clock()
    clock.timer.set(2.0)
    seen: list[int] = []
    clock.at(1.0, lambda: clock.at(1.0, lambda: seen.append(len(clock.calls))))
    clock.kernel.run()
    assert seen == [0]
    assert clock.calls == [2.0]


def test_timer_that_is_set_a_thousand_times_has_one_entry_in_the_queue() -> None:
    clock = Clock()
    for time_s in range(1, 1000):
        clock.timer.set(float(time_s))
    assert len(clock.kernel._queue) == 1
    clock.kernel.run()
    assert clock.calls == [999.0]


# The kernel's own loop


def test_kernel_pauses_after_the_current_event_and_continues_from_there() -> None:
    kernel, seen = Kernel(), []

    def note(call: Call) -> None:
        seen.append((kernel.now, call.argument))
        if call.argument == "pause":
            kernel.pause()

    for time_s, name in [
        (1.0, "first"),
        (2.0, "pause"),
        (2.0, "same instant"),
        (3.0, "pause"),
        (4.0, "last"),
    ]:
        kernel.call_at(Call(note, name), time_s)
    kernel.run_until_paused()
    assert seen == [(1.0, "first"), (2.0, "pause")]
    kernel.run_until_paused()
    assert seen[2:] == [(2.0, "same instant"), (3.0, "pause")]
    with pytest.raises(EmptySchedule):
        kernel.run_until_paused()
    assert seen[4:] == [(4.0, "last")]


def test_step_processes_one_event_of_either_kind() -> None:
    kernel, seen = Kernel(), []
    kernel.timeout(1.0).callbacks.append(lambda _: seen.append("SimPy's"))
    kernel.call_at(Call(lambda _: seen.append("own")), 2.0)
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
    kernel.call_at(Call(lambda _: None), 2.0)
    with pytest.raises(ZeroDivisionError, match="in a process"):
        kernel.run_until_paused()
    assert kernel.now == 1.0
