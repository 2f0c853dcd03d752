from itertools import islice
from math import log

import pytest

from rdpfl_sim.randomness import Streams, uniform
from rdpfl_sim.world.faults.crash import Crash
from rdpfl_sim.world.faults.fault import End, Start
from tests.world.faults.schedules import INFINITE, context, refusal, schedule


def test_crashed_clients_stay_down_unless_they_are_to_recover():
    assert list(schedule("crash", clients=[3, 1], at_s=2.0)) == [(2.0, Start(Crash((1, 3), for_good=True)))]


def test_recovered_clients_keep_their_model_and_catch_up_by_default():
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
def test_recovery_options_are_rejected_without_recovery(name, needed, options):
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


def test_random_crashes_and_recoveries_of_a_client_alternate():
    options = {**INFINITE["random_crashes"], "state": "fresh", "catch_up": False}
    own = [c for _, c in islice(schedule("random_crashes", **options), 1000) if c.fault.clients == (4,)]
    assert len(own) > 100
    assert set(own[::2]) == {Start(Crash((4,), fresh=True, catch_up=False))}
    assert set(own[1::2]) == {End(Crash((4,), fresh=True, catch_up=False))}


def test_crashes_of_a_client_do_not_depend_on_other_clients_that_may_crash():
    options = INFINITE["random_crashes"]
    alone = list(islice(schedule("random_crashes", clients=[2], **options), 20))
    all_clients = islice(schedule("random_crashes", **options), 500)
    assert [item for item in all_clients if item[1].fault.clients == (2,)][:20] == alone


def test_unknown_client_cannot_crash_at_random():
    refused = ("clients", "there is no client 9; allowed: 0 to 4")
    assert refusal("random_crashes", clients=[9], mean_time_to_fail_s=1.0) == refused


@pytest.mark.parametrize(
    ("training_s", "expected"),
    [
        (None, []),
        (2.0, []),
        (
            2.5,
            [
                "clients crash every 2 s on average and train for at least 2.5 s per round; "
                "set timing.max_time_s to limit the run"
            ],
        ),
    ],
)
def test_crashes_more_frequent_than_trainings_cause_a_warning(training_s, expected):
    warnings: list[str] = []
    where = context(training_s=training_s, warn=warnings.append)
    schedule("random_crashes", where, mean_time_to_fail_s=2.0)
    assert warnings == expected
