"""Bells of a store that has one process: whoever waits for tasks hears of those that become ready."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

NEVER = float("inf")


class Bells:
    """All who listen. For one event loop."""

    def __init__(self) -> None:
        self._bells: set[LocalBell] = set()

    def listen(self) -> LocalBell:
        bell = LocalBell(self._bells.discard)
        self._bells.add(bell)
        return bell

    @property
    def heard(self) -> bool:
        """Whether anybody listens."""
        return bool(self._bells)

    def ring(self, news: Iterable[tuple[str, float]]) -> None:
        """Tasks are ready: queue and due time of each."""
        if self._bells:
            earliest: dict[str, float] = {}
            for queue, due in news:
                if due < earliest.get(queue, NEVER):
                    earliest[queue] = due
            for bell in self._bells:
                bell.hear(earliest)


class LocalBell:
    """One who listens."""

    def __init__(self, closed: Callable[[LocalBell], None]) -> None:
        self._closed = closed
        self._news: dict[str, float] = {}
        self._heard = asyncio.Event()

    def hear(self, news: Mapping[str, float]) -> None:
        for queue, due in news.items():
            if due < self._news.get(queue, NEVER):
                self._news[queue] = due
        if self._news:
            self._heard.set()

    async def ring(self) -> Mapping[str, float]:
        await self._heard.wait()
        self._heard.clear()
        news, self._news = self._news, {}
        return news

    def close(self) -> None:
        self._closed(self)
