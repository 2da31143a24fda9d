"""One run of a service for a test, with an output that can be waited for."""

from __future__ import annotations

import asyncio
import os
import uuid
from pathlib import Path
from typing import Any

from raptor.clock import Clock
from raptor.runners import RUNNERS, Context, Runner
from raptor.runners.output import RunLog
from raptor.service import Service
from raptor.task import Result

DEADLINE_S = 30.0


class Heard(RunLog):
    """A log that tells when something was printed."""

    def __init__(self, path: Path | None = None) -> None:
        super().__init__(path)
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()

    def write(self, data: bytes) -> None:
        super().write(data)
        self._loop.call_soon_threadsafe(self._news.set)

    async def hears(self, text: str) -> str:
        """Wait for a text; -> the output up to now."""
        async with asyncio.timeout(DEADLINE_S):
            while text not in self.tail():
                self._news.clear()
                await self._news.wait()
        return self.tail()


class Trial:
    """A service about to run once: its context, its log, its runner."""

    def __init__(self, clock: Clock, service: Service, path: Path | None = None, **context: Any) -> None:
        facts: dict[str, Any] = {"planned": clock.now(), "key": f"{service.name}@1", "run_id": uuid.uuid4().hex}
        self.service = service
        self.context = Context(service=service.name, **(facts | context))
        self.log = Heard(path)
        self.runner: Runner = RUNNERS[service.kind](clock)

    async def run(self) -> Result:
        async with asyncio.timeout(DEADLINE_S):
            return await self.runner.run(self.service, self.context, self.log)

    def start(self) -> asyncio.Task[Result]:
        return asyncio.ensure_future(self.runner.run(self.service, self.context, self.log))


async def run(clock: Clock, service: Service, path: Path | None = None, **context: Any) -> Result:
    return await Trial(clock, service, path, **context).run()


def shell(script: str, **options: Any) -> Service:
    """A command of a few words of shell."""
    return Service(name="shell", kind="command", argv=("sh", "-c", script), **options)


def alive(run_id: str) -> dict[int, str]:
    """The live processes that bear a run's id in their environment, or in their arguments; not by Raptor's own code."""
    found: dict[int, str] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        folder = Path("/proc") / name
        try:
            state = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
            words = (folder / "cmdline").read_bytes()
            if state not in "ZX" and run_id.encode() in words + (folder / "environ").read_bytes():
                found[int(name)] = words.replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
    return found


def left_behind(run_id: str) -> dict[int, str]:
    """The same, once those that were killed have had the time to go."""
    for pid in alive(run_id):
        gone(pid)
    return alive(run_id)


def gone(pid: int) -> bool:
    """Wait for the end of a process that is not ours to reap."""
    import select

    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(5000))
    finally:
        os.close(handle)
