"""Where units of work come from and go back to. `Cycle` is a scheduler's services over the two tables.

The order of writes is the promise: the timing row before the state row, each durable before the next step, so that
whatever the moment of a crash nothing recorded runs again and at most the run in flight is repeated.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import islice
from typing import Any, Protocol

import msgspec

from raptor.clock import Clock
from raptor.due import Check, Due, NotDue, clamp, decide, reached, rounded, skip
from raptor.errors import NotWritten
from raptor.events import Events
from raptor.faults import point
from raptor.judge import advance
from raptor.rows import CycleResult, Definition, Scheduled, SchedulerState, ServiceTiming
from raptor.runners.family import sweep_after_crash
from raptor.service import Service
from raptor.task import Again, Dead, Done, Outcome, Result, Run, Slot, Verdict
from raptor.timetable import BY_HAND, Claim, Timetable, moved
from raptor.timing import Timing, timing_of

INFO = 200  # characters of a result that the state row keeps
REASONS = 20  # services whose reason for not being due is told at a check
CATCH_UP_S = 1.0  # between two runs that make up for downtime


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """One run that is about to happen."""

    due: Due
    run: Run
    timing: Timing
    row: ServiceTiming | None
    stepped: float = 0.0  # how far the clock had been set by then

    @property
    def service(self) -> Service:
        return self.due.service


class Source(Protocol):
    """Gives units when they are due, and takes their verdicts."""

    async def take(self, room: int) -> list[Unit]:
        """Wait until something is due; -> at most `room` units. None of them: stop."""
        ...

    async def settle(self, unit: Unit, result: Result, verdict: Verdict) -> None:
        """Return when the verdict is durable."""
        ...


class Cycle:
    """The services of one scheduler, one after another, at each check."""

    def __init__(
        self,
        definition: Definition,
        catalogue: Mapping[str, Service],
        timetable: Timetable,
        clock: Clock,
        events: Events,
    ) -> None:
        self.definition = definition
        self.state: SchedulerState | None = None
        self.last_results: tuple[CycleResult, ...] = ()
        self.cycles = 0
        self.next_check: float | None = None
        self._catalogue = catalogue
        self._timetable = timetable
        self._clock = clock
        self._events = events
        self._up_since = rounded(clock.now())
        self._tick = self._up_since  # the next planned check
        self._unit: Unit | None = None
        self._check: Check | None = None
        self._stepped = timetable.stepped
        self._forget()
        self._wake = asyncio.Event()
        self._stopping = False
        self._broken_off = False

    # What the scheduler asks for

    def redefine(self, definition: Definition, *, look_now: bool) -> None:
        """A new list or interval: it holds from the next cycle on."""
        if look_now or definition.interval_s != self.definition.interval_s:
            self._tick = rounded(self._clock.now())
        self.definition = definition
        self._forget()
        self._wake.set()

    def replace_catalogue(self, catalogue: Mapping[str, Service]) -> None:
        self._catalogue = catalogue
        self._forget()
        self._wake.set()

    def _forget(self) -> None:
        """What was worked out from the list and the catalogue holds no more."""
        self._unclamped = True  # a row may lie in the future
        self._known: dict[str, Scheduled] | None = None
        self._timings: dict[str, Timing | None] = {}

    def stop(self) -> None:
        """Give out nothing more; what is left of the cycle stays on disk."""
        self._stopping = True
        self._wake.set()

    def break_off(self) -> None:
        """Stop, and wait for nobody: neither for a store that cannot write nor for another's claim."""
        self._broken_off = True
        self.stop()

    # Source

    async def take(self, room: int) -> list[Unit]:
        while not self._stopping:
            if self._unit is not None:
                unit, self._unit = self._unit, None
                return [unit]
            check = await self._wait_for_check()
            if check is not None:
                await self._begin(check)
        return []

    async def settle(self, unit: Unit, result: Result, verdict: Verdict) -> None:
        await self._follow_clock()
        name = unit.service.name
        run = _finished(unit.run, result, self._clock.now())
        if isinstance(verdict, Again):
            await self._give_back(unit, run)
        else:
            due, old = self._by_the_clock(unit)
            row = advance(due, unit.timing, old, run, verdict)
            await point("before_timing")
            await self._durably(lambda: self._timetable.save(name, row))
            await point("after_timing")
            self._timetable.release(name, run.id)
            self._tell_ended(unit, run, verdict, row)
            await self._move_on(_result(run, verdict, unit.due.closed), self._queue())

    # Resuming

    async def open(self) -> None:
        """Take up a cycle that a crash or a stop left unfinished."""
        states = await self._timetable.store.load("scheduler_state")
        state = states.get(self.definition.name)
        if not isinstance(state, SchedulerState):
            return
        self.state = msgspec.structs.replace(state, resumed=state.resumed + 1)
        # Judged as of its own check: nobody was away when these slots were found due.
        self._check = Check(
            scheduler=self.definition.name,
            at=state.slot,
            now=self._clock.now(),
            up_since=state.slot if state.up_since is None else state.up_since,
            exact=self.definition.interval_s is None,
        )
        result, queue = await self._recover(state)
        done = [entry.run.service for entry in (*state.results, *((result,) if result else ()))]
        self._events.emit("cycle_resumed", scheduler=self.definition.name, slot=state.slot, done=done, left=list(queue))
        await self._move_on(result, queue)

    async def _recover(self, state: SchedulerState) -> tuple[CycleResult | None, tuple[str, ...]]:
        """What became of the run in flight: recorded just before the crash, to be repeated, or given up."""
        run, queue = state.current_run, state.services_queue
        if run is None:
            return None, queue
        row = self._timetable.row(run.service)
        if row is not None and row.last_run_id == run.id:
            return _recovered(run, row, state.current_closed), queue
        # What it had started may have outlived the node: never two copies at a time.
        await self._clock.offload(sweep_after_crash, run.id)
        lost = msgspec.structs.replace(run, outcome=Outcome.INTERRUPTED, info="interrupted by a crash")
        service = self._catalogue.get(run.service)
        if service is None or service.on_crash == "rerun":
            return CycleResult(run=lost, verdict="interrupted"), (run.service, *queue)
        closed = await self._pass_over(service, "interrupted")
        return CycleResult(run=lost, verdict="skipped", reason="interrupted", closed=closed), queue

    # Checks

    async def _wait_for_check(self) -> Check | None:
        """Sleep until the next check; None when something changed and is to be looked at anew."""
        await self._follow_clock()
        if self._unclamped:
            await self._clamp()
        now = self._clock.now()
        at, retries_only = self._plan(now)
        self.next_check = at
        if at is None or at > now:
            await self._sleep(at)
            return None
        self.next_check = None
        exact = self.definition.interval_s is None
        return Check(
            scheduler=self.definition.name,
            at=max(at, reached(now)) if exact else at,
            now=now,
            up_since=self._up_since,
            retries_only=retries_only,
            exact=exact,
        )

    async def _follow_clock(self) -> None:
        """A clock that was set moves the beat along, and the check that is being worked on."""
        if self._timetable.step:
            await self._durably(self._timetable.follow_clock)
        step = self._timetable.stepped - self._stepped
        if not step:
            return
        self._stepped += step
        self._unclamped = True
        self._tick, self._up_since = rounded(self._tick + step), rounded(self._up_since + step)
        if self._check is not None:
            at, up_since = rounded(self._check.at + step), rounded(self._check.up_since + step)
            self._check = msgspec.structs.replace(self._check, at=at, up_since=up_since)

    async def _clamp(self) -> None:
        """Put right, once and for all, what was written by a clock that went ahead of this one."""
        self._unclamped = False
        for entry in self._listed().values():
            row, timing = self._timetable.row(entry.name), self._timing(entry)
            if row is None or timing is None or entry.name in self._timetable.claims:
                continue
            clamped = clamp(row, timing, self._clock.now())
            if clamped is not row:
                self._events.emit("clock_behind", service=entry.name, was=row.next_due, planned=clamped.next_due)
                await self._durably(partial(self._timetable.save, entry.name, clamped))

    def _by_the_clock(self, unit: Unit) -> tuple[Due, ServiceTiming | None]:
        """What a run is judged by, if the clock was set while it ran."""
        step = self._timetable.stepped - unit.stepped
        if not step or unit.timing.every_s is None:
            return unit.due, unit.row
        planned, slot = rounded(unit.due.planned + step), rounded(unit.due.slot + step)
        due = msgspec.structs.replace(unit.due, planned=planned, slot=slot)
        return due, None if unit.row is None else moved(unit.row, step)

    def _plan(self, now: float) -> tuple[float | None, bool]:
        """When to look next, and whether for retries only."""
        if self.definition.paused or not self.definition.services:
            return None, False
        gates, names = self._timetable.gates, self._listed()
        away = {name for name in self._timetable.claims if name in names and self._is_held(name)}
        if self.definition.interval_s is None:
            away.update(self.definition.paused_services)
            # One that never ran is looked at at once, so that its plan is known to whoever comes after a crash.
            soonest = min((gates.get(name, now) for name in names if name not in away), default=None)
            return (None if soonest is None else rounded(max(soonest, self._spread(soonest)))), False
        tried = self._timetable.retries
        retries = [at for name, at in tried.items() if name in names and name not in away]
        sooner = list(retries)
        catching_up = [gates[name] for name in self._all_missed if name in gates and name not in {*away, *tried}]
        behind = min(catching_up, default=self._up_since)
        if behind < self._up_since and self.cycles:
            sooner.append(self._spread(behind))
        at = min(sooner, default=self._tick)
        return (at, at in retries) if at < self._tick else (self._tick, False)

    def _spread(self, due: float) -> float:
        """Runs that make up for downtime do not come all at once."""
        if due >= self._up_since or self._check is None:
            return due
        return self._check.now + CATCH_UP_S

    def _is_held(self, name: str) -> bool:
        """Whether a service is worth no look before its claim is released, which is then waited for."""
        claim = self._timetable.claims.get(name)
        if claim is None:
            return False
        row = self._timetable.row(name)
        slot_passes = self._catalogue[name].overlap == "skip" and (row is None or row.open is None)
        return claim.holder != BY_HAND or not slot_passes

    async def _sleep(self, until: float | None) -> None:
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._wake.wait())]
        names = self._listed()
        if any(name in names and self._is_held(name) for name in self._timetable.claims):
            waits.append(asyncio.ensure_future(self._timetable.released()))
        if until is not None:
            waits.append(asyncio.ensure_future(self._wait_until(until)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._wake.clear()

    async def _wait_until(self, when: float) -> None:
        """Until the wall clock shows it, or is set: what was planned by it moves along then."""
        while (left := when - self._clock.now()) > 0 and not self._timetable.step:
            if self._timetable.stepped != self._stepped:
                return
            await self._clock.sleep(min(left, self._clock.slice_s))

    async def _begin(self, check: Check) -> None:
        """Ask every service of the list whether it is due; those that are make the cycle."""
        self._check = check
        if check.at == self._tick and self.definition.interval_s is not None:
            self._tick = rounded(check.at + self.definition.interval_s)
        queue: list[str] = []
        waiting: dict[str, str] = {}
        gates, entries = self._timetable.gates, self._listed()
        for entry in [entry for name, entry in entries.items() if gates.get(name, check.at) <= check.at]:
            found = await self._ask(entry, check)
            if isinstance(found, Due):
                queue.append(entry.name)
            elif found is not None:
                waiting[entry.name] = found.reason
        if self._events.heard("checked"):
            waiting |= self._reasons(check)
        self._events.emit("checked", scheduler=self.definition.name, at=check.at, due=list(queue), waiting=waiting)
        if not queue:
            self._overrun()
            return
        self.state = SchedulerState(
            cycle=secrets.token_hex(8),
            slot=check.at,
            up_since=check.up_since,
            started=check.now,
            services_queue=tuple(queue),
        )
        await self._move_on(None, tuple(queue))

    def _reasons(self, check: Check) -> dict[str, str]:
        """Why the others are not due, for the first few of them: more than a person reads would only take time."""
        gates = self._timetable.gates
        later = (entry for name, entry in self._listed().items() if gates.get(name, check.at) > check.at)
        reasons: dict[str, str] = {}
        for entry in islice(later, REASONS):
            timing = self._timing(entry)
            if timing is not None:
                found = decide(self._catalogue[entry.name], timing, self._timetable.row(entry.name), check)
                reasons[entry.name] = found.reason
        return reasons

    async def _ask(self, entry: Scheduled, check: Check) -> Due | NotDue | None:
        """Decide about one service, and make durable what the decision changes."""
        service, timing = self._catalogue.get(entry.name), self._timing(entry)
        if service is None or timing is None:
            return None
        row = self._timetable.row(entry.name)
        if entry.name in self.definition.paused_services:
            found: Due | NotDue = _paused(service, timing, row, check)
        else:
            found = decide(service, timing, row, check)
        if isinstance(found, NotDue):
            await self._note(found)
        return found

    async def _note(self, found: NotDue) -> None:
        changed, closed = found.row, found.closed
        if closed:
            await self._durably(lambda: self._timetable.store.record(closed, ()))
        if changed is not None:
            await self._durably(lambda: self._timetable.save(found.service.name, changed))
        for slot in closed:
            self._events.emit("slot_closed", slot=slot)

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
            if isinstance(found, Unit):
                await self._write(results, queue, found.run, found.due.closed)
                if self._stopping:  # asked for meanwhile: it has not begun, and does not
                    self._timetable.release(name, found.run.id)
                    queue = (name, *queue)
                    break
                self._unit = found
                self._events.emit("service_started", scheduler=self.definition.name, run=found.run)
                return
            if found is not None:
                results.append(found)
        await self._write(results, queue, None, durable=bool(queue) or bool(results))
        if not queue:
            await self._finish()

    async def _write(
        self,
        results: list[CycleResult],
        queue: tuple[str, ...],
        run: Run | None,
        closed: tuple[Slot, ...] = (),
        *,
        durable: bool = True,
    ) -> None:
        assert self.state is not None
        self.state = state = msgspec.structs.replace(
            self.state,
            results=tuple(results),
            services_queue=queue,
            current_service=None if run is None else run.service,
            current_run=run,
            current_closed=closed,
        )
        if durable and (queue or run is not None):
            await point("before_state")
            await self._durably(lambda: self._timetable.store.save([("scheduler_state", self.definition.name, state)]))
            await point("after_state")

    async def _prepare(self, name: str) -> Unit | CycleResult | None:
        """The run of the next service, or what becomes of it instead."""
        assert self._check is not None
        entry = next((entry for entry in self.definition.services if entry.name == name), None)
        service = self._catalogue.get(name)
        if entry is None or service is None:
            return await self._passed(name, service, "removed")
        if name in self.definition.paused_services:
            return await self._passed(name, service, "paused")
        held = self._timetable.claims.get(name)
        if held is not None and service.overlap == "queue":
            await self._wait_for_release(name)
            if name in self._timetable.claims:
                return None  # broken off
        elif held is not None and not self._is_held(name):
            return await self._passed(name, service, "overlap")
        elif held is not None:
            self._events.emit("service_skipped", service=name, reason=f"claimed by {held.holder}")
            return None
        timing, row = self._timing(entry), self._timetable.row(name)
        found = None if timing is None else decide(service, timing, row, self._check)
        if timing is None or not isinstance(found, Due):
            return None  # it ran elsewhere meanwhile
        run = self._run(found)
        self._timetable.claim(name, Claim(self.definition.name, run.id, run.planned))
        return Unit(due=found, run=run, timing=timing, row=row, stepped=self._stepped)

    async def _wait_for_release(self, name: str) -> None:
        while name in self._timetable.claims and not self._broken_off:
            waits = [asyncio.ensure_future(self._timetable.released()), asyncio.ensure_future(self._wake.wait())]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
            self._wake.clear()

    async def _finish(self) -> None:
        """The ledger first, then the end of the cycle: the state row is the journal until then."""
        state = self.state
        assert state is not None
        slots = [slot for result in state.results for slot in _slots(result, self.definition.name, self._clock.now())]
        runs = [result.run for result in state.results]
        await point("before_ledger")
        await self._durably(lambda: self._timetable.store.record(slots, runs))
        await point("before_delete")
        await self._durably(lambda: self._timetable.store.save([("scheduler_state", self.definition.name, None)]))
        await point("after_delete")
        for slot in slots:
            self._events.emit("slot_closed", slot=slot)
        self.last_results, self.state = state.results, None
        self.cycles += 1
        now = self._clock.now()
        if state.resumed and self.definition.interval_s is not None:
            self._tick = rounded(now + self.definition.interval_s)
        self._overrun()
        self._events.emit(
            "cycle_done", scheduler=self.definition.name, results=state.results, took_s=now - state.started
        )

    def _overrun(self) -> None:
        """The next check is the first of its grid that lies ahead."""
        interval, now = self.definition.interval_s, self._clock.now()
        if interval is not None and self._tick <= now:
            self._tick = rounded(self._tick + interval * ((now - self._tick) // interval + 1))

    async def _give_back(self, unit: Unit, run: Run) -> None:
        """Interrupted by a stop: as after a crash, but known."""
        self._timetable.release(unit.service.name, run.id)
        self._stopping = True
        assert self.state is not None
        queue = self.state.services_queue
        if unit.service.on_crash == "rerun":
            result, queue = CycleResult(run=run, verdict="interrupted"), (unit.service.name, *queue)
        else:
            closed = await self._pass_over(unit.service, "interrupted")
            result = CycleResult(run=run, verdict="skipped", reason="interrupted", closed=closed)
        self._events.emit("service_ended", scheduler=self.definition.name, run=run, verdict="interrupted")
        await self._move_on(result, queue)

    async def _passed(self, name: str, service: Service | None, reason: str) -> CycleResult:
        """A service of the cycle that is not run after all: removed, paused, or run by hand just now."""
        assert self._check is not None
        closed = await self._pass_over(service or Service(name=name), reason)
        now = self._clock.now()
        run = Run(
            id=secrets.token_hex(8), service=name, scheduler=self.definition.name, planned=self._check.at,
            attempt=0, start=now, end=now, info=f"skipped: {reason}",
        )  # fmt: skip
        self._events.emit("service_skipped", service=name, reason=reason)
        return CycleResult(run=run, verdict="skipped", reason=reason, closed=closed)

    async def _pass_over(self, service: Service, reason: str) -> tuple[Slot, ...]:
        """Close the slot of a service without a run; -> the closed slots, for the cycle's journal."""
        assert self._check is not None
        entry = Scheduled(name=service.name)
        timing = self._timing(next((e for e in self.definition.services if e.name == service.name), entry), service)
        if timing is None:
            return ()
        row = self._timetable.row(service.name)
        if row is None:
            row = ServiceTiming(next_due=self._check.at, interval_seconds=timing.every_s)
        found = skip(service, timing, row, self._check, reason)
        await self._note(found)  # the ledger first: a crash between the two must not lose the slot
        return found.closed

    # Small things

    def _listed(self) -> dict[str, Scheduled]:
        """The services of the list that there are, in its order."""
        if self._known is None:
            self._known = {
                entry.name: entry
                for entry in self.definition.services
                if entry.name in self._catalogue and self._timing(entry) is not None
            }
            self._all_missed = [name for name in self._known if self._catalogue[name].missed == "all"]
        return self._known

    def _timing(self, entry: Scheduled, service: Service | None = None) -> Timing | None:
        if service is not None:
            return self._work_out(entry, service)
        if entry.name not in self._timings:
            self._timings[entry.name] = self._work_out(entry, self._catalogue.get(entry.name))
        return self._timings[entry.name]

    def _work_out(self, entry: Scheduled, service: Service | None) -> Timing | None:
        if service is None:
            return None
        interval_s = self.definition.interval_s
        if interval_s is None and not (entry.every_s or entry.cron or has_timing(service)):
            return None
        return timing_of(service, every_s=entry.every_s, cron=entry.cron, interval_s=interval_s)

    def _queue(self) -> tuple[str, ...]:
        return () if self.state is None else self.state.services_queue

    def _run(self, due: Due) -> Run:
        return Run(
            id=secrets.token_hex(8),
            service=due.service.name,
            scheduler=self.definition.name,
            planned=due.planned,
            attempt=due.attempt,
            start=self._clock.now(),
        )

    def _tell_ended(self, unit: Unit, run: Run, verdict: Verdict, row: ServiceTiming) -> None:
        self._events.emit(
            "service_ended",
            scheduler=self.definition.name,
            run=run,
            verdict=verdict.__struct_config__.tag,
            next_due=row.next_due,
            retry_at=row.retry_at,
            recovered=isinstance(verdict, Done) and unit.row is not None and unit.row.failures > 0,
            max_attempts=unit.service.max_attempts,
        )

    async def _durably(self, write: Callable[[], Awaitable[None]]) -> None:
        """Write, and while the store cannot, wait and try again: a result is never dropped, nothing new starts."""
        delay_s = 0.1
        while True:
            try:
                return await write()
            except NotWritten as error:
                if self._broken_off:
                    raise
                self._events.emit("store_failing", scheduler=self.definition.name, error=str(error))
                await self._clock.sleep(delay_s)
                delay_s = min(delay_s * 2, 5.0)


def has_timing(service: Service) -> bool:
    """Whether a service says itself when it runs."""
    return bool(service.every_s or service.cron or service.trigger)


def _finished(run: Run, result: Result, end: float) -> Run:
    return msgspec.structs.replace(
        run, end=end, outcome=result.outcome, info=result.info[:INFO], error=result.error, tail=result.tail
    )


def _result(run: Run, verdict: Verdict, closed: tuple[Slot, ...]) -> CycleResult:
    reason = verdict.reason if isinstance(verdict, Dead) else ""
    return CycleResult(run=run, verdict=str(verdict.__struct_config__.tag), reason=reason[:INFO], closed=closed)


def _recovered(run: Run, row: ServiceTiming, closed: tuple[Slot, ...]) -> CycleResult:
    """The timing row was written and the state row was not: the row tells the result."""
    outcome = Outcome(row.last_outcome) if row.last_outcome else Outcome.OK
    done = msgspec.structs.replace(run, end=row.last_end, outcome=outcome, info=row.last_info)
    verdict = "done" if outcome is Outcome.OK else "retry" if row.open is not None else "failed"
    return CycleResult(run=done, verdict=verdict, reason=row.last_info if verdict == "failed" else "", closed=closed)


def _slots(result: CycleResult, scheduler: str, now: float) -> list[Slot]:
    slots = list(result.closed)
    if result.verdict in ("done", "failed"):
        slots.append(
            Slot(
                service=result.run.service,
                planned=result.run.planned,
                last=result.run.planned,
                verdict=result.verdict,
                reason=result.reason,
                scheduler=scheduler,
                run=result.run.id,
                recorded=now,
            )
        )
    return slots


def _paused(service: Service, timing: Timing, row: ServiceTiming | None, check: Check) -> NotDue:
    if row is None:
        return NotDue(service=service, until=check.at, reason="paused")
    return skip(service, timing, row, check, "paused")
