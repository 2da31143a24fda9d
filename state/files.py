"""The store of one node: the two tables and raptor.sqlite, in a state directory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from sqlite3 import Connection
from typing import Any, NoReturn, TypeVar, cast

from raptor.errors import NotWritten, RefusedState
from raptor.rows import SchedulerState, ServiceTiming
from raptor.state import sqlite
from raptor.state.anchor import Heads
from raptor.state.base import Record, Right
from raptor.state.bells import Bells
from raptor.state.commits import Answer, Work
from raptor.state.connection import reading
from raptor.state.damage import blaming
from raptor.state.front import Front, Server
from raptor.state.home import Home
from raptor.state.news import News
from raptor.state.parts import PARTS
from raptor.state.reserve import Reserve
from raptor.state.rights import KeepsRights, Rights, RightsToRead
from raptor.state.sqlite import Database
from raptor.state.tables import Table
from raptor.state.verbs import TasksToOwn, TasksToRead
from raptor.task import Run, Slot

T = TypeVar("T")

FILES = {shelf.table: name for name, part in PARTS.items() for shelf in part.shelves}
TASKS_SINCE = 2  # the version of raptor.sqlite
SHELVES = {shelf.table: shelf for part in PARTS.values() for shelf in part.shelves}


class ReadStore(TasksToRead, RightsToRead):
    """A store that only reads, beside a running node or without one."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self._connections: dict[str, Connection] = {}
        server = Server("reader", self._serve, self._close)
        server.start()
        self._reader: Front[None] = Front(home.path, server.put)

    @property
    def sequence(self) -> int:
        return 0

    async def load(self, table: str) -> dict[str, Record]:
        return await self._read(FILES[table], lambda connection: dict(SHELVES[table].read(connection)), {})

    async def history(
        self,
        service: str | None = None,
        *,
        since: float | None = None,
        until: float | None = None,
        failed: bool = False,
        limit: int = 100,
    ) -> list[Run]:
        def read(connection: Connection) -> list[Run]:
            return sqlite.history(connection, service, since=since, until=until, failed=failed, limit=limit)

        return await self._read(FILES["run"], read, [])

    async def slots(self, service: str, *, since: float, until: float, limit: int = 1000) -> list[Slot]:
        def read(connection: Connection) -> list[Slot]:
            return sqlite.slots(connection, service, since=since, until=until, limit=limit)

        return await self._read(FILES["slot"], read, [])

    async def save(self, changes: Sequence[tuple[str, str, Record | None]], *, rights: Sequence[Right] = ()) -> None:
        self._refuse()

    async def amend(self, table: str, key: str, seen: Record | None, record: Record) -> bool:
        self._refuse()

    async def record(self, slots: Iterable[Slot], runs: Iterable[Run], *, rights: Sequence[Right] = ()) -> None:
        self._refuse()

    async def prune(self, *, before: float, keep: int) -> int:
        self._refuse()

    async def close(self) -> None:
        await self._reader.close()

    async def _look(self, read: Callable[[Connection], T], nothing: T) -> T:
        def do(connection: Connection) -> T:
            # A file that no newer Raptor has opened as its owner yet has no tasks.
            is_old = connection.execute("PRAGMA user_version").fetchone()[0] < TASKS_SINCE
            return nothing if is_old else read(connection)

        return await self._read("raptor.sqlite", do, nothing)

    async def _read(self, name: str, read: Callable[[Connection], T], nothing: T) -> T:
        path = self.home.path / name

        def do(_: None) -> T:
            if name not in self._connections:
                if not self.home.holds(name):
                    return nothing
                self._connections[name] = reading(path)
            return read(self._connections[name])

        with blaming(path):
            return await self._reader.ask(do)

    def _serve(self, works: Sequence[Work[None]]) -> list[Answer]:
        return [_try(work) for work in works]

    def _close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def _refuse(self) -> NoReturn:
        raise RefusedState("closed", self.home.path, "was opened to be read only", "open it as its owner")


class FileStore(TasksToOwn, KeepsRights, ReadStore):
    """The store of the directory's owner. Making it opens the files, and blocks for a moment."""

    def __init__(self, home: Home) -> None:
        if not home.owned:
            raise RefusedState("closed", home.path, "was opened to be read only", "open it as its owner")
        self.home = home
        floors = home.floors()
        self._heads, self._reserve = Heads(home.path, floors), Reserve(home.path)
        self._open: dict[str, Table[Any] | Database] = {}
        try:
            for name in PARTS:
                self._open[name] = self._part(home.path / name, home.state, floors[name])
            home.anchor(self._sequences(), clean=False)
        except BaseException:
            for part in self._open.values():
                part.close()
            self._heads.close()
            raise
        self._closed = False
        self._database = cast("Database", self._open["raptor.sqlite"])
        self._bells, self._news, self._rights = Bells(), News(), Rights()
        self._amending = asyncio.Lock()
        super().__init__(home)

    @property
    def sequence(self) -> int:
        return sum(self._sequences().values())

    async def save(self, changes: Sequence[tuple[str, str, Record | None]], *, rights: Sequence[Right] = ()) -> None:
        self._rights.check(rights)  # the directory lock keeps others out: nothing can change before it is written
        # Neighbours in one file share a commit: none of them is there without those before it.
        for table, group in groupby(changes, key=itemgetter(0)):
            rows = [(key, record) for _, key, record in group]
            part: Any = self._open[FILES[table]]
            if FILES[table] == "raptor.sqlite":
                await part.change(table, rows)
            else:
                await part.change(rows, result=not any(_starts(record) for _, record in rows))
        self._news.tell((table, key) for table, key, _ in changes)

    async def amend(self, table: str, key: str, seen: Record | None, record: Record) -> bool:
        async with self._amending:  # the directory lock keeps other processes out
            if (await self.load(table)).get(key) != seen:
                return False
            await self.save([(table, key, record)])
            return True

    async def record(self, slots: Iterable[Slot], runs: Iterable[Run], *, rights: Sequence[Right] = ()) -> None:
        self._rights.check(rights)
        await self._database.record(slots, runs)

    async def prune(self, *, before: float, keep: int) -> int:
        return await self._database.prune(before=before, keep=keep)

    async def checkpoint(self) -> None:
        """Make it known how far the files are, so that an older one is noticed even after a power cut."""
        await self._database.between(lambda: self.home.anchor(self._sequences(), clean=False))

    async def close(self) -> None:
        """Close every file; the directory is still owned."""
        if self._closed:
            return
        self._closed = True
        await super().close()
        for name in ("service_timing.sqlite", "scheduler_state.sqlite"):
            await self._open[name].shut()
        try:
            if all(part.commits.whole for part in self._open.values()):
                await self._database.between(lambda: self.home.anchor(self._sequences(), clean=True))
        except NotWritten:
            pass  # it will look like an unclean end, which loses nothing
        await self._database.shut()
        self._heads.close()

    def _sequences(self) -> dict[str, int]:
        return {name: part.commits.sequence for name, part in self._open.items()}

    def _part(self, path: Path, state: str, floor: int) -> Table[Any] | Database:
        told = self._heads.teller(path.name)
        match path.stem:
            case "service_timing":
                return Table(path, ServiceTiming, state=state, floor=floor, told=told, reserve=self._reserve)
            case "scheduler_state":
                return Table(path, SchedulerState, state=state, floor=floor, told=told, reserve=self._reserve)
            case _:
                clock = self.home.clock
                assert clock is not None
                return Database(
                    path, state=state, floor=floor, told=told, reserve=self._reserve, monotonic=clock.monotonic
                )


def _starts(record: Record | None) -> bool:
    """Whether writing it lets a run begin."""
    return isinstance(record, SchedulerState) and record.current_run is not None


def _try(work: Work[None]) -> Answer:
    try:
        return Answer(*work.do(None, [work.given]))
    except BaseException as caught:  # somebody waits for it
        return Answer(error=caught)
