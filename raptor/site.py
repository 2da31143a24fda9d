"""What commands work on: a state directory, with the services of its project, and the node that runs on it, if any."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from raptor.clock import Clock
from raptor.config import Config
from raptor.due import Check, Due, NotDue, decide, next_due, rounded
from raptor.errors import NoSuchName, NotRunning
from raptor.ref import Ref
from raptor.rows import Definition, Scheduled, SchedulerState, ServiceTiming
from raptor.scheduler import Workshop
from raptor.service import Catalogue, Service
from raptor.source import has_timing
from raptor.timing import Timing, timing_of


class Live(Protocol):
    """What a running node can do beyond its records."""

    @property
    def root(self) -> Ref: ...

    def scheduler(self, name: str) -> Ref | None: ...

    async def launch(self, definition: Definition) -> None: ...

    async def adopt(self, modules: list[str], folder: str) -> None: ...

    async def halt(self, name: str, grace_s: float) -> None: ...

    async def reload(self) -> dict[str, object]: ...

    def shut_down(self, grace_s: float) -> None: ...


@dataclass
class Site:
    """Records, services, and perhaps a node."""

    path: Path
    clock: Clock
    workshop: Workshop
    config: Config
    live: Live | None = None

    @property
    def catalogue(self) -> Catalogue:
        catalogue = self.workshop.catalogue
        assert isinstance(catalogue, Catalogue)
        return catalogue

    async def definitions(self) -> dict[str, Definition]:
        """Stored definitions, and those of raptor.toml that were never changed by a command."""
        found = {definition.name: definition for definition in self.config.schedulers}
        return found | self.workshop.definitions

    async def definition(self, name: str) -> Definition:
        definitions = await self.definitions()
        if name not in definitions:
            raise NoSuchName("scheduler", name, definitions, hint="`raptor status` lists them")
        return definitions[name]

    async def define(self, definition: Definition) -> None:
        await self.workshop.timetable.store.save([("definitions", definition.name, definition)])
        self.workshop.definitions[definition.name] = definition

    async def states(self) -> dict[str, SchedulerState]:
        rows = await self.workshop.timetable.store.load("scheduler_state")
        return {name: row for name, row in rows.items() if isinstance(row, SchedulerState)}

    def row(self, service: str) -> ServiceTiming | None:
        return self.workshop.timetable.row(service)

    def timing(self, definition: Definition | None, entry: Scheduled) -> Timing | None:
        """When a service runs; None when nothing says so."""
        service = self.catalogue.get(entry.name)
        interval_s = None if definition is None else definition.interval_s
        if service is None or (interval_s is None and not (entry.every_s or entry.cron or has_timing(service))):
            return None
        return timing_of(service, every_s=entry.every_s, cron=entry.cron, interval_s=interval_s)

    def outlook(self, definition: Definition, entry: Scheduled) -> Due | NotDue | None:
        """What a check would say of a service now."""
        service, timing = self.catalogue.get(entry.name), self.timing(definition, entry)
        if service is None or timing is None:
            return None
        now = rounded(self.clock.now())
        up_since = now if self.live is None else 0.0
        exact = definition.interval_s is None
        check = Check(scheduler=definition.name, at=now, now=now, up_since=up_since, exact=exact)
        return decide(service, timing, self.row(entry.name), check)

    def next_due(self, service: Service, timing: Timing) -> float:
        return next_due(service, timing, self.row(service.name), self.clock.now())

    def need_live(self) -> Live:
        if self.live is None:
            raise NotRunning()
        return self.live
