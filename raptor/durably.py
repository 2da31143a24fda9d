"""Writing to a store that cannot for a while: a result is never dropped, and nothing new starts meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from raptor.clock import Clock
from raptor.errors import NotWritten
from raptor.events import Events

T = TypeVar("T")

FIRST_S, LONGEST_S = 0.1, 5.0  # between two tries


class Durably:
    """Tries again until it is written, or until nobody wants to wait any longer."""

    def __init__(self, who: str, clock: Clock, events: Events) -> None:
        self.broken_off = False  # wait for no store that cannot write
        self.failures = 0
        self._who = who
        self._clock = clock
        self._events = events

    async def __call__(self, write: Callable[[], Awaitable[T]]) -> T:
        delay_s = FIRST_S
        while True:
            try:
                return await write()
            except NotWritten as error:
                self.failures += 1
                if self.broken_off:
                    raise
                self._events.emit("store_failing", scheduler=self._who, error=str(error))
                await self._clock.sleep(delay_s)
                delay_s = min(delay_s * 2, LONGEST_S)
