"""The scheduler actor: it turns a Cycle, and answers while services run.

Services run in tasks of their own, never inside a message, so a scheduler always answers.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any

from raptor.actor import Actor, Caller, Stop
from raptor.cycle import Cycle
from raptor.exits import Reason
from raptor.rows import Definition, line_of
from raptor.turn import Lanes, turn
from raptor.workshop import Workshop

STALL_S = 5.0
"""How late an armed check may be, with nothing running, before the scheduler counts as stalled."""


@dataclass(frozen=True, slots=True)
class Redefine:
    """A new definition, and whether to look at once."""

    definition: Definition
    look_now: bool = False


@dataclass(frozen=True, slots=True)
class NewCatalogue:
    """Services were read anew."""


@dataclass(frozen=True, slots=True)
class Finish:
    """End after the current service, or break it off once the grace is over."""

    grace_s: float


@dataclass(frozen=True, slots=True)
class _Over:
    error: BaseException | None


class Scheduler(Actor):
    """One scheduler. `init` takes its name and the workshop; a cycle that was left unfinished is taken up."""

    def init(self, name: str, workshop: Workshop) -> None:
        self._workshop = workshop
        self._cycle = Cycle(
            workshop.definitions[name],
            workshop.catalogue,
            workshop.timetable,
            self.runtime.clock,
            self.runtime.events,
            partial(_is_shared, workshop, name),
        )
        self._lanes = Lanes(1)
        self._stopping = False
        self._turn = self.runtime.create_task(self._work(workshop.turns.get(name)))
        self._turn.add_done_callback(self._over)
        workshop.turns[name] = self._turn
        self.runtime.create_task(self._end_with_it())

    async def _work(self, predecessor: asyncio.Task[None] | None) -> None:
        if predecessor is not None:  # a killed scheduler's service may take a moment to end
            await asyncio.wait({predecessor})
        self._workshop.timetable.release_all(self._cycle.definition.name)
        await self._cycle.open()
        await turn(self._cycle, self._workshop.runners, self.runtime.clock, self._lanes, self._workshop.logs)

    async def _end_with_it(self) -> None:
        """A kill ends the actor without `terminate`, and what it runs must not outlive it."""
        await self.ref.wait()
        self._break_off()

    def _break_off(self) -> None:
        self._cycle.break_off()
        self._lanes.interrupt()

    def _over(self, task: asyncio.Task[None]) -> None:
        if not (task.cancelled() and self.runtime.is_closing()):
            self.ref.send(_Over(asyncio.CancelledError() if task.cancelled() else task.exception()))

    def handle_call(self, message: object, caller: Caller) -> Any:
        match message:
            case "status":
                return self.status()
            case Redefine(definition=definition, look_now=look_now):
                self._cycle.redefine(definition, look_now=look_now and self._cycle.state is None)
                return self.status()
            case NewCatalogue():
                self._cycle.replace_catalogue(self._workshop.catalogue)
                return None
            case _:
                raise TypeError(f"a scheduler does not understand {message!r}")

    def handle_cast(self, message: object) -> None:
        match message:
            case Finish(grace_s=grace_s):
                self._stopping = True
                self._cycle.stop()
                self.send_after(grace_s, "break off")
            case _:
                raise TypeError(f"a scheduler does not understand {message!r}")

    def handle_info(self, message: object) -> Any:
        match message:
            case _Over() if self._stopping:
                return Stop()  # even if the store fails: the next start takes it for a crash, which loses nothing
            case _Over(error=error):
                return Stop(error or RuntimeError("the cycle ended by itself"))
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
        """The original's keys, and the rest."""
        cycle, state = self._cycle, self._cycle.state
        definition = cycle.definition
        results = cycle.last_results if state is None else state.told
        return {
            "name": definition.name,
            "state": "stopping" if self._stopping else "paused" if definition.paused else "running",
            "interval_s": definition.interval_s,
            "current_service": None if state is None else state.current_service,
            "current_since": None if state is None or state.current_run is None else state.current_run.start,
            "remaining_services": [] if state is None else list(state.services_queue),
            "completed_count": 0 if state is None else len(results),
            "results": [line_of(result) for result in results],
            "periodic_enabled": not definition.paused,
            "periodic_services": [entry.name for entry in definition.services],
            "periodic_interval_ms": None if definition.interval_s is None else round(definition.interval_s * 1000),
            "cycle": None if state is None else state.cycle,
            "resumed": 0 if state is None else state.resumed,
            "cycles": cycle.cycles,
            "next_check": cycle.next_check if state is None else None,
        }

    @property
    def is_stalled(self) -> bool:
        """An armed check that is long past, while nothing runs."""
        at = self._cycle.next_check
        return self._cycle.state is None and at is not None and self.runtime.clock.now() - at > STALL_S


def _is_shared(workshop: Workshop, scheduler: str, service: str) -> bool:
    """Whether another scheduler has the service on its list."""
    others = (definition for name, definition in workshop.definitions.items() if name != scheduler)
    return any(entry.name == service for definition in others for entry in definition.services)
