"""Time limits of calls: many, alike, and hardly ever reached."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, TypeAlias

from raptor.clock import Clock
from raptor.errors import CallTimeout

Entry: TypeAlias = tuple[float, asyncio.Future[Any], object]


class Deadlines:
    """A queue for each length of time, with one loop timer for its head.

    A timer of its own for each call would cost as much as the call.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._queues: dict[float, deque[Entry]] = {}

    def add(self, future: asyncio.Future[Any], timeout_s: float, who: object) -> None:
        """Fail the future with CallTimeout unless it is done by then."""
        entry = (self._clock.monotonic() + timeout_s, future, who)
        queue = self._queues.get(timeout_s)
        if queue is None:
            self._queues[timeout_s] = deque((entry,))
            self._loop.call_later(timeout_s, self._look, timeout_s)
            return
        queue.append(entry)
        while queue[0][1].done():
            queue.popleft()

    def _look(self, timeout_s: float) -> None:
        queue = self._queues[timeout_s]
        now = self._clock.monotonic()
        while queue and (queue[0][1].done() or queue[0][0] <= now):
            _, future, who = queue.popleft()
            if not future.done():
                future.set_exception(CallTimeout(f"{who!r} did not answer within {timeout_s} s"))
        if queue:
            self._loop.call_later(queue[0][0] - now, self._look, timeout_s)
        else:
            del self._queues[timeout_s]
