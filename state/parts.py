"""What a state directory holds: its files, the tables in them, and the kind of record in each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from sqlite3 import Connection
from typing import Any, Generic, TypeVar

import msgspec

from raptor.rows import Definition, Line, SchedulerState, ServiceTiming
from raptor.state.connection import schema
from raptor.state.seal import unseal
from raptor.task import Run, Slot

T = TypeVar("T", bound=msgspec.Struct)

FORMAT = 4  # of a state directory: grows with the versions of any of its files


@dataclass(frozen=True, slots=True)
class Shelf(Generic[T]):
    """A table of sealed records; `key` is None where the record says it all."""

    table: str
    kind: type[T]
    key: str | None
    record: str
    since: int = 1  # the version of the file that brought it

    def is_in(self, connection: Connection) -> bool:
        """A file that only an older Raptor has owned lacks what came later."""
        return self.since == 1 or connection.execute("PRAGMA user_version").fetchone()[0] >= self.since

    def read(
        self, connection: Connection, rest: str = "ORDER BY rowid", arguments: tuple[object, ...] = ()
    ) -> Iterator[tuple[str, T]]:
        """Records by key. A broken one raises BrokenSeal."""
        if not self.is_in(connection):
            return iter(())
        columns = f"{self.key or repr('')}, {self.record}"
        rows = connection.execute(f"SELECT {columns} FROM {self.table} {rest}", arguments).fetchall()
        return ((key, unseal(self.table, key, text, self.kind)) for key, text in rows)

    @property
    def insert(self) -> str:
        columns = (self.record,) if self.key is None else (self.key, self.record)
        return f"INSERT INTO {self.table} ({', '.join(columns)}) VALUES ({', '.join('?' for _ in columns)})"


@dataclass(frozen=True, slots=True)
class Part:
    """One file. `checked` are the tables that are looked through at every start, `shelves` all of them."""

    shelves: tuple[Shelf[Any], ...]
    checked: int
    versions: Callable[[], tuple[str, ...]]  # one script after another makes the file

    def is_newer(self, version: int) -> bool:
        """Whether a file's version is of a Raptor to come. One that is far off is no version, but damage."""
        known = len(self.versions())
        return known < version <= known + 100


def _table(name: str, kind: type[msgspec.Struct]) -> Part:
    # sqlitedict's own form, to the letter.
    script = f'CREATE TABLE "{name}" (key TEXT PRIMARY KEY, value BLOB);'
    return Part((Shelf(name, kind, "key", "value"),), 1, lambda: (script,))


SCRIPTS = ("001.sql", "002.sql", "003.sql", "004.sql")

DEFINITIONS = Shelf("definitions", Definition, "key", "record")
LINES = Shelf("lines", Line, "key", "record", since=2)
RUNS = Shelf("run", Run, "id", "record")
SLOTS = Shelf("slot", Slot, None, "record")

# In the order in which they are written: timing before state.
PARTS: dict[str, Part] = {
    "service_timing.sqlite": _table("service_timing", ServiceTiming),
    "scheduler_state.sqlite": _table("scheduler_state", SchedulerState),
    "raptor.sqlite": Part((DEFINITIONS, LINES, RUNS, SLOTS), 2, lambda: tuple(map(schema, SCRIPTS))),
}
