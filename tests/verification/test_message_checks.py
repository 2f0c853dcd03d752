"""Changed records of messages."""

from pathlib import Path
from typing import Any

import pytest

from rdpfl_sim.verification.check import INVARIANTS, Check
from rdpfl_sim.verification.clients import ClientChecks
from rdpfl_sim.verification.messages import MessageChecks
from rdpfl_sim.world.mailbox import NEWER_CHOSEN, TOO_OLD
from rdpfl_sim.world.network.obstacles import LINK_IS_DOWN, PARTITION
from tests.support import small_scenario
from tests.verification.changed_runs import index, read, violated, write


@pytest.mark.parametrize(("others", "reason"), [([], TOO_OLD), ([3], TOO_OLD), ([3, 5], NEWER_CHOSEN)])
def test_message_is_too_old_only_if_no_newer_one_of_its_sender_can_be_used(
    others: list[int], reason: str
) -> None:
    scenario = small_scenario(timing={"staleness": {"name": "keep", "max_age": 2}}, rounds=9)
    checks = {name: Check(name) for name in INVARIANTS}
    clients = ClientChecks(checks, 2, [(0, 1)], num_rounds=9)
    clients.states[1].round = 6
    messages = MessageChecks(checks, scenario, clients, frozenset())
    messages.inboxes[1][0].held = dict(enumerate([2, *others]))
    dropped: Any = {"time_s": 7.0, "message": 0, "sender": 0, "recipient": 1, "round": 2, "reason": reason}
    messages.message_stale(dropped, 1)
    assert checks["reasons"].outcome == "ok"
    other = NEWER_CHOSEN if reason == TOO_OLD else TOO_OLD
    messages.inboxes[1][0].held = dict(enumerate([2, *others]))
    messages.message_stale({**dropped, "reason": other}, 2)
    assert checks["reasons"].first == f"the reason for message 0 is {other!r}, but must be: {reason}"


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
            PARTITION,
        ),
        ({"kind": "link_outage", "phase": "start", "links": [[0, 1], [5, 0], [0, 5]]}, LINK_IS_DOWN),
    ],
)
def test_delivery_across_a_partition_or_a_link_that_is_down_is_reported(
    run: Path, fault: dict[str, Any], words: str
) -> None:
    records = read(run)
    first = index(records, "training_started")
    records.insert(first, {"event": "fault", "time_s": 0.0, "fault": 9, **fault})
    write(run, records)
    assert str(violated(run)["links"].first).endswith(f" is delivered, despite: {words}")


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
