"""Performing a command that only looks at the tables: without an event loop, a lock, or the engine."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from raptor.commands import perform
from raptor.rows import Definition, ServiceTiming
from raptor.site import Site
from raptor.state.glance import Glance
from raptor.wall import WallClock

if TYPE_CHECKING:
    from raptor.config import Config
    from raptor.service import Given, Service
    from raptor.timetable import Claim

T = TypeVar("T")


@dataclass(frozen=True)
class Copy:
    """Records as they were found on disk. Nothing runs, so nobody holds a claim."""

    store: Glance
    rows: dict[str, ServiceTiming]
    definitions: dict[str, Definition]
    catalogue: Mapping[str, Service]
    claims: Mapping[str, Claim] = field(default_factory=dict[str, "Claim"])

    @property
    def timetable(self) -> Copy:
        return self

    def row(self, service: str) -> ServiceTiming | None:
        return self.rows.get(service)


def look(config: Config, services: list[Given], command: str, params: dict[str, Any]) -> dict[str, Any]:
    """Perform a command of the kind "look"."""
    with Glance(config.home) as store:
        return finish(_look(store, config, services, command, params))


async def _look(
    store: Glance, config: Config, services: list[Given], command: str, params: dict[str, Any]
) -> dict[str, Any]:
    rows, stored = await store.load("service_timing"), await store.load("definitions")
    copy = Copy(
        store=store,
        rows={name: row for name, row in rows.items() if isinstance(row, ServiceTiming)},
        definitions={name: row for name, row in stored.items() if isinstance(row, Definition)},
        catalogue=config.catalogue(services),
    )
    return await perform(Site(config.home, WallClock(), copy, config), command, params)


def finish(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine that never waits comes to, without an event loop."""
    try:
        work.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    work.close()
    raise RuntimeError("a command that only looks must not wait: it needs `read` in the table of commands")
