"""The journal of a cycle: the state row while it runs, the ledger's lines, and how results become both.

The row holds whole what the ledger does not have yet, and the rest in short, so that it stays small.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from raptor.clock import Clock
from raptor.due import Check
from raptor.durably import Durably
from raptor.errors import NotWritten, RefusedState, StaleLease
from raptor.events import Events
from raptor.faults import point
from raptor.rows import INFO, CycleResult, Ended, Recorded, SchedulerState, short, told
from raptor.state.base import Right, Store
from raptor.task import Dead, Outcome, Result, Run, Slot, Verdict

WHOLE = 20  # results that the state row holds before they are recorded together

RECALLED = 1000  # runs, at most, that are looked through for the results of the last cycle


class _Flush(NamedTuple):
    """The recording of the first `length` results that is under way."""

    task: asyncio.Task[bool]
    slots: list[Slot]
    length: int


class Journal:
    """The state row of one scheduler. What is written is durable before anything goes on."""

    def __init__(
        self, scheduler: str, store: Store, clock: Clock, events: Events, rights: Callable[[], Sequence[Right]] = tuple
    ) -> None:
        self.state: SchedulerState | None = None
        self.last_results: tuple[Recorded, ...] = ()
        self.durably = Durably(scheduler, clock, events)
        self._scheduler = scheduler
        self._store = store
        self._rights = rights  # that every write carries
        self._clock = clock
        self._events = events
        self._flush: _Flush | None = None
        self._untold: list[Slot] = []  # in the ledger, and the row does not say so yet

    @property
    def queue(self) -> tuple[str, ...]:
        return () if self.state is None else self.state.services_queue

    async def resume(self) -> SchedulerState | None:
        """The row that a crash or a stop left behind."""
        states = await self.durably(lambda: self._store.load("scheduler_state"))
        state = states.get(self._scheduler)
        if not isinstance(state, SchedulerState):
            return None
        self.state = msgspec.structs.replace(state, resumed=state.resumed + 1)
        return state

    async def recall(self, count: int) -> None:
        """What the last cycle of an earlier process did, as far as the ledger tells: each service's newest run."""
        newest: dict[str, Recorded] = {}
        for run in await self.durably(lambda: self._store.history(limit=min(4 * count + 20, RECALLED))):
            if run.scheduler != self._scheduler or run.outcome is None:
                continue
            if run.service in newest:
                break  # it is of a cycle before
            newest[run.service] = told(run)
        self.last_results = tuple(reversed(newest.values()))

    def begin(self, check: Check, queue: Sequence[str]) -> None:
        self.state = SchedulerState(
            cycle=self._clock.new_id(),
            slot=check.at,
            up_since=check.up_since,
            started=check.now,
            services_queue=tuple(queue),
        )

    async def write(
        self,
        results: Sequence[CycleResult],
        queue: tuple[str, ...],
        run: Run | None,
        closed: tuple[Slot, ...] = (),
    ) -> None:
        """What has been and what comes next, in one write; a cycle with nothing left ends in `close`."""
        assert self.state is not None
        recorded, whole = await self._shorten(results, wait=run is None)
        self.state = state = msgspec.structs.replace(
            self.state,
            recorded=recorded,
            results=whole,
            services_queue=queue,
            current_service=None if run is None else run.service,
            current_run=run,
            current_closed=closed,
        )
        if queue or run is not None:
            point("before_state")
            await self.durably(lambda: self._save(state))
            point("after_state")
            self._tell()
        if run is not None and len(whole) >= WHOLE and self._flush is None:
            slots = self._slots(whole)
            task = asyncio.ensure_future(self._record(slots, [result.run for result in whole]))
            self._flush = _Flush(task, slots, len(whole))

    async def _record(self, slots: list[Slot], runs: list[Run]) -> bool:
        """Bring the ledger up to date while the next service runs; -> whether it is. If not, the row holds them on.

        After a crash before the next state row the same lines are recorded again, which changes nothing.
        """
        try:
            await self._store.record(slots, runs, rights=self._rights())
        except (NotWritten, RefusedState, StaleLease):
            return False
        return True

    async def _shorten(
        self, results: Sequence[CycleResult], *, wait: bool
    ) -> tuple[tuple[Recorded, ...], tuple[CycleResult, ...]]:
        """What the row keeps in short, since the ledger has it, and what it keeps whole."""
        assert self.state is not None
        recorded, flush = self.state.recorded, self._flush
        if flush is not None and wait:
            await asyncio.wait({flush.task})
        if flush is None or not flush.task.done():
            return recorded, tuple(results)
        self._flush = None
        if not flush.task.result():
            return recorded, tuple(results)
        self._untold += flush.slots
        return (*recorded, *map(short, results[: flush.length])), tuple(results[flush.length :])

    async def close(self) -> SchedulerState:
        """The ledger first, then the end of the cycle: the state row is the journal until then."""
        state = self.state
        assert state is not None
        slots = self._slots(state.results)
        runs = [result.run for result in state.results]
        point("before_ledger")
        await self.durably(lambda: self._store.record(slots, runs, rights=self._rights()))
        point("before_delete")
        await self.durably(lambda: self._save(None))
        point("after_delete")
        self._untold += slots
        self._tell()
        self.last_results, self.state = state.told, None
        return state

    def _slots(self, results: Sequence[CycleResult]) -> list[Slot]:
        now = self._clock.now()
        return [slot for result in results for slot in slots_of(result, self._scheduler, now)]

    def _tell(self) -> None:
        """Only when no later process would record them again: so each is told once."""
        slots, self._untold = self._untold, []
        for slot in slots:
            self._events.emit("slot_closed", slot=slot)

    async def record(self, closed: tuple[Slot, ...]) -> None:
        """Slots that no run of the cycle closes."""
        await self.durably(lambda: self._store.record(closed, (), rights=self._rights()))

    async def _save(self, state: SchedulerState | None) -> None:
        await self._store.save([("scheduler_state", self._scheduler, state)], rights=self._rights())


def finished(run: Run, result: Result, end: float) -> Run:
    return msgspec.structs.replace(
        run, end=end, outcome=result.outcome, info=result.info[:INFO], error=result.error, tail=result.tail
    )


def result_of(run: Run, verdict: Verdict, closed: tuple[Slot, ...]) -> CycleResult:
    reason = verdict.reason if isinstance(verdict, Dead) else ""
    return CycleResult(run=run, verdict=str(verdict.__struct_config__.tag), reason=reason[:INFO], closed=closed)


def recovered(run: Run, ended: Ended, closed: tuple[Slot, ...]) -> CycleResult:
    """The timing row was written and the state row was not: the row tells the result."""
    done = msgspec.structs.replace(run, end=ended.end, outcome=Outcome(ended.outcome), info=ended.info)
    reason = ended.info if ended.verdict == "failed" else ""
    return CycleResult(run=done, verdict=ended.verdict, reason=reason, closed=closed)


def slots_of(result: CycleResult, scheduler: str, now: float) -> list[Slot]:
    """The lines of the ledger that a result stands for."""
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
