"""Cycle: the source of a scheduler, its services one after another at each check, over the two tables.

The order of writes is the promise: the timing row before the state row, each durable before the next step, so that
whatever the moment of a crash nothing recorded runs again and at most the run in flight is repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from raptor.agenda import Agenda
from raptor.claiming import Claiming
from raptor.clock import Clock, first_of
from raptor.closing import Closing
from raptor.due import Check, Due, NotDue, clamp
from raptor.errors import NotWritten, StaleLease
from raptor.events import Events
from raptor.faults import point
from raptor.journal import Journal, finished, recovered, result_of
from raptor.judge import advance, passed_by
from raptor.planned import Planned
from raptor.rows import CycleResult, Definition, Recorded, Scheduled, SchedulerState, ServiceTiming
from raptor.runners.family import sweep_after_crash
from raptor.service import Service
from raptor.source import Room
from raptor.task import Again, Done, Outcome, Result, Run, Slot, Verdict
from raptor.tenure import Tenure
from raptor.timetable import BY_COMMAND, Claim, Timetable
from raptor.unrecorded import Pending, Unrecorded


class Cycle:
    """The services of one scheduler, one after another, at each check."""

    def __init__(
        self,
        definition: Definition,
        catalogue: Mapping[str, Service],
        timetable: Timetable,
        clock: Clock,
        events: Events,
        is_shared: Callable[[str], bool] = lambda service: False,
        tenure: Tenure | None = None,
        unrecorded: Pending | None = None,
    ) -> None:
        self.cycles = 0
        self.next_check: float | None = None
        self.resources: Mapping[str, Any] = {}
        self._name = definition.name
        self._agenda = Agenda(definition, catalogue, timetable, clock.now())
        self._claiming = Claiming(definition.name, timetable, tenure, clock)
        self._journal = Journal(definition.name, timetable.store, clock, events, self._claiming.rights)
        self._closing = Closing(definition.name, self._agenda, self._claiming, self._journal, timetable, events)
        self._timetable = timetable
        self._clock = clock
        self._events = events
        self._is_shared = is_shared  # whether another scheduler has it on its list
        self._next: Planned | None = None
        self._settling: asyncio.Task[None] | None = None
        self._unrecorded = unrecorded or Pending()
        self._whose = f"scheduler:{definition.name}"
        self._stepped = timetable.stepped
        self._wake = asyncio.Event()
        self._stopping = False
        self._patient = True

    # What the scheduler asks for

    @property
    def definition(self) -> Definition:
        return self._agenda.definition

    @property
    def state(self) -> SchedulerState | None:
        return self._journal.state

    @property
    def last_results(self) -> tuple[Recorded, ...]:
        return self._journal.last_results

    def redefine(self, definition: Definition, *, look_now: bool) -> None:
        """A new list or interval: it holds from the next cycle on."""
        self._agenda.redefine(definition, self._clock.now(), look_now=look_now)
        self._wake.set()

    def replace_catalogue(self, catalogue: Mapping[str, Service]) -> None:
        self._agenda.replace_catalogue(catalogue)
        self._wake.set()

    def stop(self) -> None:
        """Give out nothing more; what is left of the cycle stays on disk."""
        self._stopping = True
        self._journal.durably.hurry()
        self._wake.set()

    def interrupt(self) -> None:
        """Stop, and wait for no claim of another's."""
        self._patient = False
        self.stop()

    def break_off(self) -> None:
        """Wait for no store that cannot write either."""
        self._journal.durably.break_off()
        self.interrupt()

    def give_up(self) -> None:
        """Nor for one that does not answer."""
        self._journal.durably.give_up()

    # Source

    async def take(self, room: Room) -> list[Planned] | None:
        if self._settling is not None:  # which says what is next
            await asyncio.wait({self._settling})
            self._settling.result()
        while not self._stopping:
            if self._next is not None:
                await self._claiming.confirm()
                planned, self._next = self._next, None
                return [planned]
            check = await self._wait_for_check()
            if check is not None:
                await self._begin(check)
        return None

    def settle(self, unit: Planned, result: Result, verdict: Verdict) -> asyncio.Task[None]:
        if not isinstance(verdict, Again):
            self._unrecorded.begin(unit.run.id, self._whose, lambda: [_unrecorded(unit, result)])
        self._settling = asyncio.get_running_loop().create_task(self._end(unit, result, verdict))
        self._settling.add_done_callback(partial(self._ended, unit.run.id))
        return self._settling

    def _ended(self, run: str, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, StaleLease):  # told as refused
            self._unrecorded.done(run)
        elif error is not None:
            self._unrecorded.failed(run, error)

    async def _end(self, unit: Planned, result: Result, verdict: Verdict) -> None:
        await self._follow_clock()
        run = finished(unit.run, result, self._clock.now())
        try:
            await self._settle(unit, run, verdict)
        except StaleLease:
            await self._refused(run)
            raise

    async def _settle(self, unit: Planned, run: Run, verdict: Verdict) -> None:
        name = unit.service.name
        if isinstance(verdict, Again):
            await self._give_back(unit, run)
        else:
            due, old = unit.by_the_clock(self._timetable.stepped)
            row = advance(due, unit.timing, old, run, verdict)
            point("before_timing")
            await self._journal.durably(lambda: self._claiming.save(name, row))
            point("after_timing")
            self._unrecorded.done(run.id)
            if due.slot > self._clock.now():  # tried again after the clock was set back: its row lies ahead only now
                self._agenda.unclamped = True
            await self._claiming.release(name, run.id)
            self._tell_ended(unit, run, verdict, row)
            passed = () if row.open is not None else passed_by(unit.service, unit.timing, run, row, due.planned)
            closed = (*unit.due.closed, *passed)
            await self._move_on(result_of(run, verdict, closed), self._journal.queue)

    # Resuming

    async def open(self) -> None:
        """Take up a cycle that a crash or a stop left unfinished."""
        state = await self._journal.resume()
        if state is None:
            self._unrecorded.forget(self._whose)
            await self._journal.recall(len(self.definition.services))
            return
        # A clock that was set forward in the cycle had moved what came after it along, out of reach of its check.
        slot = state.slot if state.current_run is None else max(state.slot, state.current_run.planned)
        self._agenda.take_up(slot, state.up_since, self._clock.now())
        result, queue = await self._recover(state)
        self._unrecorded.forget(self._whose)
        done = [entry.service for entry in state.told] + ([result.run.service] if result else [])
        self._events.emit("cycle_resumed", scheduler=self._name, slot=state.slot, done=done, left=list(queue))
        await self._move_on(result, queue)

    async def _recover(self, state: SchedulerState) -> tuple[CycleResult | None, tuple[str, ...]]:
        """What became of the run in flight: recorded just before the crash, to be repeated, or given up."""
        run, queue = state.current_run, state.services_queue
        if run is None:
            return None, queue
        row = self._timetable.row(run.service)
        ended = None if row is None else row.ended(run.id)
        if row is not None and ended is not None:
            result = recovered(run, ended, state.current_closed)
            passed = () if ended.verdict == "retry" else self._passed_by(result.run, row)
            return msgspec.structs.replace(result, closed=(*result.closed, *passed)), queue
        # What it had started may have outlived the node: never two copies at a time.
        await self._clock.offload(sweep_after_crash, run.id)
        lost = msgspec.structs.replace(run, outcome=Outcome.INTERRUPTED, info="interrupted by a crash")
        service = self._agenda.catalogue.get(run.service)
        if service is None or service.on_crash == "rerun":
            return CycleResult(run=lost, verdict="interrupted"), (run.service, *queue)
        closed = await self._closing.give_up(service, self._wait_for_release)
        return CycleResult(run=lost, verdict="skipped", reason="interrupted", closed=closed), queue

    def _passed_by(self, run: Run, row: ServiceTiming) -> tuple[Slot, ...]:
        service = self._agenda.catalogue.get(run.service)
        timing = None if service is None else self._agenda.timing_of_any(service)
        return () if service is None or timing is None else passed_by(service, timing, run, row, run.planned)

    # Checks

    async def _wait_for_check(self) -> Check | None:
        """Sleep until the next check; None when something changed and is to be looked at anew."""
        await self._follow_clock()
        if self._agenda.unclamped:
            await self._clamp()
        now = self._clock.now()
        at, retries_only = self._agenda.next_check(now, caught_up=bool(self.cycles))
        self.next_check = at
        if at is None or at > now:
            await self._sleep(at)
            return None
        self.next_check = None
        return self._agenda.begin(at, now, retries_only=retries_only)

    async def _follow_clock(self) -> None:
        """A clock that was set moves along what was planned by it."""
        if self._timetable.step:
            await self._journal.durably(self._timetable.follow_clock)
        step = self._timetable.stepped - self._stepped
        if step:
            self._stepped += step
            self._agenda.follow_clock(step)

    async def _clamp(self) -> None:
        """Put right, once and for all, what was written by a clock that went ahead of this one."""
        self._agenda.unclamped = False
        for entry in self._agenda.listed().values():
            row, timing = self._timetable.row(entry.name), self._agenda.timing(entry)
            if row is None or timing is None or entry.name in self._timetable.claims:
                continue
            clamped = clamp(row, timing, self._clock.now())
            if clamped is not row:
                self._events.emit("clock_behind", service=entry.name, was=row.next_due, planned=clamped.next_due)
                await self._closing.rewrite(entry.name, clamped)

    async def _sleep(self, until: float | None) -> None:
        released = [self._timetable.released()] if self._agenda.waits_for_release else []
        reached = [] if until is None else [self._wait_until(until)]
        await first_of(self._wake.wait(), *released, *reached)
        self._wake.clear()

    async def _wait_until(self, when: float) -> None:
        """Until the wall clock shows it, or is set: what was planned by it moves along then."""
        while (left := when - self._clock.now()) > 0 and not self._timetable.step:
            if self._timetable.stepped != self._stepped:
                return
            await self._clock.sleep(min(left, self._clock.slice_s))

    async def _begin(self, check: Check) -> None:
        """Ask every service of the list whether it is due; those that are make the cycle."""
        await self._claiming.refresh(self._journal.durably)
        queue: list[str] = []
        waiting: dict[str, str] = {}
        gates, entries = self._timetable.gates, self._agenda.listed()
        for entry in [entry for name, entry in entries.items() if gates.get(name, check.at) <= check.at]:
            found = await self._ask(entry, check)
            if isinstance(found, Due):
                queue.append(entry.name)
            elif found is not None:
                await self._closing.note(found)
                waiting[entry.name] = found.reason
        if self._events.heard("checked"):
            waiting |= self._agenda.reasons(check)
        self._events.emit("checked", scheduler=self._name, at=check.at, due=list(queue), waiting=waiting)
        if queue:
            self._journal.begin(check, queue)
            await self._move_on(None, tuple(queue))
        else:
            self._agenda.end(self._clock.now())

    async def _ask(self, entry: Scheduled, check: Check) -> Due | NotDue | None:
        """Off the event loop where the slots of a long time are counted one by one."""
        if self._agenda.is_long_behind(entry, check):
            return await self._clock.offload(self._agenda.ask, entry, check)
        return self._agenda.ask(entry, check)

    # Moving through the cycle

    async def _move_on(self, result: CycleResult | None, queue: tuple[str, ...]) -> None:
        """Journal a result together with the next service that starts; after the last, close the cycle."""
        assert self.state is not None
        results = list(self.state.results)
        if result is not None:
            results.append(result)
        while queue and not self._stopping:
            name, queue = queue[0], queue[1:]
            found = await self._prepare(name)
            if isinstance(found, Planned):
                await self._journal.write(results, queue, found.run, found.due.closed)
                if self._stopping:  # asked for meanwhile: it has not begun, and does not
                    await self._claiming.release(name, found.run.id)
                    queue = (name, *queue)
                    break
                self._next = found
                self._events.emit("service_started", scheduler=self._name, run=found.run)
                return
            if found is not None:
                results.append(found)
        await self._journal.write(results, queue, None)
        if not queue:
            await self._finish()

    async def _prepare(self, name: str) -> Planned | CycleResult | None:
        """The run of the next service, or what becomes of it instead."""
        check, entry, service = self._agenda.check, self._agenda.entry(name), self._agenda.catalogue.get(name)
        assert check is not None
        if entry is None or service is None:
            return await self._passed(name, service, "removed")
        if self._agenda.is_long_behind(entry, check):
            await self._ask(entry, check)  # it is remembered: from the look at the claim on nothing is waited for
        if name in self.definition.paused_services:
            return await self._passed(name, service, "paused")
        if service.on_crash == "skip" and self._is_shared(name):
            await self._closing.forgo(service)
        await self._follow_clock()  # and wait for whoever does: a row that is being moved is not to be claimed
        check = self._agenda.check or check
        held = self._timetable.claims.get(name)
        if held is not None and (service.overlap == "queue" or held.holder == BY_COMMAND):
            await self._wait_for_release(name)
            # Broken off, or looked at anew: whoever had it may have died over it.
            return None if name in self._timetable.claims else await self._prepare(name)
        if held is not None and not self._agenda.is_held(name):
            return await self._passed(name, service, "overlap")
        if held is not None:
            self._events.emit("service_skipped", service=name, reason=f"claimed by {held.holder}")
            return None
        if self._claiming.is_shared and not await self._claiming.share(name):
            return await self._prepare(name)
        timing, row = self._agenda.timing(entry), self._timetable.row(name)
        found = self._agenda.ask(entry, check)
        if timing is None or not isinstance(found, Due):
            await self._claiming.release(name)
            return None  # it ran elsewhere meanwhile
        run = self._run(found)
        self._timetable.claim(name, Claim(self._name, run.id, run.planned))
        return Planned(
            due=found, run=run, timing=timing, row=row, stepped=self._stepped, resources=self.resources,
            may_start=self._claiming.may_start,
        )  # fmt: skip

    async def _refused(self, run: Run) -> None:
        """A result that came too late is a line of the ledger: somebody did that work, and it does not count."""
        self._timetable.release(run.service, run.id)
        row = self._timetable.row(run.service)
        if row is not None and row.ended(run.id) is not None:
            return  # it counts: only what came after was refused
        self._events.emit("write_refused", scheduler=self._name, service=run.service, run=run)
        info = "refused: the scheduler was another node's by then"
        line = msgspec.structs.replace(run, outcome=Outcome.INTERRUPTED, info=info)
        with suppress(NotWritten):
            await self._journal.durably(lambda: self._timetable.store.record((), [line]))

    async def _wait_for_release(self, name: str) -> bool:
        """False: nobody is to wait any longer."""
        while name in self._timetable.claims and self._patient:
            await first_of(self._timetable.released(), self._wake.wait())
            self._wake.clear()
        return self._patient

    async def _finish(self) -> None:
        state = await self._journal.close()
        self.cycles += 1
        now = self._clock.now()
        self._agenda.end(now, resumed=bool(state.resumed))
        self._events.emit("cycle_done", scheduler=self._name, results=self.last_results, took_s=now - state.started)

    async def _give_back(self, unit: Planned, run: Run) -> None:
        """Interrupted by a stop: as after a crash, but known."""
        await self._claiming.release(unit.service.name, run.id)
        self._stopping = True
        queue = self._journal.queue
        if unit.service.on_crash == "rerun":
            result, queue = CycleResult(run=run, verdict="interrupted"), (unit.service.name, *queue)
        else:
            closed = await self._closing.give_up(unit.service, self._wait_for_release)
            result = CycleResult(run=run, verdict="skipped", reason="interrupted", closed=closed)
        self._events.emit("service_ended", scheduler=self._name, run=run, verdict="interrupted")
        await self._move_on(result, queue)

    async def _passed(self, name: str, service: Service | None, reason: str) -> CycleResult:
        """A service of the cycle that is not run after all: removed, paused, or run by hand just now."""
        assert self._agenda.check is not None
        closed: tuple[Slot, ...] = ()
        if reason != "removed" or not self._is_shared(name):  # the slot of a shared one is left to the other scheduler
            closed = await self._closing.pass_over(service or Service(name=name), reason)
        now = self._clock.now()
        run = Run(
            id=self._clock.new_id(), service=name, scheduler=self._name, planned=self._agenda.check.at,
            attempt=0, start=now, end=now, info=f"skipped: {reason}",
        )  # fmt: skip
        self._events.emit("service_skipped", service=name, reason=reason)
        return CycleResult(run=run, verdict="skipped", reason=reason, closed=closed)

    def _run(self, due: Due) -> Run:
        return Run(
            id=self._clock.new_id(),
            service=due.service.name,
            scheduler=self._name,
            planned=due.planned,
            attempt=due.attempt,
            start=self._clock.now(),
        )

    def _tell_ended(self, unit: Planned, run: Run, verdict: Verdict, row: ServiceTiming) -> None:
        self._events.emit(
            "service_ended",
            scheduler=self._name,
            run=run,
            verdict=verdict.__struct_config__.tag,
            next_due=row.next_due,
            retry_at=row.retry_at,
            recovered=isinstance(verdict, Done) and unit.row is not None and unit.row.failures > 0,
            max_attempts=unit.service.max_attempts,
        )


def _unrecorded(unit: Planned, result: Result) -> Unrecorded:
    """What is said of a run if its end is not."""
    run = unit.run
    return Unrecorded(
        run=run.id, service=run.service, scheduler=run.scheduler, outcome=result.outcome,
        again=unit.service.on_crash == "rerun",
    )  # fmt: skip
