"""The scheduler actor: it turns a Cycle, and answers while services run.

Services run in tasks of their own, never inside a message, so a scheduler always answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from raptor.actor import Caller
from raptor.cycle import Cycle
from raptor.errors import NotWritten, StaleLease
from raptor.rows import Definition, line_of
from raptor.tenure import Tenure
from raptor.timetable import ELSEWHERE
from raptor.turn import Lanes, turn
from raptor.turning import NewCatalogue, Turning
from raptor.workshop import Workshop

STALL_S = 5.0
"""How late an armed check may be, with nothing running, before the scheduler counts as stalled."""


@dataclass(frozen=True, slots=True)
class Redefine:
    """A new definition, and whether to look at once."""

    definition: Definition
    look_now: bool = False


class Scheduler(Turning):
    """One scheduler. `init` takes its name and the workshop; a cycle that was left unfinished is taken up."""

    def init(self, name: str, workshop: Workshop) -> None:
        clock, events = self.runtime.clock, self.runtime.events
        is_shared = not workshop.timetable.store.exclusive
        self._name = name
        self._tenure = Tenure(name, workshop, clock, events) if is_shared else None
        self._cycle = self._new_cycle(workshop)
        self.begin(workshop, 1)

    def _new_cycle(self, workshop: Workshop) -> Cycle:
        return Cycle(
            workshop.definitions[self._name],
            workshop.catalogue,
            workshop.timetable,
            self.runtime.clock,
            self.runtime.events,
            partial(_is_shared, workshop, self._name),
            self._tenure,
            workshop.unrecorded,
        )

    async def work(self, resources: Mapping[str, Any]) -> None:
        if self._tenure is None:
            await self._serve(resources)
            return
        while await self._tenure.obtain():
            self._cycle = self._new_cycle(self._workshop)
            if self._halted:
                self._cycle.stop()
            if await self._reign(self._tenure, resources):
                break

    async def _serve(self, resources: Mapping[str, Any]) -> None:
        self._cycle.resources = resources
        self._workshop.timetable.release_all(self._name)
        await self._cycle.open()
        await turn(self._cycle, self._workshop.runners, self.runtime.clock, self._lanes, self._workshop.logs)

    async def _reign(self, tenure: Tenure, resources: Mapping[str, Any]) -> bool:
        """Serve as the only owner among many nodes; False if another has taken over: then what runs was broken off."""
        keeping = self.runtime.create_task(tenure.keep())
        keeping.add_done_callback(self._lose)
        timetable = self._workshop.timetable
        try:
            await tenure.durably(timetable.load)
            timetable.release_all(ELSEWHERE)  # what the owner before it had is free with its scheduler
            await self._serve(resources)
            is_lost = keeping.done()
        except (StaleLease, NotWritten) as error:
            is_lost = keeping.done() or isinstance(error, StaleLease)
            if not is_lost:
                raise
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            await tenure.resign()
        if is_lost:
            # The old one has a check armed that never comes: whoever stands by is not stalled.
            self._lanes, self._cycle = Lanes(1), self._new_cycle(self._workshop)
            self.runtime.events.emit("ownership_lost", scheduler=self._name)
        return not is_lost

    def _lose(self, keeping: asyncio.Task[None]) -> None:
        """What runs would be refused."""
        if not keeping.cancelled():
            self._cycle.break_off()
            self._lanes.interrupt()

    def take_no_more(self) -> None:
        self._cycle.stop()
        if self._tenure is not None:
            self._tenure.stop()

    def interrupt(self) -> None:
        self._cycle.interrupt()
        super().interrupt()

    def break_off(self) -> None:
        self._cycle.break_off()
        if self._tenure is not None:
            self._tenure.durably.break_off()
        super().break_off()

    def give_up(self) -> None:
        self._cycle.give_up()
        if self._tenure is not None:
            self._tenure.durably.give_up()

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

    def status(self) -> dict[str, object]:
        """The original's keys, and the rest."""
        status = self._status()
        company, holder = self._workshop.company, None if self._tenure is None else self._tenure.holder
        if self._tenure is None or company is None:
            return status
        if holder is not None and not self._stopping:
            status["state"] = "standby"
        return status | {"owner": company.name(holder or self._workshop.owner)}

    def _status(self) -> dict[str, object]:
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
    def overdue(self) -> float | None:
        """An armed check that is long past, while nothing runs."""
        at = self._cycle.next_check
        is_late = self._cycle.state is None and at is not None and self.runtime.clock.now() - at > STALL_S
        return at if is_late else None


def _is_shared(workshop: Workshop, scheduler: str, service: str) -> bool:
    """Whether another scheduler has the service on its list."""
    others = (definition for name, definition in workshop.definitions.items() if name != scheduler)
    return any(entry.name == service for definition in others for entry in definition.services)
