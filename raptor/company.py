"""The nodes of a shared store, as this one knows them from its last heartbeat."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from raptor.state.base import Presence


class Company:
    """Who else is there. On a store of one process nobody ever is, and nothing is told."""

    def __init__(self) -> None:
        self.nodes: tuple[Presence, ...] = ()
        self.left: frozenset[str] = frozenset()  # owners that were there and are not any more
        self.failing: str | None = None  # why the store does not answer
        self.failures = 0  # how often that began
        self._beat = asyncio.Event()
        self._departure = asyncio.Event()

    def tell(self, nodes: Sequence[Presence]) -> frozenset[str]:
        """What a heartbeat answered; -> the owners that have left since the last."""
        alive = {node.owner for node in nodes if node.alive}
        left = (self.left | {node.owner for node in (*self.nodes, *nodes)}) - alive
        news = left - self.left
        self.nodes, self.left, self.failing = tuple(nodes), left, None
        self._beat.set()
        self._beat = asyncio.Event()
        if news:
            self._departure.set()
            self._departure = asyncio.Event()
        return news

    def fail(self, error: str) -> None:
        self.failures += self.failing is None
        self.failing = error

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
