"""The tables of a state directory for a program without an event loop, beside a running node or without one."""

from __future__ import annotations

from pathlib import Path
from sqlite3 import Connection
from types import TracebackType
from typing import TYPE_CHECKING, Self

from raptor.state import tasks
from raptor.state.connection import reading
from raptor.state.damage import blaming
from raptor.state.home import Home
from raptor.state.parts import LINES, PARTS

if TYPE_CHECKING:
    from raptor.state.base import Counts, Record

TASKS = "raptor.sqlite"


class Glance:
    """A store that only loads. Its coroutine never waits, and blocks for as long as SQLite reads."""

    exclusive = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self._home = home_at(path)
        self._connections: dict[str, Connection] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._connections.values():
            connection.close()

    async def load(self, table: str) -> dict[str, Record]:
        name, shelf = next((name, s) for name, part in PARTS.items() for s in part.shelves if s.table == table)
        connection = self._open(name)
        if connection is None:
            return {}
        with blaming(self._path / name):
            return dict(shelf.read(connection))

    async def stat(self, *, now: float) -> list[Counts]:
        """How many tasks of each queue wait, run or are dead; those that are done are not counted."""
        connection = self._open(TASKS)
        if connection is None:
            return []
        with blaming(self._path / TASKS):
            return tasks.stat(connection, now, ended=False) if LINES.is_in(connection) else []

    def _open(self, name: str) -> Connection | None:
        """The file of that name; None where there is none yet."""
        if self._home is None or not self._home.holds(name):
            return None
        if name not in self._connections:
            with blaming(self._path / name):
                self._connections[name] = reading(self._path / name)
        return self._connections[name]


def home_at(path: Path) -> Home | None:
    """A directory to look at; None when there is none yet, which is nothing wrong."""
    return Home.read(path) if path.exists() and any(path.iterdir()) else None
