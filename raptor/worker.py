"""The worker actor: it turns queues, and answers while tasks run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raptor.actor import Caller
from raptor.queues import Queue
from raptor.runners import Desk
from raptor.turn import turn
from raptor.turning import NewCatalogue, Turning
from raptor.workshop import Workshop

PROCESSORS = 100


@dataclass(frozen=True, slots=True)
class Unwanted:
    """Tasks that were cancelled: whichever of them runs is ended."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NewLines:
    """Queues were set anew."""


class Worker(Turning):
    """One worker. `init` takes the workshop, the queues (None: all that there are) and how many tasks run at a time."""

    def init(
        self, workshop: Workshop, desk: Desk, queues: Sequence[str] | None = None, processors: int = PROCESSORS
    ) -> None:
        self._processors = processors
        self._queue = Queue(workshop, desk, self.runtime.clock, self.runtime.events, queues)
        self._only = None if queues is None else list(queues)
        store = workshop.timetable.store
        self.begin(workshop, processors, lambda: store.looks_ahead)

    async def work(self, resources: Mapping[str, Any]) -> None:
        self._queue.resources = resources
        await self._queue.open()
        try:
            await turn(self._queue, self._workshop.runners, self.runtime.clock, self._lanes, self._workshop.logs)
        finally:
            await self._queue.close()

    def take_no_more(self) -> None:
        self._queue.stop()

    def break_off(self) -> None:
        self._queue.break_off()
        super().break_off()

    def give_up(self) -> None:
        self._queue.give_up()

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

    def status(self) -> dict[str, object]:
        return {
            "state": "stopping" if self._stopping else "opening" if self._opening else "running",
            "processors": self._processors,
            "only": self._only,  # what it was started for; None: all queues
            "queues": self._queue.names,
            "running": sorted(self._queue.running),
            "expected": self._queue.expected,
            "handled": {name: tally.show() for name, tally in sorted(self._queue.tallies.items())},
        }
