"""Slots that end without a run: passed over, given up, or not to be repeated; and whatever else a row changes by."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from raptor.agenda import Agenda
from raptor.claiming import Claiming
from raptor.due import NotDue, skip
from raptor.errors import NotWritten
from raptor.events import Events
from raptor.journal import Journal
from raptor.rows import SchedulerState, ServiceTiming
from raptor.service import Service
from raptor.task import Run, Slot
from raptor.timetable import Timetable


class Closing:
    """For the scheduler of that name."""

    def __init__(
        self,
        name: str,
        agenda: Agenda,
        claiming: Claiming,
        journal: Journal,
        timetable: Timetable,
        events: Events,
    ) -> None:
        self._name = name
        self._agenda = agenda
        self._claiming = claiming
        self._journal = journal
        self._timetable = timetable
        self._events = events

    async def note(self, found: NotDue) -> bool:
        """Make durable what a decision changes: the ledger first, a crash between the two must not lose the slot.

        False if it is another's to do so.
        """
        is_ours = await self.rewrite(found.service.name, found.row, found.closed)
        if is_ours:
            for slot in found.closed:
                self._events.emit("slot_closed", slot=slot)
        return is_ours

    async def rewrite(self, name: str, row: ServiceTiming | None, closed: tuple[Slot, ...] = ()) -> bool:
        """Change what is written of a service without a run; False if it is another's to do so."""
        if row is None:
            await self._record(closed)
            return True
        async with self._claiming.changing(name) as is_ours:
            if is_ours:
                await self._record(closed)
                await self._journal.durably(lambda: self._claiming.save(name, row))
        return is_ours

    async def pass_over(self, service: Service, reason: str) -> tuple[Slot, ...]:
        """Close the slot of a service; -> the closed slots, for the cycle's journal."""
        found = self._skipped(service, reason)
        return found.closed if found is not None and await self.note(found) else ()

    async def give_up(self, service: Service, released: Callable[[str], Awaitable[bool]]) -> tuple[Slot, ...]:
        """Close the slot of a run that was broken off and must not be repeated; -> as `pass_over`.

        Whoever ran it may have its right for a moment yet: nothing goes on before the row says that the slot is over.
        `released` waits until nobody has it, or is False: nobody waits any longer.
        """
        while (found := self._skipped(service, "interrupted")) is not None and not await self.note(found):
            if not await released(service.name):
                raise NotWritten(
                    "busy", service.name, "another node has the right to it: the next start closes its slot"
                )
        return () if found is None else found.closed

    async def forgo(self, service: Service) -> None:
        """Close the slot of a run that another scheduler began before a crash: it must not be repeated here either.

        That one may come to it later, or never.
        """
        states = await self._journal.durably(lambda: self._timetable.store.load("scheduler_state"))
        others = (state for name, state in states.items() if name != self._name)
        for run in [state.current_run for state in others if isinstance(state, SchedulerState)]:
            row = self._timetable.row(service.name)
            is_over = row is not None and run is not None and row.ended(run.id) is not None
            if run is None or run.service != service.name or is_over or service.name in self._timetable.claims:
                continue
            if (found := self._skipped(service, "interrupted", run)) is not None:
                await self.note(found)

    async def _record(self, closed: tuple[Slot, ...]) -> None:
        if closed:
            await self._journal.record(closed)

    def _skipped(self, service: Service, reason: str, run: Run | None = None) -> NotDue | None:
        """Its slots up to the check, or up to that of a run."""
        check, timing = self._agenda.check, self._agenda.timing_of_any(service)
        assert check is not None
        if timing is None:
            return None
        if run is not None:
            check = msgspec.structs.replace(check, at=run.planned)
        row = self._timetable.row(service.name)
        if row is None:
            row = ServiceTiming(next_due=check.at, interval_seconds=timing.every_s)
        return skip(service, timing, row, check, reason)
