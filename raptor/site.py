"""What commands work on: a state directory, with the services of its project, and the node that runs on it, if any."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from raptor.catalogue import Catalogue
from raptor.due import Check, Due, NotDue, decide, next_due, rounded
from raptor.errors import NoSuchName, NotRunning
from raptor.rows import Definition, Scheduled, SchedulerState, ServiceTiming
from raptor.timing import Timing, has_timing, timing_of
from raptor.workshop import Workshop

if TYPE_CHECKING:  # a command that only reads needs neither an event loop nor actors
    from raptor.config import Config
    from raptor.events import Events
    from raptor.ref import Ref
    from raptor.service import Service
    from raptor.state.base import Counts, Presence, Promise, Record
    from raptor.timetable import Claim


class Telling(Protocol):
    """A clock, as far as commands need one."""

    def now(self) -> float: ...


class Tables(Protocol):
    """A store, as far as looking needs one."""

    @property
    def exclusive(self) -> bool: ...

    async def load(self, table: str) -> dict[str, Record]: ...

    async def stat(self, *, now: float) -> list[Counts]: ...


class Rows(Protocol):
    """The timing of services as it is on disk, and who runs which of them now."""

    @property
    def store(self) -> Tables: ...

    @property
    def claims(self) -> Mapping[str, Claim]: ...

    @property
    def rows(self) -> dict[str, ServiceTiming]: ...

    def row(self, service: str) -> ServiceTiming | None: ...


class Records(Protocol):
    """What is known of services and schedulers: a Workshop, or a copy to look at."""

    @property
    def timetable(self) -> Rows: ...

    @property
    def catalogue(self) -> Mapping[str, Service]: ...

    @property
    def definitions(self) -> dict[str, Definition]: ...


class Live(Protocol):
    """What a running node can do beyond its records."""

    @property
    def root(self) -> Ref: ...

    @property
    def events(self) -> Events: ...

    def scheduler(self, name: str) -> Ref | None: ...

    async def unwanted(self, ids: Sequence[int]) -> None: ...

    async def new_lines(self) -> None: ...

    async def worker_status(self) -> dict[str, Any] | None: ...

    async def launch(self, definition: Definition) -> None: ...

    async def adopt(self, modules: list[str], folder: str) -> None: ...

    async def keeps(self, name: str) -> bool:
        """Whether a scheduler runs here, or waits for its restart."""
        ...

    async def halt(self, name: str, grace_s: float) -> None: ...

    async def reload(self) -> dict[str, object]: ...

    def shut_down(self, grace_s: float) -> None: ...


@dataclass
class Site:
    """Records, services, and perhaps a node."""

    path: Path
    clock: Telling
    records: Records
    config: Config
    live: Live | None = None

    @property
    def workshop(self) -> Workshop:
        """What reads the ledger, writes and runs. A command that only looks at the tables does without."""
        assert isinstance(self.records, Workshop)
        return self.records

    @property
    def is_shared(self) -> bool:
        """Whether other nodes may use the store at the same time."""
        return not self.records.timetable.store.exclusive

    @property
    def promise(self) -> Promise | None:
        """What a shared store is, and what its commits are worth."""
        from raptor.state.base import Promising

        store = self.records.timetable.store
        return store.promise if isinstance(store, Promising) else None

    @property
    def degraded(self) -> str | None:
        """Why the store does not answer this node, if that is so."""
        company = self.records.company if isinstance(self.records, Workshop) else None
        return None if company is None else company.failing

    async def refresh(self) -> None:
        """On a shared store: see what others wrote, and what they run."""
        if self.is_shared:
            from raptor.loading import look_around

            await look_around(self.workshop)

    async def nodes(self) -> list[Presence]:
        """All nodes of a shared store, as they last showed themselves."""
        return await self.workshop.timetable.store.nodes(now=self.clock.now()) if self.is_shared else []

    async def owner(self, scheduler: str) -> str | None:
        """Who runs a scheduler of a shared store: the name of a node."""
        if not self.is_shared:
            return None
        key = f"scheduler:{scheduler}"
        grant = (await self.workshop.timetable.store.holders(key)).get(key)
        names = {} if grant is None else {node.owner: node.name for node in await self.nodes()}
        return None if grant is None else names.get(grant.owner, grant.owner)

    async def load(self, table: str) -> dict[str, Record]:
        """The rows of a table, as they are on disk."""
        return await self.records.timetable.store.load(table)

    @property
    def catalogue(self) -> Catalogue:
        catalogue = self.records.catalogue
        assert isinstance(catalogue, Catalogue)
        return catalogue

    async def definitions(self) -> dict[str, Definition]:
        """Stored definitions, and those of raptor.toml that were never changed by a command."""
        found = {definition.name: definition for definition in self.config.schedulers}
        return found | self.records.definitions

    async def definition(self, name: str) -> Definition:
        definitions = await self.definitions()
        if name not in definitions:
            raise NoSuchName("scheduler", name, definitions, hint="`raptor status` lists them")
        return definitions[name]

    async def amend(self, name: str, change: Callable[[Definition], Definition]) -> Definition:
        """Change a definition as it is now, whoever else changes it at the same time."""
        from raptor.loading import learn

        store = self.workshop.timetable.store
        defined = {definition.name: definition for definition in self.config.schedulers}
        while True:
            stored = (await store.load("definitions")).get(name)
            known = stored if isinstance(stored, Definition) else defined.get(name) or Definition(name=name)
            changed = msgspec.structs.replace(change(known), version=known.version + 1)
            if await store.amend("definitions", name, stored, changed):
                learn(self.workshop, changed)
                return changed

    async def states(self) -> dict[str, SchedulerState]:
        rows = await self.load("scheduler_state")
        return {name: row for name, row in rows.items() if isinstance(row, SchedulerState)}

    def row(self, service: str) -> ServiceTiming | None:
        return self.records.timetable.row(service)

    def claim(self, service: str) -> Claim | None:
        """Who runs it now."""
        return self.records.timetable.claims.get(service)

    def check_known(self, name: str) -> None:
        """Refuse a name of which there is neither a service nor a record."""
        if name not in self.catalogue and self.row(name) is None:
            raise NoSuchName("service", name, [*self.catalogue, *self.records.timetable.rows])

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
