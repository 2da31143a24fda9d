"""What a scheduler and a worker have in common: an actor that turns a source in a task of its own.

What runs is never inside a message, so the actor always answers.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from raptor.actor import Actor, Stop
from raptor.exits import Reason
from raptor.resources import opened
from raptor.turn import Lanes
from raptor.workshop import Workshop

LAST_S = 3.5
"""How long, beyond the grace, a store that cannot write is waited for by whoever is to end."""


@dataclass(frozen=True, slots=True)
class NewCatalogue:
    """Services were read anew."""


@dataclass(frozen=True, slots=True)
class Finish:
    """End after what runs, or break it off once the grace is over. Whatever ends is recorded, if that can be."""

    grace_s: float


@dataclass(frozen=True, slots=True)
class _Over:
    error: BaseException | None


class Turning(Actor, ABC):
    """A subclass calls `begin` in its `init`, and says how it works, stops taking, and breaks off."""

    def begin(self, workshop: Workshop, lanes: int, foresees: Callable[[], bool] = lambda: False) -> None:
        self._workshop = workshop
        self._lanes = Lanes(lanes, foresees)
        self._opening = False
        self._halted = False
        self._stopping = False
        self._whose = repr(self.ref) if self.ref.name is None else self.ref.name
        self._turn = self.runtime.create_task(self._follow(workshop.turns.get(self._whose)))
        self._turn.add_done_callback(self._over)
        workshop.turns[self._whose] = self._turn
        self.runtime.create_task(self._end_with_it())

    @abstractmethod
    async def work(self, resources: Mapping[str, Any]) -> None:
        """Open the source, and turn it until there is no more."""

    @abstractmethod
    def take_no_more(self) -> None:
        """Have the work end by itself."""

    def interrupt(self) -> None:
        """Break off what runs, and have that recorded."""
        self._stop()
        self._lanes.interrupt()

    def break_off(self) -> None:
        """Have it end now, and wait for no store that cannot write."""
        self.interrupt()

    @abstractmethod
    def give_up(self) -> None:
        """Wait for no store that does not answer either: what is not recorded by now is not, by this one."""

    async def _follow(self, predecessor: asyncio.Task[None] | None) -> None:
        if predecessor is not None:  # what a killed one ran may take a moment to end
            await asyncio.wait({predecessor})
        if self._halted:
            return
        self._opening = True
        async with opened(self._workshop.resources, self.runtime.clock, self.runtime.events) as resources:
            self._opening = False
            await self.work(resources)

    async def _end_with_it(self) -> None:
        """A kill ends the actor without `terminate`, and what it runs must not outlive it."""
        await self.ref.wait()
        self.break_off()

    def _stop(self) -> None:
        self._halted = True
        self.take_no_more()
        if self._opening:  # which may take for ever
            self._turn.cancel()

    def _over(self, task: asyncio.Task[None]) -> None:
        if not (task.cancelled() and self.runtime.is_closing()):
            self.ref.send(_Over(asyncio.CancelledError() if task.cancelled() else task.exception()))

    def handle_cast(self, message: object) -> None:
        match message:
            case Finish(grace_s=grace_s):
                self._stopping = True
                self._stop()
                self.send_after(grace_s, "interrupt")
            case _:
                raise TypeError(f"a {type(self).__name__.lower()} does not understand {message!r}")

    def handle_info(self, message: object) -> Any:
        match message:
            case _Over() if self._stopping:
                # Even if the store fails: the next start takes it for a crash, which loses nothing.
                self._workshop.unrecorded.tell(self.runtime.events, self._whose)
                return Stop()
            case _Over(error=error):
                return Stop(error or RuntimeError("the turn ended by itself"))
            case "interrupt":
                self.interrupt()
                self.send_after(LAST_S, "give up")  # from now on: a node that stood still has not waited
                return None
            case "give up":
                self.give_up()
                return None
            case _:
                return super().handle_info(message)

    async def terminate(self, reason: Reason) -> None:
        """Break off what runs, and wait until that is recorded."""
        self.break_off()
        if not self._turn.done():
            await asyncio.wait({self._turn}, timeout=LAST_S)
            self.give_up()
        if not self._turn.done():
            await asyncio.wait({self._turn})
