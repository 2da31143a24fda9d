"""The heart: take what is due, attempt it, judge the result, record the verdict."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from contextlib import suppress
from contextvars import Context, copy_context
from pathlib import Path
from typing import Any, Generic, NamedTuple

from raptor.clock import Clock
from raptor.lane import INTERRUPTED, Lane
from raptor.runners import Progress, Runner
from raptor.runners.output import RunLog
from raptor.source import Room, Source, U
from raptor.task import Again, Result

PATIENCE = 64  # lots that are let pass, at the most, before another is trusted to end as it begins
TRUST_S = 0.02  # how long one may take for that


class Logs:
    """Where the output of services goes: a file for each, or nowhere."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.progress: dict[str, Progress] = {}  # of what runs
        self._paths: dict[str, Path | None] = {}

    def progressed(self, run: str, progress: Progress) -> None:
        self.progress[run] = progress

    def path(self, service: str) -> Path | None:
        if service not in self._paths:
            self._paths[service] = None if self.folder is None else self.folder / f"{service}.log"
        return self._paths[service]

    def open(self, service: str) -> RunLog:
        return RunLog(self._paths[service] if service in self._paths else self.path(service))


class Lanes:
    """Room for so many runs at a time, each until its verdict is durable. One that fails makes the whole turn fail.

    One task goes through the runs that are to begin, for as long as none of them waits; one that does keeps that task
    to its end, and another task goes on with the rest. So whatever waits has a task of its own, as its code expects,
    and what never waits costs none.

    Where the store can look for more meanwhile (`foresees`), it is asked for as much as there will be room for once all
    has begun, if the lots before have ended as they began. Whether it will be so is told as soon as it is sure.
    """

    def __init__(self, count: int, foresees: Callable[[], bool] = lambda: False) -> None:
        self._count = count
        self._foresees = foresees
        self._sure: asyncio.Future[bool] | None = None  # whether there will be the room that was foreseen
        self._foreseen = 0
        self._until = 0.0
        self._patience = 0
        self._passed = 0  # lots that may yet pass
        self._busy = 0
        self._beginning: deque[UnitLane[Any]] = deque()
        self._leader: asyncio.Task[None] | None = None  # goes through those
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself would let them be collected
        self._recording: dict[asyncio.Future[None], int] = {}  # how many wait for each to be durable
        self._ending = 0  # of them all
        self._breakable: dict[Lane, None] = {}  # what waits, in the order of their starts, which is that of their end
        self.broken_off = False  # nothing begins any more
        self._moved: asyncio.Future[None] | None = None
        self._failed: BaseException | None = None
        self._loop = asyncio.get_running_loop()

    async def soon(self) -> Room:
        """Wait until there is room, or will be as soon as a verdict is durable, or is foreseen; -> how much."""
        while not (foreseen := self._is_trusted()) and self._room() <= 0:
            await self._wait()
        self._raise()
        if not foreseen:
            return Room(self._room())
        self._sure = self._loop.create_future()
        self._foreseen = self._room() + len(self._beginning)
        self._until = self._loop.time() + TRUST_S
        return Room(self._foreseen, self._sure)

    def _room(self) -> int:
        return self._count - self._busy + self._ending

    def _is_trusted(self) -> bool:
        return bool(self._beginning) and self._passed == 0 and self._sure is None and self._foresees()

    def _tell(self, ends: bool) -> None:
        """A lot has ended as it began, or it has not: then so many more are let pass before one is trusted again."""
        sure, self._sure = self._sure, None
        if sure is None:
            self._passed = max(0, self._passed - 1) if ends else self._passed
        elif not sure.done():
            sure.set_result(ends)
            self._patience = self._patience // 2 if ends else min(PATIENCE, 2 * self._patience + 1)
            self._passed = self._patience

    async def free(self, count: int) -> None:
        """Wait until there is room for so many."""
        while self._count - self._busy < count:
            await self._wait()
        self._raise()

    async def finish(self) -> None:
        """Wait for what runs."""
        await self.free(self._count)

    def start(self, lanes: Iterable[UnitLane[Any]]) -> None:
        before = len(self._beginning)
        self._beginning.extend(lanes)
        self._busy += len(self._beginning) - before
        self._loop.call_soon(self._begin)  # whatever comes after them is asked for first

    def record(self, recorded: asyncio.Future[None]) -> None:
        """A run is over; its lane is free when this is done."""
        self._ending += 1
        if recorded not in self._recording:
            self._recording[recorded] = 1
            recorded.add_done_callback(self._recorded)
            self._move()
        else:
            self._recording[recorded] += 1

    def shelter(self, lane: Lane) -> None:
        """The recording of its result is not broken off: half done it would be forgotten."""
        self._breakable.pop(lane, None)

    def interrupt(self) -> None:
        """Cancel what runs, and whatever would start yet; each run is recorded as interrupted."""
        self.broken_off = True
        for lane in list(self._breakable):
            lane.cancel()

    def _begin(self) -> None:
        if self._leader is None and self._beginning:
            self._lead()

    def _lead(self) -> None:
        task = self._leader = self._loop.create_task(self._go())
        self._tasks.add(task)
        task.add_done_callback(self._gone)

    async def _go(self) -> None:
        """Begin one run after another, until one of them waits."""
        task, beginning = self._leader, self._beginning
        assert task is not None
        while beginning:
            if self._sure is not None and self._loop.time() > self._until:
                self._tell(False)
                await asyncio.sleep(0)  # whoever waits for that hears of it
            context = copy_context()  # what a run sets there is its own
            lane = beginning.popleft()
            work = lane.work(task)
            try:
                waited = context.run(work.send, None)
            except StopIteration:
                if task.cancelling():  # it cancelled the task that it ran in, which shall not meet the next
                    break
                continue
            if lane.task is not None:  # its work has begun: an interruption may end it while it waits
                self._breakable[lane] = None
            self._tell(False)
            self._follow(task)
            await Rest(work, waited, context)
            return
        self._follow(task)
        if task.cancelling():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)

    def _follow(self, task: asyncio.Task[None]) -> None:
        """Another goes on from here."""
        if task is self._leader:
            self._leader = None
            if self._beginning:
                self._lead()
            else:
                self._tell(self._room() >= self._foreseen)
                self._move()

    def _gone(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._follow(task)  # it may have failed
        self._see(task)

    def _recorded(self, recorded: asyncio.Future[None]) -> None:
        count = self._recording.pop(recorded)
        self._ending -= count
        self._busy -= count
        self._see(recorded)
        self._move()

    def _see(self, over: asyncio.Future[None]) -> None:
        error = asyncio.CancelledError() if over.cancelled() else over.exception()
        if error is not None and self._failed is None:
            self._failed = error
            self._tell(False)
            self._move()

    def _move(self) -> None:
        if self._moved is not None and not self._moved.done():
            self._moved.set_result(None)

    async def _wait(self) -> None:
        """Until something has changed."""
        self._raise()
        self._moved = self._loop.create_future()
        await self._moved

    def _raise(self) -> None:
        if self._failed is not None:
            raise self._failed


class Rest:
    """What is left of work that has begun to wait, as something to await."""

    __slots__ = ("_context", "_waited", "_work")

    def __init__(self, work: Coroutine[Any, Any, None], waited: Any, context: Context) -> None:
        self._work = work
        self._waited = waited
        self._context = context

    def __await__(self) -> Generator[Any, Any, None]:
        work, waited, run = self._work, self._waited, self._context.run
        while True:
            sent, caught = None, None
            try:
                sent = yield waited
            except BaseException as error:
                caught = error
            try:
                waited = run(work.send, sent) if caught is None else run(work.throw, caught)
            except StopIteration:
                return


async def turn(source: Source[U], runners: Mapping[str, Runner], clock: Clock, lanes: Lanes, logs: Logs) -> None:
    """Until the source has no more: what is due, as far as there is room.

    It is taken while the verdicts of those before it are written, and starts when they are.
    """
    place = Place(source, runners, clock, lanes, logs)
    while (units := await source.take(await lanes.soon())) is not None:
        await lanes.free(len(units))
        lanes.start([UnitLane(place=place, unit=unit) for unit in units])
    await lanes.finish()


class Place(NamedTuple, Generic[U]):
    """Where the lanes of one turn are."""

    source: Source[U]
    runners: Mapping[str, Runner]
    clock: Clock
    lanes: Lanes
    logs: Logs


class UnitLane(Lane, Generic[U], kw_only=True, eq=False):
    """The lane of a unit, which it knows until that is recorded and no longer: nothing is left for the collector."""

    place: Place[U]
    unit: U | None
    run: str = ""

    async def work(self, task: asyncio.Task[None]) -> None:
        """One unit, from its attempt to its verdict, in a task that is its own as soon as it waits."""
        unit, result = self.unit, INTERRUPTED  # unless it comes to another end than by us
        assert unit is not None
        service, (_, runners, clock, lanes, logs) = unit.service, self.place
        context = unit.context(self, self.progressed)
        self.run = context.run_id
        if not self.cancelled and not lanes.broken_off:
            self.task = task
            try:
                if service.jitter_s:
                    await clock.sleep(service.jitter_s * clock.rng.random())
                result = await runners[service.kind].run(service, context, logs.open(service.name))
            except asyncio.CancelledError:
                pass
            finally:
                lanes.shelter(self)
                logs.progress.pop(self.run, None)
        if not self.left:
            self._record(unit, result)
        self.unit = None

    def _record(self, unit: U, result: Result) -> None:
        source, _, clock, lanes, _ = self.place
        now = clock.now()
        verdict = Again(now) if result is INTERRUPTED else unit.judge(result, now, clock.rng)
        lanes.record(source.settle(unit, result, verdict))

    def progressed(self, progress: Progress) -> None:
        self.place.logs.progressed(self.run, progress)

    def leave(self, result: Result) -> None:
        """It takes no room any more once that is recorded, and its task is left to it."""
        super().leave(result)
        unit, self.unit = self.unit, None
        if unit is not None:
            self.place.lanes.shelter(self)
            self._record(unit, result)
