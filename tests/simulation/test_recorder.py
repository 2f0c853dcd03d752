import io
import json

import torch

from rdpfl_sim.methods.base import Payload, State
from rdpfl_sim.methods.batching import ClientMessageStats, Updated
from rdpfl_sim.randomness import Streams
from rdpfl_sim.simulation.recorder import Recorder
from rdpfl_sim.simulation.telemetry import Telemetry
from rdpfl_sim.world.kernel import Kernel
from rdpfl_sim.world.network.links import Link, lossless
from rdpfl_sim.world.network.message import Broadcast, Message
from rdpfl_sim.world.observer import UsedMessage

LINK = Link(1, 2, key=0, latency=lambda u: 0.0, loses=lossless)
MESSAGE = Message(7, LINK, Broadcast(1, 3, Payload(torch.zeros(5)), size_bytes=20.0, sent_at_s=0.5), 0, print)


USED = UsedMessage(number=7, sender=1, recipient=2, round=3)
STATS = ClientMessageStats(distance_to_own=[1.5], distance_to_predicted=None, weight=[1.0])
STATE = State(torch.zeros(1, 2))


def recorder(file: io.BytesIO | None = None, fraction: float = 1.0) -> Recorder:
    telemetry = Telemetry(frozenset(), [None] * 3, lambda num_messages: False)
    return Recorder(Kernel(initial_time=1.25), Streams(1), file, fraction, telemetry)


def test_record_is_one_flat_line_with_its_name_first() -> None:
    file = io.BytesIO()
    recorder(file).training_started(client=4, round_=2, duration_s=0.5)
    assert file.getvalue() == (
        b'{"event":"training_started","time_s":1.25,"client":4,"round":2,"duration_s":0.5}\n'
    )


def test_numbers_that_json_does_not_have_become_null() -> None:
    file = io.BytesIO()
    recorder(file).training_finished(client=0, round_=1, loss=float("nan"), num_steps=3)
    assert json.loads(file.getvalue())["loss"] is None


def test_digest_covers_records_and_models_but_not_single_messages() -> None:
    digests = []
    for touch in (
        lambda r: None,
        lambda r: r.message_sent(MESSAGE),
        lambda r: r.event("evaluated", client=1),
        lambda r: r.event("evaluated", client=2),
        lambda r: r.model(0, torch.zeros(3)),
        lambda r: r.model(1, torch.zeros(3)),
        lambda r: r.model(0, torch.tensor([0.0, 0.0, 1e-30])),
    ):
        written = recorder(io.BytesIO())
        touch(written)
        digests.append(written.digest.value)
    assert digests[0] == digests[1]
    assert len(set(digests[1:])) == 6


def test_round_its_estimate_and_its_messages_have_separate_records() -> None:
    file = io.BytesIO()
    written = recorder(file)
    written.message_delivered(MESSAGE)
    written.round_finished(2, 5, [USED])
    written.update_reported(2, 5, [USED], Updated(STATE, {"clipped": True}, STATS))
    delivered, finished, used, estimate, stats = map(json.loads, file.getvalue().splitlines())
    message = {"time_s": 1.25, "message": 7, "sender": 1, "recipient": 2, "round": 3}
    assert delivered == {"event": "message_delivered", **message, "delay_s": 0.75}
    of_round = {"time_s": 1.25, "client": 2, "round": 5}
    assert finished == {"event": "round_finished", **of_round, "num_used": 1, "max_age": 2}
    assert used == {"event": "message_used", **message, "age": 2}
    assert estimate == {"event": "estimate", **of_round, "clipped": True}
    statistics = {"weight": 1.0, "distance_to_own": 1.5, "distance_to_predicted": None}
    assert stats == {"event": "message_stats", **message, **statistics}


def test_method_without_diagnostics_has_no_estimate() -> None:
    file = io.BytesIO()
    written = recorder(file)
    written.round_finished(2, 5, [])
    written.update_reported(2, 5, [], Updated(STATE))
    assert [json.loads(line)["event"] for line in file.getvalue().splitlines()] == ["round_finished"]


def test_digest_does_not_depend_on_whether_records_are_written() -> None:
    silent, loud = recorder(), recorder(io.BytesIO())
    for one in (silent, loud):
        one.event("evaluated", client=1)
        one.message_sent(MESSAGE)
    assert silent.digest.value == loud.digest.value
