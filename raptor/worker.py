"""The worker actor: it turns queues, and answers while tasks run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from raptor.actor import Actor, Caller, Stop
from raptor.exits import Reason
from raptor.queues import Queue
from raptor.resources import opened
from raptor.runners import Desk
from raptor.scheduler import Finish, NewCatalogue
from raptor.turn import Lanes, turn
from raptor.workshop import Workshop

PROCESSORS = 100


@dataclass(frozen=True, slots=True)
class Unwanted:
    """Tasks that were cancelled: whichever of them runs is ended."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NewLines:
    """Queues were set anew."""


@dataclass(frozen=True, slots=True)
class _Over:
    error: BaseException | None


class Worker(Actor):
    """One worker. `init` takes the workshop, the queues (None: all that there are) and how many tasks run at a time."""

    def init(
        self, workshop: Workshop, desk: Desk, queues: Sequence[str] | None = None, processors: int = PROCESSORS
    ) -> None:
        self._workshop = workshop
        self._processors = processors
        self._queue = Queue(workshop, desk, self.runtime.clock, self.runtime.events, queues)
        self._lanes = Lanes(processors)
        self._opening = True
        self._stopping = False
        name = self.ref.name or "worker"
        self._turn = self.runtime.create_task(self._work(workshop.turns.get(name)))
        self._turn.add_done_callback(self._over)
        workshop.turns[name] = self._turn
        self.runtime.create_task(self._end_with_it())

    async def _work(self, predecessor: asyncio.Task[None] | None) -> None:
        if predecessor is not None:  # a killed worker's tasks may take a moment to end
            await asyncio.wait({predecessor})
        async with opened(self._workshop.resources, self.runtime.clock, self.runtime.events) as resources:
            self._opening = False
            self._queue.resources = resources
            await self._queue.open()
            try:
                await turn(self._queue, self._workshop.runners, self.runtime.clock, self._lanes, self._workshop.logs)
            finally:
                await self._queue.close()

    async def _end_with_it(self) -> None:
        """A kill ends the actor without `terminate`, and what it runs must not outlive it."""
        await self.ref.wait()
        self._break_off()

    def _break_off(self) -> None:
        self._stop()
        self._lanes.interrupt()

    def _stop(self) -> None:
        self._queue.stop()
        if self._opening:  # which may take for ever
            self._turn.cancel()

    def _over(self, task: asyncio.Task[None]) -> None:
        if not (task.cancelled() and self.runtime.is_closing()):
            self.ref.send(_Over(asyncio.CancelledError() if task.cancelled() else task.exception()))

    def handle_call(self, message: object, caller: Caller) -> Any:
        match message:
            case "status":
                return self.status()
            case NewCatalogue() | NewLines():
                self._queue.refresh()
                return None
            case Unwanted(ids=ids):
                self._queue.cancel(ids)
                return None
            case _:
                raise TypeError(f"a worker does not understand {message!r}")

    def handle_cast(self, message: object) -> None:
        match message:
            case Finish(grace_s=grace_s):
                self._stopping = True
                self._stop()
                self.send_after(grace_s, "break off")
            case _:
                raise TypeError(f"a worker does not understand {message!r}")

    def handle_info(self, message: object) -> Any:
        match message:
            case _Over() if self._stopping:
                return Stop()
            case _Over(error=error):
                return Stop(error or RuntimeError("the turn ended by itself"))
            case "break off":
                self._break_off()
                return None
            case _:
                return super().handle_info(message)

    async def terminate(self, reason: Reason) -> None:
        """Break off what runs, and wait until that is recorded."""
        self._break_off()
        if not self._turn.done():
            await asyncio.wait({self._turn})

    def status(self) -> dict[str, object]:
        return {
            "state": "stopping" if self._stopping else "opening" if self._opening else "running",
            "processors": self._processors,
            "queues": self._queue.names,
            "running": sorted(self._queue.running),
            "expected": self._queue.expected,
            "handled": {name: tally.show() for name, tally in sorted(self._queue.tallies.items())},
        }
