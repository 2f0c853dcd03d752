import io
import json

import torch

from rdpfl_sim.maths.types import Payload
from rdpfl_sim.methods.base import Inspection, State
from rdpfl_sim.methods.updating import Update
from rdpfl_sim.randomness import Streams
from rdpfl_sim.records.recorder import Recorder
from rdpfl_sim.records.telemetry import Telemetry
from rdpfl_sim.world.links import Link, lossless
from rdpfl_sim.world.message import Letter, Message

LINK = Link(1, 2, key=0, latency=lambda u: 0.0, loses=lossless)
MESSAGE = Message(7, LINK, Letter(1, 3, Payload(torch.zeros(5)), size_bytes=20.0, sent_at_s=0.5), 0, print)


def recorder(file: io.BytesIO | None = None, fraction: float = 1.0) -> Recorder:
    return Recorder(
        lambda: 1.25, Streams(1), file, fraction, Telemetry(frozenset(), [None] * 3), inspects=True
    )


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
        lambda r: r.event("evaluation", client=1),
        lambda r: r.event("evaluation", client=2),
        lambda r: r.model(0, torch.zeros(3)),
        lambda r: r.model(1, torch.zeros(3)),
        lambda r: r.model(0, torch.tensor([0.0, 0.0, 1e-30])),
    ):
        written = recorder(io.BytesIO())
        touch(written)
        digests.append(written.digest.value)
    assert digests[0] == digests[1]
    assert len(set(digests[1:])) == 6


def test_delay_age_distance_and_weight_are_told_with_the_message() -> None:
    file = io.BytesIO()
    written = recorder(file)
    written.message_delivered(MESSAGE)
    inspection = Inspection(distance_to_own=[1.5], distance_to_predicted=None, weight=[1.0])
    written.round_finished(2, 5, [MESSAGE], Update.of(State(torch.zeros(1)), {"clipped": True}), inspection)
    delivered, finished, used = map(json.loads, file.getvalue().splitlines())
    assert delivered["delay_s"] == 0.75
    assert (finished["event"], finished["num_used"], finished["max_age"]) == ("round_finished", 1, 2)
    assert {key: used[key] for key in ("age", "distance_to_own", "weight", "clipped")} == {
        "age": 2,
        "distance_to_own": 1.5,
        "weight": 1.0,
        "clipped": True,
    }
    assert used["distance_to_predicted"] is None
    assert (used["message"], used["sender"], used["recipient"], used["round"]) == (7, 1, 2, 3)


def test_without_a_file_nothing_is_written_but_the_digest_is_the_same() -> None:
    silent, loud = recorder(), recorder(io.BytesIO())
    for one in (silent, loud):
        one.event("evaluation", client=1)
        one.message_sent(MESSAGE)
    assert silent.digest.value == loud.digest.value
