"""The keeper: it opens what survives, hands it to the schedulers, and closes it in order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from raptor.actor import Actor, Caller
from raptor.exits import Reason
from raptor.state.base import Store
from raptor.timetable import Timetable


class Keeper(Actor):
    """Owns the store. `opened` is told of the timetable each time it is opened."""

    async def init(self, open_store: Callable[[], Store], opened: Callable[[Timetable], Awaitable[None]]) -> None:
        self.store = await self.runtime.clock.offload(open_store)
        self._timetable = Timetable(self.store, self.runtime.clock, self.runtime.events)
        await self._timetable.load()
        await opened(self._timetable)

    def handle_call(self, message: Any, caller: Caller) -> Timetable:
        return self._timetable

    async def terminate(self, reason: Reason) -> None:
        await self.store.close()
