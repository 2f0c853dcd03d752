"""Deferred updates: computed at once, or later in one batch with those of other clients.

A round's update has all its inputs when the client stops waiting, and its result is not needed before the
client's next training ends. Until then other clients finish their rounds too. For small models one batched
call of torch is many times as fast as one call per client.
"""

from __future__ import annotations

from collections.abc import Callable

from rdpfl_sim.methods.base import Method, State
from rdpfl_sim.methods.batching import ClientDiagnostics, UpdateInput, update_in_batches


class Update:
    """A client's state after a round, which may not have been computed yet."""

    __slots__ = ("_diagnostics", "_state", "_updates")

    def __init__(self, state: State | None) -> None:
        self._state = state
        self._diagnostics: ClientDiagnostics = {}
        self._updates: Updates | None = None

    @classmethod
    def of(cls, state: State, diagnostics: ClientDiagnostics) -> Update:
        """Return an update that has been computed."""
        update = cls(state)
        update._diagnostics = diagnostics
        return update

    @property
    def is_known(self) -> bool:
        """Whether it has been computed."""
        return self._updates is None

    @property
    def state(self) -> State:
        """The state after the round."""
        if self._updates is not None:
            self._updates.compute()
        assert self._state is not None
        return self._state

    @property
    def diagnostics(self) -> ClientDiagnostics:
        """The method's diagnostics of the round."""
        if self._updates is not None:
            self._updates.compute()
        return self._diagnostics

    def then(self, callback: Callable[[], None]) -> None:
        """Call a function as soon as the state is known, which may be at once."""
        if self._updates is None:
            callback()
        else:
            self._updates.callbacks.append(callback)

    def defer(self, updates: Updates) -> None:
        """Leave the computation to a later batch."""
        self._updates = updates

    def complete(self, state: State, diagnostics: ClientDiagnostics) -> None:
        """Set the result."""
        self._state, self._diagnostics, self._updates = state, diagnostics, None


class Updates:
    """Computes the updates of all clients.

    With `deferred` they are pending until the first result is needed; then all of them are computed, and
    `on_computed` is called.
    """

    def __init__(
        self, method: Method, deferred: bool = False, on_computed: Callable[[], None] = lambda: None
    ) -> None:
        self.method = method
        self.deferred = deferred
        self.on_computed = on_computed
        self.pending: list[tuple[Update, UpdateInput]] = []
        self.callbacks: list[Callable[[], None]] = []

    def begin(self, one: UpdateInput) -> Update:
        """Return the update of a client whose inputs are complete."""
        if not self.deferred:
            [(state, diagnostics)] = update_in_batches(self.method, [one])
            return Update.of(state, diagnostics)
        update = Update(None)
        update.defer(self)
        self.pending.append((update, one))
        return update

    def compute(self) -> None:
        """Compute all pending updates."""
        if not self.pending:
            return
        pending, self.pending = self.pending, []
        results = update_in_batches(self.method, [one for _, one in pending])
        for (update, _), (state, diagnostics) in zip(pending, results, strict=True):
            update.complete(state, diagnostics)
        self.on_computed()
        callbacks, self.callbacks = self.callbacks, []
        for callback in callbacks:
            callback()
