"""The heart: take what is due, attempt it, judge the result, record the verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, Generic

from raptor.clock import Clock
from raptor.lane import INTERRUPTED, Lane
from raptor.runners import Progress, Runner
from raptor.runners.output import RunLog
from raptor.source import Source, U
from raptor.task import Again, Result


class Logs:
    """Where the output of services goes: a file for each, or nowhere."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.progress: dict[str, Progress] = {}  # of what runs
        self._paths: dict[str, Path] = {}

    def progressed(self, run: str, progress: Progress) -> None:
        self.progress[run] = progress

    def path(self, service: str) -> Path | None:
        if self.folder is None:
            return None
        if service not in self._paths:
            self._paths[service] = self.folder / f"{service}.log"
        return self._paths[service]

    def open(self, service: str) -> RunLog:
        return RunLog(self.path(service))


class Lanes:
    """Room for so many runs at a time. A lane that fails makes the whole turn fail."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._tasks: set[asyncio.Task[None]] = set()
        self._breakable: set[Lane] = set()
        self._broken_off = False
        self._ended: asyncio.Future[None] | None = None
        self._failed: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    async def free(self) -> int:
        """Wait until there is room; -> how much."""
        await self._wait_for(self._count - 1)
        return self._count - len(self._tasks)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end)
        return task

    async def finish(self) -> None:
        """Wait for what runs."""
        await self._wait_for(0)

    def expose(self, lane: Lane) -> None:
        """From here on an interruption ends this lane's work."""
        if self._broken_off:
            raise asyncio.CancelledError
        self._breakable.add(lane)

    def shelter(self, lane: Lane) -> None:
        """The recording of its result is not broken off: half done it would be forgotten."""
        self._breakable.discard(lane)

    def forget(self, lane: Lane) -> None:
        """Its work was left behind, and takes no room any more."""
        self._breakable.discard(lane)
        if lane.task is not None:
            self._tasks.discard(lane.task)

    def interrupt(self) -> None:
        """Cancel what runs, and whatever would start yet; each run is recorded as interrupted."""
        self._broken_off = True
        for lane in list(self._breakable):
            lane.cancel()

    async def _wait_for(self, count: int) -> None:
        """Until no more than so many run. Not with asyncio.wait, which looks at all of them each time."""
        while len(self._tasks) > count and self._failed is None:
            self._ended = self._loop.create_future()
            await self._ended
        if self._failed is not None:
            self._failed.result()

    def _end(self, task: asyncio.Task[None]) -> None:
        if task not in self._tasks:
            return  # left behind
        self._tasks.discard(task)
        failed = task.cancelled() or task.exception() is not None  # of each: asyncio complains of one never looked at
        if failed and self._failed is None:
            self._failed = task
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)


async def turn(source: Source[U], runners: Mapping[str, Runner], clock: Clock, lanes: Lanes, logs: Logs) -> None:
    """Until the source has no more: what is due, as far as there is room."""
    while units := await source.take(await lanes.free()):
        for unit in units:
            lane = UnitLane(source, clock, unit, lanes, logs)
            lane.task = lanes.start(lane.work(runners[unit.service.kind]))
    await lanes.finish()


class UnitLane(Lane, Generic[U]):
    """The lane of a unit, which it knows until that is recorded and no longer: nothing is left for the collector."""

    __slots__ = ("_clock", "_lanes", "_logs", "_run", "_source", "_unit")

    def __init__(self, source: Source[U], clock: Clock, unit: U, lanes: Lanes, logs: Logs) -> None:
        self.task = None
        self.cancelled = self.left = False
        self.insist = None
        self._source = source
        self._clock = clock
        self._unit: U | None = unit
        self._lanes = lanes
        self._logs = logs
        self._run = ""

    async def work(self, runner: Runner) -> None:
        """One unit, from its attempt to its durable verdict."""
        unit = self._unit
        assert unit is not None
        result = await self._attempt(runner, unit)
        if not self.left:
            await self._record(unit, result)
        self._unit = None

    async def _attempt(self, runner: Runner, unit: U) -> Result:
        """Run it; -> its result, which is INTERRUPTED if it was us who broke it off."""
        service, logs = unit.service, self._logs
        context = unit.context(self, self.progressed)
        self._run = context.run_id
        try:
            self._lanes.expose(self)
            if service.jitter_s:
                await self._clock.sleep(service.jitter_s * self._clock.rng.random())
            return await runner.run(service, context, logs.open(service.name))
        except asyncio.CancelledError:
            return INTERRUPTED
        finally:
            self._lanes.shelter(self)
            logs.progress.pop(self._run, None)

    async def _record(self, unit: U, result: Result) -> None:
        now = self._clock.now()
        verdict = Again(now) if result is INTERRUPTED else unit.judge(result, now, self._clock.rng)
        await self._source.settle(unit, result, verdict)

    def progressed(self, progress: Progress) -> None:
        self._logs.progressed(self._run, progress)

    def leave(self, result: Result) -> None:
        """Another lane records what became of it."""
        super().leave(result)
        unit, self._unit = self._unit, None
        if unit is not None:
            self._lanes.forget(self)
            self._lanes.start(self._record(unit, result))
