"""The heart: take what is due, attempt it, judge the result, record the verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from raptor.clock import Clock
from raptor.runners import Context, Progress, Runner
from raptor.runners.output import RunLog
from raptor.source import Source, U, Unit
from raptor.task import Again, Outcome, Result


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
        self._breakable: set[asyncio.Task[Any]] = set()
        self._broken_off = False
        self._ended: asyncio.Future[None] | None = None
        self._failed: asyncio.Task[None] | None = None

    async def free(self) -> int:
        """Wait until there is room; -> how much."""
        await self._wait_for(self._count - 1)
        return self._count - len(self._tasks)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end)

    async def finish(self) -> None:
        """Wait for what runs."""
        await self._wait_for(0)

    @contextmanager
    def breakable(self) -> Generator[None]:
        """Work that an interruption ends. The recording of its result is not: half done it would be forgotten."""
        task = asyncio.current_task()
        assert task is not None
        if self._broken_off:
            raise asyncio.CancelledError
        self._breakable.add(task)
        try:
            yield
        finally:
            self._breakable.discard(task)

    def interrupt(self) -> None:
        """Cancel what runs, and whatever would start yet; each run is recorded as interrupted."""
        self._broken_off = True
        for task in self._breakable:
            task.cancel()

    async def _wait_for(self, count: int) -> None:
        """Until no more than so many run. Not with asyncio.wait, which looks at all of them each time."""
        while len(self._tasks) > count and self._failed is None:
            self._ended = asyncio.get_running_loop().create_future()
            await self._ended
        if self._failed is not None:
            self._failed.result()

    def _end(self, task: asyncio.Task[None]) -> None:
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
            lanes.start(run(source, runners, clock, unit, lanes, logs))
    await lanes.finish()


async def run(
    source: Source[U], runners: Mapping[str, Runner], clock: Clock, unit: U, lanes: Lanes, logs: Logs
) -> None:
    """One unit, from its attempt to its durable verdict."""
    result, interrupted = await attempt(runners[unit.service.kind], clock, unit, lanes, logs)
    now = clock.now()
    verdict = Again(now) if interrupted else unit.judge(result, now, clock.rng)
    await source.settle(unit, result, verdict)


async def attempt(runner: Runner, clock: Clock, unit: Unit, lanes: Lanes, logs: Logs) -> tuple[Result, bool]:
    """Run it; -> its result, and whether it was us who broke it off."""
    service = unit.service
    context: Context = unit.context(lambda progress: logs.progressed(context.run_id, progress))
    try:
        with lanes.breakable():
            if service.jitter_s:
                await clock.sleep(service.jitter_s * clock.rng.random())
            return await runner.run(service, context, logs.open(service.name)), False
    except asyncio.CancelledError:
        return Result(outcome=Outcome.INTERRUPTED, info="interrupted"), True
    finally:
        logs.progress.pop(context.run_id, None)
