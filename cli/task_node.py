"""The node of `raptor work`: it turns queues, and leaves schedulers alone."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass

import msgspec

from raptor import __version__
from raptor.cli.foreground import Foreground, Life, Wanted, place_of
from raptor.cli.session import Session
from raptor.cli.task_work import has_work, of
from raptor.clock import SystemClock
from raptor.errors import RaptorError, did_you_mean
from raptor.rows import Definition
from raptor.timetable import Timetable
from raptor.watchdog import Watch

PAUSE_S = 0.05  # between two looks of a burst


@dataclass(frozen=True, kw_only=True)
class Work(Wanted):
    """What `work` was asked for."""

    name: str | None = None
    interval: str | None = None
    interval_s: float | None = None
    burst: bool = False  # end when nothing is due any more


class WorkNode(Foreground):
    """A node that starts no scheduler. What an unclean end cut off is left to the next `start`."""

    async def _opened(self, timetable: Timetable) -> None:
        await super()._opened(timetable)
        for name in self.back:
            definition = self._workshop.definitions.get(name)
            if definition is not None:
                # Not on disk: there it still says that it should come back.
                self._workshop.definitions[name] = msgspec.structs.replace(definition, should_run=False)

    async def _prepare(self, definitions: dict[str, Definition]) -> None:
        return None

    async def launch(self, definition: Definition) -> None:
        if definition.name in self.back:
            self.back.remove(definition.name)
        await super().launch(definition)


class WorkLife(Life):
    """One such node from its start to its end."""

    def __init__(self, session: Session, wanted: Work) -> None:
        super().__init__(session, wanted)
        self._burst = wanted.burst

    def _make(self, watch: Watch) -> Foreground:
        return WorkNode(self._wanted, self._session, self._hear, watch)

    def _header(self) -> str:
        settings = self._node.config.worker
        queues = f"queue{'s' * (len(settings.queues) > 1)} {', '.join(settings.queues)}"
        room = "one task at a time" if settings.processors == 1 else f"{settings.processors} tasks at a time"
        parts = [f"raptor {__version__}", queues if settings.queues else "all queues", room]
        return " · ".join([*parts, place_of(self._node), f"pid {os.getpid()}"])

    def _remarks(self) -> list[str]:
        node, left = self._node, self._node.back
        known = {*node._workshop.lines, *(service.queue for service in node.site.catalogue.values())}
        strange = [name for name in node.config.worker.queues if name not in known]
        said = [f"! no service is on queue {name}. {did_you_mean(name, known)}".strip() for name in strange]
        if left:
            said.append(
                f"! cut off by an unclean end, and left so: {', '.join(left)}; raptor start {left[0]} takes it up"
            )
        return said

    async def _end_if_idle(self) -> None:
        """Schedulers come and go; the queues are what it is here for."""

    async def _wait(self, node: Foreground) -> bool:
        if not self._burst:
            return await super()._wait(node)
        looking = asyncio.ensure_future(self._until_idle())
        try:
            return await super()._wait(node)
        finally:
            looking.cancel()

    async def _until_idle(self) -> None:
        """Until nothing runs, and nothing is due in any queue that is not held."""
        while await self._is_busy():
            await asyncio.sleep(PAUSE_S)
        self._over.set()

    async def _is_busy(self) -> bool:
        worker = self._node.runtime.whereis("worker")
        try:
            if worker is None or (await worker.call("status"))["running"]:
                return True
            found = (await self._node.call("queues"))["queues"]
        except RaptorError:
            return True  # it is being restarted
        return has_work(of(self._node.config.worker.queues, found))

    def _say_stopped(self, names: list[str], gave_up: bool) -> int:
        code = super()._say_stopped(names, gave_up)
        return 1 if code == 0 and self._burst and self._tally.ended["dead"] else code


def work(session: Session, wanted: Work) -> int:
    """Run a node for queues until it is told to stop, or has no more to do; -> the exit code."""
    return SystemClock().run(lambda: WorkLife(session, wanted).run())
