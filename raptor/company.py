"""The nodes of a shared store, as this one knows them from its last heartbeat."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from raptor.state.base import BEAT_S, Presence, Right

QUIET_S = 2 * BEAT_S
"""Whoever was not seen for that long may have come to a stand; after an outage, how long others may be late."""


class Company:
    """Who else is there. On a store of one process nobody ever is, and nothing is told."""

    def __init__(self) -> None:
        self.nodes: tuple[Presence, ...] = ()
        self.left: frozenset[str] = frozenset()  # owners that were there and are not any more
        self.quiet: frozenset[str] = frozenset()  # owners that are there, and missed a heartbeat
        self.rights: dict[str, Mapping[str, Right]] = {}  # of each scheduler here: every heartbeat renews them
        self.lost: frozenset[Right] = frozenset()  # those that the last one could not
        self.failing: str | None = None  # why the store does not answer
        self.failures = 0  # how often that began
        self._now = self._back = 0.0  # the last heartbeat, and when others are back after an outage
        self._beat = asyncio.Event()
        self._departure = asyncio.Event()

    def tell(self, nodes: Sequence[Presence], lost: frozenset[Right] = frozenset()) -> frozenset[str]:
        """What a heartbeat answered; -> the owners that have left since the last."""
        self._now = max((node.seen for node in nodes), default=self._now)
        if self.failing is not None:
            self._back = self._now + QUIET_S
        self.failing, self.lost = None, lost
        spared = self.alive if self.is_patient else frozenset[str]()
        found = [msgspec.structs.replace(node, alive=node.alive or node.owner in spared) for node in nodes]
        alive = {node.owner for node in found if node.alive}
        left = (self.left | {node.owner for node in (*self.nodes, *found)}) - alive
        news = left - self.left
        self.nodes, self.left = tuple(found), left
        self.quiet = frozenset(node.owner for node in found if node.alive and self._now - node.seen > QUIET_S)
        self._beat.set()
        self._beat = asyncio.Event()
        if news:
            self._departure.set()
            self._departure = asyncio.Event()
        return news

    @property
    def as_of(self) -> float:
        """The time of the last heartbeat: whoever left may be back since."""
        return self._now

    def fail(self, error: str) -> None:
        self.failures += self.failing is None
        self.failing = error

    @property
    def is_patient(self) -> bool:
        """Whether the store does not answer, or has just come back: then others could not show themselves either."""
        return self.failing is not None or self._now < self._back

    @property
    def alive(self) -> frozenset[str]:
        return frozenset(node.owner for node in self.nodes if node.alive)

    def find(self, owner: str) -> Presence | None:
        return next((node for node in self.nodes if node.owner == owner), None)

    def name(self, owner: str) -> str:
        """What people call it."""
        node = self.find(owner)
        return f"node {owner}" if node is None else node.name

    async def beat(self) -> None:
        """Wait for the next heartbeat."""
        await self._beat.wait()

    async def departure(self) -> None:
        """Wait until somebody leaves."""
        await self._departure.wait()
