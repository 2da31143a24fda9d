"""What others change on a shared store: this node hears of it, and passes it on to whom it concerns."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from raptor.actor import IGNORE, Actor, Stop
from raptor.durably import Durably
from raptor.errors import ActorDied, NoSuchActor
from raptor.exits import Reason
from raptor.loading import load_definitions, load_lines
from raptor.rows import Definition
from raptor.scheduler import Redefine
from raptor.site import Site
from raptor.timetable import ELSEWHERE
from raptor.turning import Finish
from raptor.workshop import Workshop

ANYTHING = ("", "")


class Hearing(Actor):
    """Listens in a task of its own. On a store of one process there is nobody to hear of."""

    def init(self, workshop: Workshop, site: Site) -> Any:
        if workshop.timetable.store.exclusive:
            return IGNORE
        self._workshop = workshop
        self._site = site
        self._live = site.need_live()
        self._durably = Durably("news", self.runtime.clock, self.runtime.events)
        self._watch = workshop.timetable.store.watch()
        self._listening = self.runtime.create_task(self._listen())
        self._listening.add_done_callback(self._over)
        return None

    def _over(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self.ref.send(task.exception())

    def handle_info(self, message: Any) -> Any:
        return Stop(message) if isinstance(message, BaseException) else super().handle_info(message)

    async def _listen(self) -> None:
        while True:
            news = await self._durably(self._watch.ring)
            await self._durably(lambda: self._pass_on(news))  # noqa: B023  # it is awaited here

    async def _pass_on(self, news: frozenset[tuple[str, str]]) -> None:
        anything = ANYTHING in news
        keys: dict[str, set[str]] = {}
        for table, key in news:
            keys.setdefault(table, set()).add(key)
        if anything or "service_timing" in keys:
            self._hear_timing(None if anything else keys["service_timing"])
        if anything or "definitions" in keys:
            await self._workshop.timetable.load()  # a service may have been made due, or given another timing
            known = dict(self._workshop.definitions)
            await load_definitions(self._workshop)
            for name, definition in list(self._workshop.definitions.items()):
                if name in keys.get("definitions", ()) or definition != known.get(name):
                    await self._redefine(name, known.get(name))
        if anything or "lines" in keys:
            await load_lines(self._workshop, self._site.config.queues)
            await self._live.new_lines()
        if "unwanted" in keys:
            await self._live.unwanted([int(id) for id in keys["unwanted"]])

    async def _redefine(self, name: str, before: Definition | None) -> None:
        """A scheduler was defined anew, here or elsewhere: one that should not run any more ends, on every node."""
        ref, definition = self._live.scheduler(name), self._workshop.definitions[name]
        if ref is None:
            if not definition.should_run:
                await self._leave(name)
            return
        if not definition.should_run:
            self._workshop.asked.discard(name)
            ref.cast(Finish(definition.grace_s))
            return
        look_now = before is not None and before.services != definition.services
        with suppress(NoSuchActor, ActorDied):  # it ends just now
            await ref.call(Redefine(definition, look_now=look_now))

    async def _leave(self, name: str) -> None:
        """One that waits for its restart does not come back, unless somebody starts it just now."""
        if await self._live.keeps(name) and not (definition := self._workshop.definitions[name]).should_run:
            self._workshop.asked.discard(name)
            await self._live.halt(name, definition.grace_s)

    def _hear_timing(self, services: set[str] | None) -> None:
        """Rows are read again when they are needed; who waits for a service that ran elsewhere looks again."""
        timetable = self._workshop.timetable
        timetable.is_stale = True
        for service, claim in list(timetable.claims.items()):
            if claim.holder == ELSEWHERE and (services is None or service in services):
                timetable.release(service, claim.run)

    async def terminate(self, reason: Reason) -> None:
        self._listening.cancel()
        self._watch.close()
