"""News of the tables of a store that has one process: whoever watches hears of what changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable


class News:
    """All who watch. For one event loop."""

    def __init__(self) -> None:
        self._watches: set[LocalWatch] = set()

    def watch(self) -> LocalWatch:
        watch = LocalWatch(self._watches.discard)
        self._watches.add(watch)
        return watch

    def tell(self, changed: Iterable[tuple[str, str]]) -> None:
        """Records were changed: table and key of each."""
        if self._watches:
            news = frozenset(changed)
            for watch in self._watches:
                watch.hear(news)


class LocalWatch:
    """One who watches."""

    def __init__(self, closed: Callable[[LocalWatch], None]) -> None:
        self._closed = closed
        self._news: frozenset[tuple[str, str]] = frozenset()
        self._heard = asyncio.Event()

    def hear(self, news: frozenset[tuple[str, str]]) -> None:
        self._news |= news
        if self._news:
            self._heard.set()

    async def ring(self) -> frozenset[tuple[str, str]]:
        await self._heard.wait()
        self._heard.clear()
        news, self._news = self._news, frozenset()
        return news

    def close(self) -> None:
        self._closed(self)
