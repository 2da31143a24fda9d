"""Writing to a store that cannot for a while: a result is never dropped, and nothing new starts meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from raptor.clock import Clock, first_of
from raptor.errors import NotWritten
from raptor.events import Events

T = TypeVar("T")

FIRST_S, LONGEST_S = 0.1, 5.0  # between two tries
HURRIED_S = 0.5  # the longest, when the end is near
SILENT = "the store", "it did not answer in time"


class Durably:
    """Tries again until it is written, or until nobody wants to wait any longer."""

    def __init__(self, who: str, clock: Clock, events: Events) -> None:
        self.broken_off = False  # each write is tried once
        self.given_up = False  # and waited for no longer
        self.failures = 0
        self._who = who
        self._clock = clock
        self._events = events
        self._hurried = False
        self._moved = asyncio.Event()
        self._inside: dict[asyncio.Task[Any], None] = {}  # who waits for an answer, in order
        self._left: set[asyncio.Task[Any]] = set()  # those of them that are to wait no longer

    async def __call__(self, write: Callable[[], Awaitable[T]]) -> T:
        delay_s = FIRST_S
        while True:
            try:
                return await self.once(write)
            except NotWritten as error:
                self.failures += 1
                if self.broken_off:
                    raise
                if delay_s < LONGEST_S or not self._hurried:
                    self._events.emit("store_failing", scheduler=self._who, error=str(error))
                await self._pause(delay_s)
                if self.given_up:
                    raise
                delay_s = min(delay_s * 2, LONGEST_S)

    def hurry(self) -> None:
        """There is not much time left: the store may be back any moment."""
        self._hurried = True
        self._move()

    def break_off(self) -> None:
        """Wait for no store that cannot write: whatever is tried is tried once, now."""
        self.broken_off = True
        self._move()

    def give_up(self) -> None:
        """Nor for an answer that has not come: whether that was written nobody knows."""
        self.given_up = True
        self.break_off()
        for task in self._inside:
            if task not in self._left:
                self._left.add(task)
                task.cancel()

    async def once(self, write: Callable[[], Awaitable[T]]) -> T:
        """One try, whose answer is waited for until it is given up."""
        task = asyncio.current_task()
        assert task is not None
        cancelled = task.cancelling()
        self._inside[task] = None
        try:
            return await write()
        except asyncio.CancelledError:
            if task not in self._left:
                raise
            self._left.discard(task)
            if task.uncancel() > cancelled:
                raise  # by others, too
            raise NotWritten("unknown", *SILENT) from None
        finally:
            self._inside.pop(task, None)
            if task in self._left:  # something else came first
                self._left.discard(task)
                task.uncancel()

    def _move(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def _pause(self, seconds: float) -> None:
        """Shorter in a hurry, and over at once when that changes."""
        await first_of(self._clock.sleep(min(seconds, HURRIED_S) if self._hurried else seconds), self._moved.wait())
