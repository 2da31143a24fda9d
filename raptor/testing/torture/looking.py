"""What a store has: images of it while nodes are killed, and all of it in the end."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from raptor.clock import SystemClock
from raptor.errors import RaptorError
from raptor.rows import Definition, SchedulerState, ServiceTiming
from raptor.state.base import Query, Store
from raptor.state.files import ReadStore
from raptor.state.glance import Glance
from raptor.state.home import Home
from raptor.state.opening import open_store
from raptor.testing.checker.history import Dump, Kept
from raptor.testing.torture.services import now

ALL = 10**8
ENDED = "SELECT id, state, owner FROM task WHERE state = 'taken' OR (state IN ('done', 'dead') AND ended >= ?)"
LEFT = "SELECT count(*) FROM task WHERE state IN ('ready', 'taken') AND timing IS NULL"


class Seen(NamedTuple):
    """What was there at a moment."""

    ended: tuple[int, ...] = ()  # tasks that were done or dead, without those that were seen before
    taken: tuple[str, ...] = ()  # the owner of each that was taken
    recorded: tuple[str, ...] = ()  # runs whose success is in service_timing


class Eye(Protocol):
    """Looks at a store, beside whoever uses it."""

    async def look(self, since: float) -> Seen | None:
        """What it has; `since` limits what has ended. None if it cannot be looked at now."""
        ...

    async def pending(self) -> int:
        """Tasks that have not ended, but those that repeat."""
        ...

    async def dump(self, services: Iterable[str]) -> Dump: ...


class FilesEye:
    """Of a state directory."""

    def __init__(self, home: Path) -> None:
        self._home = home

    async def look(self, since: float) -> Seen | None:
        file = self._home / "raptor.sqlite"
        try:
            with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
                rows = connection.execute(ENDED, (since,)).fetchall()
            with Glance(self._home) as glance:
                timing = await glance.load("service_timing")
        except (sqlite3.OperationalError, RaptorError):
            return None  # killed before it had made its files
        return _seen(rows, timing)

    async def pending(self) -> int:
        file = self._home / "raptor.sqlite"
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
            ((number,),) = connection.execute(LEFT).fetchall()
        return int(number)

    async def dump(self, services: Iterable[str]) -> Dump:
        home = Home.read(self._home)
        store = ReadStore(home)
        try:
            return await _dump(store, services)
        finally:
            await store.close()
            home.close()


class PostgresEye:
    """Of a store on PostgreSQL."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._clock = SystemClock()

    async def look(self, since: float) -> Seen | None:
        found = await self._ask(
            ENDED.replace("ended >= ?", "ended >= to_timestamp(%s)"),
            "SELECT key, record::text FROM record WHERE kind = 'service_timing'",
            values=(since,),
        )
        if found is None:
            return None
        rows, records = found
        return _seen(rows, {key: msgspec.json.decode(text, type=ServiceTiming) for key, text in records})

    async def pending(self) -> int:
        found = await self._ask(LEFT)
        return 1 if found is None else int(found[0][0][0])

    async def dump(self, services: Iterable[str]) -> Dump:
        async with open_store(self._address, SystemClock()) as store:
            return await _dump(store, services)

    async def _ask(self, *queries: str, values: tuple[object, ...] = ()) -> list[list[tuple[Any, ...]]] | None:
        """The rows of each, the first with values; None while the server does not answer, or has no such schema."""
        return await self._clock.offload(self._fetch, queries, values)

    def _fetch(self, queries: Sequence[str], values: tuple[object, ...]) -> list[list[tuple[Any, ...]]] | None:
        import psycopg

        from raptor.state.postgres.address import read

        where = read(self._address)
        try:
            with psycopg.connect(where.url, options=f"-c search_path={where.schema}") as connection:
                return [
                    connection.execute(query.encode(), values if "%s" in query else None).fetchall()
                    for query in queries
                ]
        except (psycopg.OperationalError, psycopg.errors.UndefinedTable):
            return None


def _seen(rows: Iterable[tuple[Any, ...]], timing: dict[str, Any]) -> Seen:
    ended, taken = list[int](), list[str]()
    for id, state, owner in rows:
        if state == "taken":
            taken.append(str(owner))
        else:
            ended.append(int(id))
    done = (row for row in timing.values() if isinstance(row, ServiceTiming) and row.last_outcome == "ok")
    return Seen(tuple(ended), tuple(taken), tuple(row.last_run_id for row in done if row.last_run_id is not None))


async def _dump(store: Store, services: Iterable[str]) -> Dump:
    tables = {table: await store.load(table) for table in ("service_timing", "scheduler_state", "definitions")}
    slots = [slot for name in services for slot in await store.slots(name, since=0.0, until=1e12, limit=ALL)]
    return Dump(
        at=now(),
        tasks=tuple(map(Kept.of, await store.find(Query(limit=ALL)))),
        timing={k: row for k, row in tables["service_timing"].items() if isinstance(row, ServiceTiming)},
        states={k: row for k, row in tables["scheduler_state"].items() if isinstance(row, SchedulerState)},
        definitions={k: row for k, row in tables["definitions"].items() if isinstance(row, Definition)},
        slots=tuple(slots),
        runs=tuple(await store.history(limit=ALL)),
    )
