"""The heart: take what is due, attempt it, judge the result, record the verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from raptor.clock import Clock
from raptor.judge import judge
from raptor.runners import Context, Progress, Runner
from raptor.runners.output import RunLog
from raptor.source import Source, Unit
from raptor.task import Again, Outcome, Result


class Logs:
    """Where the output of services goes: a file for each, or nowhere."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.progress: dict[str, Progress] = {}  # of what runs

    def progressed(self, run: str, progress: Progress) -> None:
        self.progress[run] = progress

    def path(self, service: str) -> Path | None:
        return None if self.folder is None else self.folder / f"{service}.log"

    def open(self, service: str) -> RunLog:
        return RunLog(self.path(service))


class Lanes:
    """Room for so many runs at a time. A lane that fails makes the whole turn fail."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._tasks: set[asyncio.Task[None]] = set()
        self._breakable: set[asyncio.Task[Any]] = set()
        self._broken_off = False

    async def free(self) -> int:
        """Wait until there is room; -> how much."""
        while len(self._tasks) >= self._count:
            await self._wait()
        return self._count - len(self._tasks)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(asyncio.get_running_loop().create_task(work))

    async def finish(self) -> None:
        """Wait for what runs."""
        while self._tasks:
            await self._wait()

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

    async def _wait(self) -> None:
        done, self._tasks = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()


async def turn(source: Source, runners: Mapping[str, Runner], clock: Clock, lanes: Lanes, logs: Logs) -> None:
    """Until the source has no more: what is due, as far as there is room."""
    while units := await source.take(await lanes.free()):
        for unit in units:
            lanes.start(run(source, runners, clock, unit, lanes, logs))
    await lanes.finish()


async def run(
    source: Source, runners: Mapping[str, Runner], clock: Clock, unit: Unit, lanes: Lanes, logs: Logs
) -> None:
    """One unit, from its attempt to its durable verdict."""
    result, interrupted = await attempt(runners[unit.service.kind], clock, unit, lanes, logs)
    now = clock.now()
    verdict = Again(now) if interrupted else judge(unit.due, unit.timing, result, unit.row, now=now, rng=clock.rng)
    await source.settle(unit, result, verdict)


async def attempt(runner: Runner, clock: Clock, unit: Unit, lanes: Lanes, logs: Logs) -> tuple[Result, bool]:
    """Run it; -> its result, and whether it was us who broke it off."""
    service, started = unit.service, unit.run
    context = Context(
        run_id=started.id,
        service=service.name,
        scheduler=started.scheduler,
        attempt=started.attempt,
        planned=started.planned,
        key=f"{service.name}@{started.planned:.6f}",
        on_progress=lambda progress: logs.progressed(started.id, progress),
    )
    try:
        with lanes.breakable():
            if service.jitter_s:
                await clock.sleep(service.jitter_s * clock.rng.random())
            return await runner.run(service, context, logs.open(service.name)), False
    except asyncio.CancelledError:
        return Result(outcome=Outcome.INTERRUPTED, info="interrupted"), True
    finally:
        logs.progress.pop(started.id, None)
