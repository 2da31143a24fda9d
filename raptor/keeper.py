"""The keeper: it opens what survives, hands it to the schedulers, and closes it in order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, TypeAlias

from raptor.actor import Actor, Caller
from raptor.exits import Reason
from raptor.state.base import Store
from raptor.timetable import Timetable

Opening: TypeAlias = Store | AbstractAsyncContextManager[Store]
"""A store, or what gives one when it is entered."""


class Keeper(Actor):
    """Owns the store. `opened` is told of the timetable each time it is opened."""

    async def init(self, open_store: Callable[[], Opening], opened: Callable[[Timetable], Awaitable[None]]) -> None:
        self._open = AsyncExitStack()
        opening = await self.runtime.clock.offload(open_store)
        if isinstance(opening, AbstractAsyncContextManager):
            self.store: Store = await self._open.enter_async_context(opening)
        else:
            self.store = opening
        try:
            self._timetable = Timetable(self.store, self.runtime.clock, self.runtime.events)
            await self._timetable.load()
            await opened(self._timetable)
        except BaseException:
            await self._open.aclose()
            raise
        if self.store is opening:
            self._open.push_async_callback(self.store.close)

    def handle_call(self, message: Any, caller: Caller) -> Timetable:
        return self._timetable

    async def terminate(self, reason: Reason) -> None:
        await self._open.aclose()
