"""The world: the clients, the network between them, and the faults that change both during a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from simpy import Event, Process

from rdpfl_sim.errors import RunError
from rdpfl_sim.methods.base import State
from rdpfl_sim.world.client import Client, Phase
from rdpfl_sim.world.compute_time import TrainingTimes
from rdpfl_sim.world.faults.fault import Change, Clients, Neighbours
from rdpfl_sim.world.kernel import FAULT, Call, Kernel
from rdpfl_sim.world.network.network import Network
from rdpfl_sim.world.network.obstacles import Obstacles
from rdpfl_sim.world.observer import Observer

MAX_CHANGES_PER_TRAINING = 1000
"""Maximum number of changes by one fault per finished training, beyond an initial allowance."""


class World:
    """Starts the clients and applies changes, each at its time and before all other events of that instant.

    No client sends to absent or departed clients or waits for them. Crashes are not announced. The run ends
    when every client has finished or has stopped for good.
    """

    STATE = (
        *("topology", "num_stops", "num_withdrawals", "departed", "unfinished", "num_changes"),
        *("starting", "num_trained", "num_changes_by_fault"),
    )
    CALLS = ("_on_change",)

    def __init__(
        self,
        kernel: Kernel,
        network: Network,
        clients: Sequence[Client],
        observer: Observer,
        training_times: TrainingTimes,
        *,
        changes: Iterator[tuple[float, int, Change]],
        initial_state: Callable[[int], State],
        on_end: Callable[[], None],
    ) -> None:
        self.kernel = kernel
        self.network = network
        self.clients = clients
        self.adversaries = {client.adversary: None for client in clients if client.adversary is not None}
        self.observer = observer
        self.training_times = training_times
        self.changes = changes
        self.initial_state = initial_state
        self.on_end = on_end
        self.topology: Neighbours = [client.neighbours for client in clients]
        """The neighbours of every client, including absent and departed ones."""
        self.num_stops: Counter[int] = Counter()
        """The number of faults that currently keep each client down."""
        self.num_withdrawals: Counter[int] = Counter()
        """The number of faults that currently keep each client out of the neighbour lists."""
        self.departed: set[int] = set()
        """Clients that have stopped for good."""
        self.unfinished = {client.id for client in clients}
        self.processes: dict[int, Process] = {}
        self.num_changes = 0
        self.num_trained = 0
        """Number of local training phases that clients have finished, summed over all clients."""
        self.num_changes_by_fault: Counter[int] = Counter()
        num_links = sum(map(len, self.topology)) // 2
        self._max_changes = MAX_CHANGES_PER_TRAINING * 10 + 100 * (len(clients) + num_links)
        self.starting: dict[int, None] = {}
        """Clients whose process starts after all changes of this instant, in this order."""

    def start(self) -> None:
        """Start every client that is present at time zero."""
        self.starting = {client.id: None for client in self.clients}
        self._apply_due_changes()

    def resume(self, waiting: Iterable[int]) -> None:
        """Continue a restored run, before the kernel's queue is restored.

        The processes of clients that were waiting are advanced to the same wait. The queue already contains
        the next change.
        """
        self.changes = islice(self.changes, self.num_changes + 1, None)
        for client in waiting:
            self.clients[client].restore_waiting()
            self.start_client(client)
            self.kernel.step()

    def start_client(self, client: int) -> None:
        """Start the process of a client now."""
        self.processes[client] = self.kernel.process(self.clients[client].run(self._finish))

    @property
    def pending_events(self) -> dict[int, Event]:
        """The event that each running client waits for: the start of its process or its `pending_event`."""
        return {client: process.target for client, process in self.processes.items() if process.is_alive}

    def _finish(self, client: int) -> None:
        """Record that a client has finished or has stopped for good. The last one ends the run."""
        self.unfinished.discard(client)
        if not self.unfinished:
            self.on_end()

    # The interface of faults (`FaultTarget`)

    @property
    def obstacles(self) -> Obstacles:
        """The current obstacles on links."""
        return self.network.obstacles

    def stop(self, clients: Clients, for_good: bool) -> None:
        """Stop clients. Other clients are not notified."""
        for client in clients:
            self.num_stops[client] += 1
            self.network.stop(client)
            self.starting.pop(client, None)
            process = self.processes.pop(client, None)
            if process is not None and process.is_alive:
                self.clients[client].stop()
                process.interrupt()
            if for_good and client not in self.departed:
                self.departed.add(client)
                self._finish(client)
                adversary = self.clients[client].adversary
                if adversary is not None:
                    adversary.on_departure(client)

    def restart(self, clients: Clients, fresh: bool, catch_up: bool) -> None:
        """Undo one stop of each client. A client restarts if no other fault keeps it down."""
        down = self.obstacles.clients_down
        rounds = {client: self.clients[client].furthest_round(down) for client in clients}  # before restarts
        for client in clients:
            self.num_stops[client] -= 1
            state = self.clients[client].state
            if self.num_stops[client] > 0 or client in self.departed:
                continue
            self.obstacles.clients_down.discard(client)
            if state.phase is Phase.FINISHED:
                continue
            if fresh:
                self.clients[client].start_afresh(self.initial_state(client))
            if catch_up:
                state.round = rounds[client]
            self.starting[client] = None

    def withdraw(self, clients: Clients) -> None:
        """Remove clients from the neighbour lists of all other clients."""
        self.num_withdrawals.update(clients)
        self._update_neighbours()

    def readmit(self, clients: Clients) -> None:
        """Undo one withdrawal of each client."""
        self.num_withdrawals.subtract(clients)
        self._update_neighbours()

    def set_topology(self, neighbours: Neighbours) -> None:
        """Replace the links of all clients."""
        self.topology = neighbours
        self._update_neighbours()

    def _apply_due_changes(self) -> None:
        """Apply the changes of this instant, schedule the next one, and start the clients that are due."""
        for time_s, fault, change in self.changes:
            if time_s > self.kernel.now:
                self.kernel.call_at(Call(self._on_change, (fault, change)), time_s, FAULT)
                break
            self._apply(fault, change)
        for client in self.starting:
            self.start_client(client)
        self.starting = {}

    def _on_change(self, call: Call) -> None:
        self._apply(*call.argument)
        self._apply_due_changes()

    def _apply(self, fault: int, change: Change) -> None:
        self.num_changes += 1
        self.num_changes_by_fault[fault] += 1
        num_changes = self.num_changes_by_fault[fault]
        if num_changes > self._max_changes + MAX_CHANGES_PER_TRAINING * self.num_trained:
            raise RunError(
                f"faults[{fault}]: changed the world {num_changes - 1:,} times in {self.kernel.now:g} s of "
                f"simulated time, while clients finished local training {self.num_trained:,} times; "
                f"make the fault less frequent"
            )
        self.observer.changed(fault, change)
        change.apply(self)
        for adversary in self.adversaries:
            adversary.recheck_waiting()

    def _update_neighbours(self) -> None:
        """Update the neighbour list of every client, without absent and departed clients."""
        away = {client for client, num in self.num_withdrawals.items() if num > 0}
        for client, around in zip(self.clients, self.topology, strict=True):
            neighbours = tuple(n for n in around if n not in away)
            if neighbours != client.neighbours:
                client.set_neighbours(neighbours)
