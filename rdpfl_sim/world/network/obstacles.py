"""Obstacles: outages, partitions and stopped clients, which block all messages on a link."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import permutations
from typing import TypeAlias

LINK_IS_DOWN = "link is down"
PARTITION = "partition"
RECIPIENT_DOWN = "recipient is down"

DirectedLink: TypeAlias = tuple[int, int]
"""Sender and recipient."""

Sides: TypeAlias = tuple[frozenset[int], ...]


class Obstacles:
    """The current outages, partitions and stopped clients.

    Obstacles may overlap. An outage or partition that began twice has to end twice.
    """

    STATE = ("links_down", "partitions", "clients_down")

    def __init__(self) -> None:
        self.links_down: Counter[DirectedLink] = Counter()
        self.partitions: list[Sides] = []
        self.clients_down: set[int] = set()

    def reason(self, sender: int, recipient: int) -> str | None:
        """Return why this link is blocked now, or None if it is not.

        If there are several reasons, return the first of: link, partition, recipient.
        """
        if self.links_down and self.links_down[sender, recipient] > 0:
            return LINK_IS_DOWN
        for sides in self.partitions:
            if any(sender in one and recipient in other for one, other in permutations(sides, 2)):
                return PARTITION
        return RECIPIENT_DOWN if recipient in self.clients_down else None

    def take_down(self, links: Iterable[DirectedLink]) -> None:
        """Begin an outage of these links."""
        self.links_down.update(links)

    def bring_up(self, links: Iterable[DirectedLink]) -> None:
        """End one outage of each of these links."""
        self.links_down.subtract(links)
        self.links_down = +self.links_down
