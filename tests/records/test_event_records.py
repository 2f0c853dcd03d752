import io
import json
from collections.abc import Callable
from itertools import count

import torch

from rdpfl_sim.methods.base import RunInfo, State
from rdpfl_sim.methods.batching import ClientMessageStats, UpdateInput
from rdpfl_sim.methods.deferred import Update, Updates
from rdpfl_sim.methods.direct import Direct
from rdpfl_sim.methods.payload import Payload
from rdpfl_sim.randomness import Streams
from rdpfl_sim.records.events import Digest, Recorder, Sink
from rdpfl_sim.records.telemetry import Telemetry
from rdpfl_sim.world.network.links import Link, lossless
from rdpfl_sim.world.network.message import Broadcast, Message
from tests.support import CLIENT, trained

LINK = Link(1, 2, key=0, latency=lambda u: 0.0, loses=lossless)
MESSAGE = Message(7, LINK, Broadcast(1, 3, Payload(torch.zeros(5)), size_bytes=20.0, sent_at_s=0.5), 0, print)


INSPECTION = ClientMessageStats(distance_to_own=[1.5], distance_to_predicted=None, weight=[1.0])


def recorder(
    file: io.BytesIO | None = None, fraction: float = 1.0, now_s: Callable[[], float] = lambda: 1.25
) -> Recorder:
    telemetry = Telemetry(frozenset(), [None] * 3, lambda num_messages: False)
    return Recorder(now_s, Streams(1), file, fraction, telemetry, inspects=True)


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
    written.round_finished(2, 5, [MESSAGE], Update.of(State(torch.zeros(1)), {"clipped": True}), INSPECTION)
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
    recorder(file).round_finished(2, 5, [], Update.of(State(torch.zeros(1)), {}), None)
    assert [json.loads(line)["event"] for line in file.getvalue().splitlines()] == ["round_finished"]


def test_digest_does_not_depend_on_whether_records_are_written() -> None:
    silent, loud = recorder(), recorder(io.BytesIO())
    for one in (silent, loud):
        one.event("evaluated", client=1)
        one.message_sent(MESSAGE)
    assert silent.digest.value == loud.digest.value


def tell_all(together: bool) -> tuple[list[bytes], Recorder]:
    """Two rounds among other news, at another time each, and what is in the file after each of them."""
    file, clock, found = io.BytesIO(), count(), []
    written = recorder(file, now_s=lambda: float(next(clock)))
    method = Direct(RunInfo(learning_rate=1.0, rounds=9), lambda_=1.0)
    updates = Updates(method, together, written.catch_up)

    def update(client: int) -> Update:
        own = trained(torch.full((2,), float(client)), 1)
        return updates.begin(UpdateInput(State(torch.zeros(1, 2)), own, [], CLIENT))

    for tell in (
        lambda: written.training_started(0, 1, duration_s=0.5),
        lambda: written.round_finished(0, 4, [MESSAGE], update(0), INSPECTION),
        lambda: written.message_delivered(MESSAGE),
        lambda: written.event("evaluated", client=1),
        lambda: written.round_finished(1, 5, [MESSAGE], update(1), None),
        lambda: written.training_finished(2, 1, loss=0.25, num_steps=3),
        lambda: written.message_dropped(MESSAGE, "stale", "too old"),
        updates.compute,
        lambda: written.training_started(1, 2, duration_s=0.5),
    ):
        tell()
        found.append(file.getvalue())
    return found, written


def test_records_after_a_deferred_estimate_are_deferred_too() -> None:
    found, _ = tell_all(together=True)
    assert found[1:7] == [found[1]] * 6
    events = [json.loads(line)["event"] for line in found[7].splitlines()]
    assert events == [
        *("training_started", "round_finished", "message_used", "estimate", "message_stats"),
        *("message_delivered", "evaluated", "round_finished", "message_used", "estimate"),
        *("training_finished", "message_stale"),
    ]
    assert len(found[8].splitlines()) == len(events) + 1, "nothing is deferred any more"


def test_deferring_changes_neither_records_nor_digest_nor_telemetry() -> None:
    (at_once, first), (held, second) = tell_all(together=False), tell_all(together=True)
    assert held[-1] == at_once[-1]
    assert second.digest.value == first.digest.value
    assert second.telemetry.summary() == first.telemetry.summary()


def test_digest_includes_deferred_lines_and_excludes_undigested_ones() -> None:
    plain, held = Sink(None, Digest()), Sink(None, Digest())
    held.defer(lambda: held.info(b"one"))
    held.write_undigested(b"aside")
    held.info(b"two")
    assert held.digest.value == b""
    held.catch_up()
    for line in (b"one", b"two"):
        plain.info(line)
    assert held.digest.value == plain.digest.value
    held.info(b"three")
    plain.info(b"three")
    assert held.digest.value == plain.digest.value
