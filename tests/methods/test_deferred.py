"""Immediate updates, and deferred updates that are computed in one batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from rdpfl_sim.methods.base import ClientView, Diagnostics, Inbox, RunInfo, State, Trained
from rdpfl_sim.methods.batching import UpdateInput, update_in_batches
from rdpfl_sim.methods.deferred import Update, Updates
from rdpfl_sim.methods.direct import Direct
from rdpfl_sim.records.state_codec import Decoder, Encoder
from rdpfl_sim.simulation.snapshot import VALUES
from tests.support import Services, trained


class Counting(Direct):
    """Records the clients of each batch."""

    def __init__(self) -> None:
        super().__init__(RunInfo(learning_rate=1.0, rounds=5), lambda_=1.0)
        self.batches: list[list[int]] = []

    def update(
        self, state: State, trained: Trained, inbox: Inbox, clients: Sequence[ClientView]
    ) -> tuple[State, Diagnostics]:
        self.batches.append([client.id for client in clients])
        return super().update(state, trained, inbox, clients)


def one(client: int) -> UpdateInput:
    """Return a client whose training has taken its model from `client` to `client` - 1, without messages."""
    w = torch.full((1, 2), float(client))
    return UpdateInput(State(w), trained(w[0] - 1, 1), [], ClientView(client, 1, 2, Services()))


def test_update_at_once_is_known_at_once() -> None:
    method = Counting()
    update = Updates(method).begin(one(3))
    assert update.is_known
    assert method.batches == [[3]]
    assert update.state.w[0].tolist() == [2.0, 2.0]
    assert update.diagnostics["u_norm"] > 0


def test_deferred_update_is_computed_with_all_pending_ones_when_its_state_is_needed() -> None:
    method = Counting()
    updates = Updates(method, deferred=True)
    first, second = updates.begin(one(1)), updates.begin(one(2))
    assert not first.is_known
    assert not second.is_known
    assert method.batches == []
    assert second.state.w[0].tolist() == [1.0, 1.0]
    assert method.batches == [[1, 2]]
    assert first.is_known
    assert first.state.w[0].tolist() == [0.0, 0.0]
    assert method.batches == [[1, 2]], "once is enough"


def test_asking_for_the_diagnostics_computes_too() -> None:
    method = Counting()
    update = Updates(method, deferred=True).begin(one(4))
    assert update.diagnostics["u_norm"] > 0
    assert method.batches == [[4]]


def test_both_ways_find_the_same() -> None:
    method = Counting()
    updates = Updates(method, deferred=True)
    found = [updates.begin(one(client)) for client in range(3)]
    for client, update in enumerate(found):
        [(state, _)] = update_in_batches(method, [one(client)])
        assert torch.equal(update.state.w, state.w)


def test_without_pending_updates_nothing_is_computed() -> None:
    method, calls = Counting(), []
    updates = Updates(method, deferred=True, on_computed=lambda: calls.append("computed"))
    updates.compute()
    assert (method.batches, calls) == ([], [])


def test_callbacks_are_called_once_in_order_when_all_states_are_known() -> None:
    calls: list[object] = []
    updates = Updates(Counting(), deferred=True, on_computed=lambda: calls.append("computed"))
    found = [updates.begin(one(client)) for client in range(3)]
    for client in (2, 0):
        found[client].then(lambda client=client: calls.append((client, [one.is_known for one in found])))
    assert calls == []
    updates.compute()
    everything = [True, True, True]
    assert calls == ["computed", (2, everything), (0, everything)]
    updates.compute()
    assert len(calls) == 3


def test_callback_of_a_known_update_is_called_at_once() -> None:
    calls: list[str] = []
    Update(State(torch.zeros(2))).then(lambda: calls.append("now"))
    updates = Updates(Counting(), deferred=True)
    update = updates.begin(one(1))
    updates.compute()
    update.then(lambda: calls.append("now"))
    assert calls == ["now", "now"]


def test_every_batch_is_announced_once_before_its_callbacks() -> None:
    method, calls = Counting(), []
    updates = Updates(method, deferred=True, on_computed=lambda: calls.append("computed"))
    for batch in ([0, 1], [2]):
        for client in batch:
            updates.begin(one(client)).then(lambda client=client: calls.append(client))
        updates.compute()
    assert calls == ["computed", 0, 1, "computed", 2]
    assert method.batches == [[0, 1], [2]]


def test_callback_may_read_any_state_and_begin_another_update() -> None:
    method = Counting()
    updates = Updates(method, deferred=True)
    first, second = updates.begin(one(1)), updates.begin(one(2))
    later: list[Update] = []
    first.then(lambda: later.append(updates.begin(replace(one(2), state=second.state))))
    updates.compute()
    assert [update.is_known for update in later] == [False]
    assert method.batches == [[1, 2]]
    assert later[0].state.w[0].tolist() == [1.0, 1.0]


def test_checkpoint_holds_the_state_and_what_is_shared_is_shared_again() -> None:
    classes = [*VALUES, State]
    update = Update.of(State(torch.tensor([[1.0, 2.0]])), {"u_norm": 1.0})
    encoder = Encoder({}, classes)
    data = [encoder.encode(update), encoder.encode(update)]
    decoder = Decoder({}, classes, encoder.values, encoder.tensors)
    one, other = map(decoder.decode, data)
    assert one is other
    assert one.is_known
    assert one.state.w[0].tolist() == [1.0, 2.0]
    assert one.diagnostics == {}, "they have been recorded"
