"""The clerk: it has verdicts recorded, those that wait together in one write, and tells of each once it is durable."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from raptor.assignment import Assignment
from raptor.clock import Clock
from raptor.durably import Durably
from raptor.errors import NotWritten
from raptor.events import Events
from raptor.faults import point
from raptor.settlement import LAPSED, as_after_a_crash, move
from raptor.task import Ended, Move, Outcome, Result, Retry, Run, Task
from raptor.unrecorded import Unrecorded
from raptor.workshop import Workshop

WHOSE = "worker"  # there is one


class Page(NamedTuple):
    """What is written together."""

    ended: list[Ended]
    recorded: asyncio.Future[None]
    handed_in: asyncio.Future[None]  # the store was asked to write it


class Clerk:
    """For one event loop."""

    def __init__(self, workshop: Workshop, clock: Clock, events: Events) -> None:
        self._workshop = workshop
        self._store = workshop.timetable.store
        self._clock = clock
        self._events = events
        self.durably = Durably("worker", clock, events)
        self._loop = asyncio.get_running_loop()
        self._page: Page | None = None  # that is open
        self._last: Page | None = None
        self._writing: set[asyncio.Task[None]] = set()
        self._late: set[asyncio.Future[None]] = set()  # pages that could not be written at once

    def enter(self, ended: Iterable[Ended]) -> asyncio.Future[None]:
        """Have them recorded; -> when they are, with all that are written together.

        A result that comes too late is refused, and noted as that.
        """
        page = self._page
        if page is None:
            page = self._page = self._last = Page([], self._loop.create_future(), self._loop.create_future())
            self._loop.call_soon(self._turn_page)
            self._workshop.unrecorded.begin(page.recorded, WHOSE, partial(self._unrecorded, page.ended))
        page.ended.extend(ended)
        return page.recorded

    def begin_anew(self) -> None:
        """What the one before left unwritten was brought back."""
        self._workshop.unrecorded.forget(WHOSE)

    async def handed_in(self) -> None:
        """Wait until the store was asked to write what has ended: what is asked of it next shares that commit."""
        if self._last is not None and not self._last.handed_in.done():
            await self._last.handed_in

    async def caught_up(self) -> None:
        """Wait until what could not be recorded is: whoever takes more before that has more than the lanes hold."""
        while self._late:
            await asyncio.wait(self._late)

    def tell_started(self, units: Iterable[Assignment]) -> None:
        if self._events.heard("task_started"):
            for unit in units:
                for task in unit.tasks:
                    self._events.emit("task_started", id=task.id, task=task, run=unit.run)

    def tell_turns(self, units: Iterable[tuple[Assignment, Result, object]], now: float) -> None:
        """Turns of lanes are over: taken, run, recorded."""
        if self._events.heard("turn_ended"):
            for unit, result, _ in units:
                took_s, count = now - (unit.tasks[0].started or 0.0), len(unit.tasks)
                self._events.emit("turn_ended", queue=unit.queue, tasks=count, result=result, took_s=took_s)

    def _turn_page(self) -> None:
        page, self._page = self._page, None
        assert page is not None
        writing = self._loop.create_task(self._write(page))
        self._writing.add(writing)  # the loop itself would let it be collected
        writing.add_done_callback(self._writing.discard)

    async def _write(self, page: Page) -> None:
        ended, recorded, handed_in = page
        # All of them end now, not one by one: what is written alike is written together.
        now, keep_done = self._clock.now(), self._workshop.keep_done

        async def write() -> frozenset[int]:
            if not handed_in.done():
                handed_in.set_result(None)
            try:
                return await self._store.settle(moves, now=now)
            except NotWritten:
                self._late.add(recorded)
                recorded.add_done_callback(self._late.discard)
                raise

        point("before_settle")
        try:
            moves = [
                move(task, verdict, result, now, keep_done=keep_done, ran=ran) for task, result, verdict, ran in ended
            ]
            stale = await self.durably(write)
        except Exception as error:
            if not handed_in.done():
                handed_in.set_result(None)
            self._workshop.unrecorded.failed(recorded, error)
            recorded.set_exception(error)
            return
        finally:
            self._workshop.held.difference_update([(task.id, task.fence) for task, *_ in ended])
        point("after_settle")
        self._workshop.unrecorded.done(recorded)
        self._tell(ended, moves, stale)
        recorded.set_result(None)
        refused = [task for task, result, *_ in ended if task.id in stale and result is not LAPSED] if stale else []
        if refused:
            lines = [self._line(task) for task in refused]
            await self.durably(lambda: self._store.record((), lines))

    def _tell(self, page: list[Ended], moves: list[Move], stale: frozenset[int]) -> None:
        heard = self._events.heard("task_ended")
        if not heard and not stale:
            return
        for (task, result, verdict, _), change in zip(page, moves, strict=True):
            if task.id in stale:
                if result is not LAPSED:  # another node has brought it back: no work of this one
                    self._events.emit("result_refused", task=task, result=result)
            elif heard:
                self._events.emit(
                    "task_ended", id=task.id, state=change.state, task=task, result=result, verdict=verdict, move=change
                )

    def _unrecorded(self, ended: Sequence[Ended]) -> Iterator[Unrecorded]:
        now, catalogue = self._clock.now(), self._workshop.catalogue
        for task, result, *_ in ended:
            if result is not LAPSED:  # whoever begins next brings it back
                verdict = as_after_a_crash(task, catalogue.get(task.service), now)
                yield Unrecorded(
                    run=f"{task.id}.{task.fence}", service=task.service, task=task.id, outcome=result.outcome,
                    again=isinstance(verdict, Retry),
                )  # fmt: skip

    def _line(self, task: Task) -> Run:
        """A stale result is a line of the ledger: somebody did that work, and it does not count."""
        now = self._clock.now()
        return Run(
            id=f"{task.id}.{task.fence}", service=task.service, scheduler=None, planned=task.due,
            attempt=task.attempts + 1, start=task.started or now, end=now, outcome=Outcome.INTERRUPTED,
            info="refused: its lease had lapsed and the task is another's",
        )  # fmt: skip
