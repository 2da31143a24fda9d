"""The clerk: it has verdicts recorded, those that wait together in one write, and tells of each once it is durable."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from raptor.clock import Clock
from raptor.durably import Durably
from raptor.events import Events
from raptor.faults import point
from raptor.settlement import move
from raptor.task import Move, Outcome, Result, Run, Task, Verdict
from raptor.workshop import Workshop

T = TypeVar("T")


Ended: TypeAlias = tuple[Task, Result, Verdict, bool]
"""A task, what came of its run, what that means, and whether it ran at all."""


class Entry(NamedTuple):
    task: Task
    result: Result
    verdict: Verdict
    move: Move


class Clerk:
    """For one event loop."""

    def __init__(self, workshop: Workshop, clock: Clock, events: Events) -> None:
        self._workshop = workshop
        self._store = workshop.timetable.store
        self._clock = clock
        self._events = events
        self.durably = Durably("worker", clock, events)
        self._loop = asyncio.get_running_loop()
        self._page: list[Ended] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._writing: set[asyncio.Task[None]] = set()

    def enter(self, ended: Iterable[tuple[Task, Result, Verdict]], *, ran: bool = True) -> asyncio.Future[None]:
        """Have them recorded; -> when they are. A result that comes too late is refused, and noted as that."""
        if not self._waiting:
            self._loop.call_soon(self._turn_page)
        self._page += [(*one, ran) for one in ended]
        recorded: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(recorded)
        return recorded

    def tell_started(self, tasks: Sequence[Task]) -> None:
        if self._events.heard("task_started"):
            run = f"{tasks[0].id}.{tasks[0].fence}"
            for task in tasks:
                self._events.emit("task_started", id=task.id, task=task, run=run)

    def tell_turn(self, tasks: Sequence[Task], result: Result) -> None:
        """One turn of a lane is over: taken, run, recorded."""
        if self._events.heard("turn_ended"):
            took_s = self._clock.now() - (tasks[0].started or 0.0)
            self._events.emit("turn_ended", queue=tasks[0].queue, tasks=len(tasks), result=result, took_s=took_s)

    def _turn_page(self) -> None:
        page, self._page = self._page, []
        waiting, self._waiting = self._waiting, []
        writing = self._loop.create_task(self._write(page, waiting))
        self._writing.add(writing)  # the loop itself would let it be collected
        writing.add_done_callback(self._writing.discard)

    async def _write(self, ended: list[Ended], waiting: list[asyncio.Future[None]]) -> None:
        # All of them end now, not one by one: what is written alike is written together.
        now, keep_done = self._clock.now(), self._workshop.keep_done
        point("before_settle")
        try:
            page = [
                Entry(task, result, verdict, move(task, verdict, result, now, keep_done=keep_done, ran=ran))
                for task, result, verdict, ran in ended
            ]
            moves = [entry.move for entry in page]
            stale = await self.durably(lambda: self._store.settle(moves, now=now)) if moves else frozenset[int]()
        except Exception as error:
            for recorded in waiting:
                if not recorded.done():
                    recorded.set_exception(error)
            return
        finally:
            self._workshop.held.difference_update(task.id for task, *_ in ended)
        point("after_settle")
        self._tell(page, stale)
        for recorded in waiting:
            if not recorded.done():
                recorded.set_result(None)
        refused = [entry.task for entry in page if entry.task.id in stale]
        if refused:
            lines = [self._line(task) for task in refused]
            await self.durably(lambda: self._store.record((), lines))

    def _tell(self, page: list[Entry], stale: frozenset[int]) -> None:
        heard = self._events.heard("task_ended")
        for task, result, verdict, change in page:
            if task.id in stale:
                self._events.emit("result_refused", task=task, result=result)
            elif heard:
                self._events.emit(
                    "task_ended", id=task.id, state=change.state, task=task, result=result, verdict=verdict, move=change
                )

    def _line(self, task: Task) -> Run:
        """A stale result is a line of the ledger: somebody did that work, and it does not count."""
        now = self._clock.now()
        return Run(
            id=f"{task.id}.{task.fence}", service=task.service, scheduler=None, planned=task.due,
            attempt=task.attempts + 1, start=task.started or now, end=now, outcome=Outcome.INTERRUPTED,
            info="refused: its lease had lapsed and the task is another's",
        )  # fmt: skip
