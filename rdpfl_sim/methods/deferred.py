"""When clients' states are computed: at once, or when somebody wants to know, together with all that wait.

A round's update has all its inputs when the client stops waiting, and nobody needs its outcome before the
client's next training is due. Until then other clients have ended their rounds too. For small models one
call of torch that serves all of them is many times as fast as one for each.
"""

from __future__ import annotations

from collections.abc import Callable

from rdpfl_sim.methods.base import Method, State
from rdpfl_sim.methods.batching import ClientDiagnostics, UpdateInput, update_in_batches


class Update:
    """What a round has made of a client's state. It may not have been computed yet."""

    __slots__ = ("_diagnostics", "_state", "_updates")

    def __init__(self, state: State | None) -> None:
        self._state = state
        self._diagnostics: ClientDiagnostics = {}
        self._updates: Updates | None = None

    @classmethod
    def of(cls, state: State, diagnostics: ClientDiagnostics) -> Update:
        """One that has been computed."""
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
        """What the method reports of the round."""
        if self._updates is not None:
            self._updates.compute()
        return self._diagnostics

    def then(self, follow: Callable[[], None]) -> None:
        """Call this as soon as the state is known, which may be at once."""
        if self._updates is None:
            follow()
        else:
            self._updates.followers.append(follow)

    def put_off(self, updates: Updates) -> None:
        """Be computed later, with others."""
        self._updates = updates

    def end(self, state: State, diagnostics: ClientDiagnostics) -> None:
        """Take the outcome."""
        self._state, self._diagnostics, self._updates = state, diagnostics, None


class Updates:
    """Computes the updates of all clients.

    With `together` they are put off until the first outcome is wanted; then all that wait are computed, and
    `on_computed` is called.
    """

    def __init__(
        self, method: Method, together: bool = False, on_computed: Callable[[], None] = lambda: None
    ) -> None:
        self.method = method
        self.together = together
        self.on_computed = on_computed
        self.waiting: list[tuple[Update, UpdateInput]] = []
        self.followers: list[Callable[[], None]] = []

    def begin(self, one: UpdateInput) -> Update:
        """The update of a client that has all that it will get in this round."""
        if not self.together:
            [(state, diagnostics)] = update_in_batches(self.method, [one])
            return Update.of(state, diagnostics)
        update = Update(None)
        update.put_off(self)
        self.waiting.append((update, one))
        return update

    def compute(self) -> None:
        """Compute all that wait."""
        if not self.waiting:
            return
        waiting, self.waiting = self.waiting, []
        outcomes = update_in_batches(self.method, [one for _, one in waiting])
        for (update, _), (state, diagnostics) in zip(waiting, outcomes, strict=True):
            update.end(state, diagnostics)
        self.on_computed()
        followers, self.followers = self.followers, []
        for follow in followers:
            follow()
