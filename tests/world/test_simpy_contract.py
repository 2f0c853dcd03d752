"""The kernel's assumptions about SimPy's private names. A SimPy release that breaks them fails here."""

from heapq import heappush

import pytest
from simpy import Environment, Event
from simpy.events import NORMAL, URGENT, Initialize, Process


def test_queue_is_a_heap_of_time_priority_number_and_event() -> None:
    environment = Environment(initial_time=1.0)
    event = environment.timeout(2.0)
    [(time_s, priority, number, queued)] = environment._queue
    assert (time_s, priority, queued) == (3.0, NORMAL, event)
    assert next(environment._eid) == number + 1
    assert URGENT < NORMAL


def test_entry_that_is_pushed_onto_the_queue_is_processed_like_a_scheduled_one() -> None:
    environment, processed = Environment(), []
    event = Event(environment)
    event._ok, event._value = True, None
    event.callbacks.append(lambda _: processed.append(environment.now))
    heappush(environment._queue, (2.0, NORMAL, next(environment._eid), event))
    environment.run()
    assert processed == [2.0]
    assert event.processed
    assert event.callbacks is None


def test_clock_can_be_set() -> None:
    environment = Environment()
    environment._now = 5.0
    assert environment.now == 5.0


def test_event_has_a_value_only_after_it_was_triggered() -> None:
    event = Event(Environment())
    assert not event.triggered
    event._ok, event._value = True, None
    assert event.triggered
    assert event.value is None


def test_error_of_a_process_is_defused_only_if_another_process_waits_for_it() -> None:
    environment = Environment()

    def failing():
        yield environment.timeout(1.0)
        raise ZeroDivisionError

    def waiting(other: Process):
        with pytest.raises(ZeroDivisionError):
            yield other

    waited_for = environment.process(failing())
    environment.process(waiting(waited_for))
    environment.run()
    assert hasattr(waited_for, "_defused")
    alone = environment.process(failing())
    with pytest.raises(ZeroDivisionError):
        environment.run()
    assert not alone._ok
    assert not hasattr(alone, "_defused")


def test_process_starts_with_an_urgent_event_that_refers_to_it() -> None:
    environment = Environment()

    def idle():
        yield environment.timeout(1.0)

    process = environment.process(idle())
    [(time_s, priority, _, event)] = environment._queue
    assert (time_s, priority, type(event)) == (0.0, URGENT, Initialize)
    assert process.target is event
    [resume] = event.callbacks
    assert resume.__self__ is process
