"""Changed records of messages."""

from pathlib import Path
from typing import Any

import pytest

from rdpfl_sim.verification.messages import STALE, DroppedMessage
from rdpfl_sim.world.mailbox import NEWER_CHOSEN, TOO_OLD
from tests.verification.changed_runs import index, read, violated, write


@pytest.mark.parametrize(("others", "reason"), [([], TOO_OLD), ([3], TOO_OLD), ([3, 5], NEWER_CHOSEN)])
def test_message_is_too_old_only_if_no_newer_one_of_its_sender_can_be_used(
    others: list[int], reason: str
) -> None:
    drop = DroppedMessage(
        stamp=2,
        round=6,
        is_neighbour=True,
        others=others,
        last_used=1,
        has_restarted=False,
        last_round=9,
        max_age=2,
        capacity=8,
    )
    reasons = [name for name in (TOO_OLD, NEWER_CHOSEN) if STALE[name](drop)]
    assert reasons == [reason]


def test_delivery_before_sending_is_reported(run: Path) -> None:
    records = read(run)
    sent = index(records, "message_sent", sender=2)
    arrived = index(records, "message_delivered", message=records[sent]["message"])
    record = records.pop(arrived)
    records.insert(sent, {**record, "time_s": records[sent]["time_s"]})
    write(run, records)
    assert violated(run)["outcomes"].line == sent + 1


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            {"kind": "partition", "phase": "start", "sides": [[0, 1, 2, 3, 4], [5]]},
            "different sides of a partition",
        ),
        ({"kind": "link_outage", "phase": "start", "links": [[0, 1], [5, 0], [0, 5]]}, "the link from"),
    ],
)
def test_delivery_across_a_partition_or_a_link_that_is_down_is_reported(
    run: Path, fault: dict[str, Any], words: str
) -> None:
    records = read(run)
    first = index(records, "training_started")
    records.insert(first, {"event": "fault", "time_s": 0.0, "fault": 9, **fault})
    write(run, records)
    assert words in str(violated(run)["links"].first)


def test_message_to_a_former_neighbour_is_reported(run: Path) -> None:
    records = read(run)
    rewire = {
        "event": "fault",
        "time_s": 0.0,
        "fault": 9,
        "kind": "topology_change",
        "phase": "start",
        "links": [[0, 3]],
    }
    records.insert(index(records, "training_started"), rewire)
    write(run, records)
    assert "is not a neighbour of" in str(violated(run)["links"].first)
