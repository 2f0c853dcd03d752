"""The world: the clients, the network between them, and what happens to both while a run lasts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from math import prod

from simpy import Event, Process
from simpy.events import URGENT

from rdpfl_sim.errors import RunError
from rdpfl_sim.methods.base import State
from rdpfl_sim.world.client import Client, Phase
from rdpfl_sim.world.faults.changes import (
    Absent,
    Change,
    Crash,
    Cut,
    Heal,
    Join,
    Leave,
    LinksDown,
    LinksUp,
    Recover,
    Rewire,
    Slow,
    Unslow,
)
from rdpfl_sim.world.kernel import Call, Kernel
from rdpfl_sim.world.network.network import Network
from rdpfl_sim.world.observer import Observer

MOST_PER_TRAINING = 1000
"""A fault that changes the world so often in the time of one training changes it without end, or almost."""


class World:
    """Starts the clients and applies the changes, each at its time and before all else of that instant.

    Who is absent or has left is known to all: nobody sends to them or waits for them. Of a crash nobody is
    told. The world ends when every client has finished or is gone for good.
    """

    STATE = (
        *("graph", "causes_down", "absences", "left", "gone", "unfinished", "slowness", "num_changes"),
        *("beginning", "num_trained", "num_by_fault"),
    )
    CALLS = ("_on_change",)

    def __init__(
        self,
        kernel: Kernel,
        network: Network,
        clients: Sequence[Client],
        observer: Observer,
        *,
        changes: Iterator[tuple[float, int, Change]],
        fresh_state: Callable[[int], State],
        on_gone: Callable[[Client], None],
        on_end: Callable[[], None],
    ) -> None:
        self.kernel = kernel
        self.network = network
        self.clients = clients
        self.adversaries = {client.adversary: None for client in clients if client.adversary is not None}
        self.observer = observer
        self.changes = changes
        self.fresh_state = fresh_state
        self.on_gone = on_gone
        self.on_end = on_end
        self.graph: Sequence[Sequence[int]] = [client.neighbours for client in clients]
        self.causes_down: Counter[int] = Counter()
        self.absences: Counter[int] = Counter()
        self.left: set[int] = set()
        self.gone: set[int] = set()
        """Clients that will never come back."""
        self.unfinished = {client.id for client in clients}
        self.processes: dict[int, Process] = {}
        self.slowness: dict[int, list[float]] = {}
        self.num_changes = 0
        self.num_trained = 0
        """Trainings that clients have finished."""
        self.num_by_fault: Counter[int] = Counter()
        num_links = sum(map(len, self.graph)) // 2
        self._most_changes = MOST_PER_TRAINING * 10 + 100 * (len(clients) + num_links)
        self.beginning: dict[int, None] = {}
        """Clients that begin to live as soon as all changes of the instant are done, in their order."""

    def start(self) -> None:
        """Let every client live, except those that are not there at the beginning."""
        self.beginning = {client.id: None for client in self.clients}
        self._next_change()

    def take_up(self, waiting: Iterable[int]) -> None:
        """Go on where a run was left, before anything is put into the queue.

        The clients that were waiting wait again; of the changes the next one was already in the queue.
        """
        self.changes = islice(self.changes, self.num_changes + 1, None)
        for client in waiting:
            self.clients[client].wait_again()
            self.begin(client)
            self.kernel.step()

    def begin(self, client: int) -> None:
        """Let a client live, from this instant on."""
        self.processes[client] = self.kernel.process(self.clients[client].run())

    @property
    def awaited(self) -> dict[int, Event]:
        """What the process of every client that lives waits for: its begin, or an event of the client's."""
        return {client: process.target for client, process in self.processes.items() if process.is_alive}

    def slowdown(self, client: int) -> float:
        """How many times longer a client's training takes at the moment."""
        return prod(self.slowness[client]) if client in self.slowness else 1.0

    def finish(self, client: int) -> None:
        """A client is done, or gone for good."""
        self.unfinished.discard(client)
        if not self.unfinished:
            self.on_end()

    def apply(self, change: Change) -> None:
        """Change the world."""
        network = self.network
        match change:
            case Cut(sides):
                network.obstacles.partitions.append(sides)
            case Heal(sides):
                network.obstacles.partitions.remove(sides)
            case LinksDown(links):
                network.obstacles.take_down(links)
            case LinksUp(links):
                network.obstacles.bring_up(links)
            case Crash(clients, for_good):
                self._stop(clients, for_good)
            case Recover(clients, fresh, catch_up):
                self._revive(clients, fresh, catch_up)
            case Absent(clients):
                self._stop(clients, for_good=False)
                self.absences.update(clients)
                self._announce()
            case Join(clients):
                self.absences.subtract(clients)
                self._announce()
                self._revive(clients, fresh=False, catch_up=True)
            case Leave(clients):
                self.left.update(clients)
                self._announce()
                self._stop(clients, for_good=True)
            case Slow(clients, factor):
                for client in clients:
                    self.slowness.setdefault(client, []).append(factor)
            case Unslow(clients, factor):
                for client in clients:
                    self.slowness[client].remove(factor)
            case Rewire(neighbours):
                self.graph = neighbours
                self._announce()

    def _next_change(self) -> None:
        """Apply what is due, and come back when the next change is."""
        for time_s, fault, change in self.changes:
            if time_s > self.kernel.now:
                self.kernel.post(Call(self._on_change, (fault, change)), time_s, URGENT)
                break
            self._apply_and_tell(fault, change)
        for client in self.beginning:
            self.begin(client)
        self.beginning = {}

    def _on_change(self, call: Call) -> None:
        self._apply_and_tell(*call.subject)
        self._next_change()

    def _apply_and_tell(self, fault: int, change: Change) -> None:
        self.num_changes += 1
        self.num_by_fault[fault] += 1
        if self.num_by_fault[fault] > self._most_changes + MOST_PER_TRAINING * self.num_trained:
            raise RunError(
                f"faults[{fault}]: has changed the world {self.num_by_fault[fault] - 1:,} times, up to "
                f"{self.kernel.now:g} s, while clients have finished {self.num_trained:,} trainings; "
                f"let it happen less often"
            )
        self.observer.changed(fault, change)
        self.apply(change)
        for adversary in self.adversaries:
            adversary.reconsider()

    def _stop(self, clients: Iterable[int], for_good: bool) -> None:
        for client in clients:
            self.causes_down[client] += 1
            self.network.stop(client)
            self.beginning.pop(client, None)
            process = self.processes.pop(client, None)
            if process is not None and process.is_alive:
                self.clients[client].stop()
                process.interrupt()
            if for_good and client not in self.gone:
                self.gone.add(client)
                self.on_gone(self.clients[client])
                self.finish(client)
                adversary = self.clients[client].adversary
                if adversary is not None:
                    adversary.retire(client)

    def _revive(self, clients: Iterable[int], fresh: bool, catch_up: bool) -> None:
        rounds = {client: self._furthest_round(client) for client in clients}  # before anybody has moved
        for client in clients:
            self.causes_down[client] -= 1
            life = self.clients[client].life
            if self.causes_down[client] > 0 or client in self.gone:
                continue
            self.network.obstacles.clients_down.discard(client)
            if life.phase is Phase.FINISHED:
                continue
            if fresh:
                life.learning, life.is_untested = self.fresh_state(client), True
                life.mailbox.empty("its recipient began afresh")
            if catch_up:
                life.round = rounds[client]
            self.beginning[client] = None

    def _furthest_round(self, client: int) -> int:
        """The round of the client's furthest neighbour that is up, or its own."""
        around = (n for n in self.clients[client].neighbours if n not in self.network.obstacles.clients_down)
        return max(self.clients[other].life.round for other in (client, *around))

    def _announce(self) -> None:
        """Tell everybody who their neighbours are now: not those who are absent or have left."""
        away = self.left | {client for client, number in self.absences.items() if number > 0}
        for client, around in zip(self.clients, self.graph, strict=True):
            neighbours = tuple(n for n in around if n not in away)
            if neighbours != client.neighbours:
                client.meet(neighbours)
