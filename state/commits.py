"""Group commit: works that wait together are written in one transaction, and answered when it is durable.

What cannot be written is told apart here: try again (full, busy), or write no more (the disk or the file is broken).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from raptor.errors import NotWritten, RefusedState
from raptor.state.damage import damaged
from raptor.state.reserve import FULL, Reserve
from raptor.state.seal import BrokenSeal

C = TypeVar("C")
MANY = 1_000_000


class Work(msgspec.Struct, Generic[C], frozen=True, eq=False):
    """Something to do with a connection. It may be done twice, the first time rolled back.

    `do` gets what was given to each of the works that wait together and are done by it, and answers each.
    """

    do: Callable[[C, list[Any]], Sequence[Any]]
    given: Any
    writes: bool = True
    result: bool = False  # of what runs already: on a full disk it may spend the reserve, and nothing else may
    rows: int = MANY  # that it touches, more or less


def one_by_one(connection: C, works: list[Callable[[C], Any]]) -> list[Any]:
    """Do works that have nothing in common."""
    return [work(connection) for work in works]


class Answer(msgspec.Struct, frozen=True, eq=False):
    """What became of a work. There is one for every put, so neither is a dataclass, which takes four times as long."""

    value: Any = None
    error: BaseException | None = None


class Commits:
    """The transactions of the one connection that writes a file; `told` hears of the sequence of each."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        told: Callable[[int], None],
        reserve: Reserve | None = None,
    ) -> None:
        self.connection = connection
        self.sequence: int = connection.execute("SELECT sequence FROM stamp").fetchone()[0]
        self._path = path
        self._told = told
        self._reserve = reserve
        self._broken: str | None = None

    @property
    def whole(self) -> bool:
        """No write has failed in a way that only a new start can tell."""
        return self._broken is None

    def together(self, works: Sequence[Work[sqlite3.Connection]]) -> list[Answer]:
        if self._broken is not None:
            return [Answer(error=self._refused(self._broken)) for _ in works]
        try:
            values = self._commit(works) if any(work.writes for work in works) else self._run(works)
        except BaseException as caught:  # whatever it is, somebody waits for it
            error = self._undo(self._judge(caught))
            if self._broken is None and len(works) > 1:
                # One of them is to blame, and the others shall not pay for it.
                return [self.together([work])[0] for work in works]
            if works[0].result and self._spends(error):
                return self.together(works)
            return [Answer(error=error)] * len(works)
        return [Answer(value) for value in values]

    def _run(self, works: Sequence[Work[sqlite3.Connection]]) -> list[Any]:
        if len(works) == 1:
            return [*works[0].do(self.connection, [works[0].given])]
        values: list[Any] = []
        for do, alike in groupby(works, key=attrgetter("do")):
            values += do(self.connection, [work.given for work in alike])
        return values

    def _commit(self, works: Sequence[Work[sqlite3.Connection]]) -> list[Any]:
        execute = self.connection.execute
        if self._reserve is not None and not all(work.result for work in works if work.writes):
            self._reserve.demand()
        before = self.connection.total_changes
        execute("BEGIN IMMEDIATE")
        values = self._run(works)
        if self.connection.total_changes == before:
            execute("COMMIT")  # of nothing, which needs no disk
            return values
        execute("UPDATE stamp SET sequence = ?", (self.sequence + 1,))
        execute("COMMIT")
        self.sequence += 1
        self._told(self.sequence)
        if self._reserve is not None:
            self._reserve.restore()
        return values

    def _spends(self, error: BaseException) -> bool:
        """Whether another try finds the room of the reserve."""
        full = isinstance(error, NotWritten) and error.reason == "full"
        return full and self._reserve is not None and self._reserve.spend()

    def _undo(self, error: BaseException) -> BaseException:
        try:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
        except sqlite3.Error as caught:
            error = self._break(caught)
        return error

    def _judge(self, error: BaseException) -> BaseException:
        if isinstance(error, BrokenSeal):
            return damaged(self._path, f"is damaged: {error}")
        if not isinstance(error, sqlite3.Error):
            return error
        code = getattr(error, "sqlite_errorcode", 0)
        match code & 0xFF:
            case sqlite3.SQLITE_FULL:
                return NotWritten("full", self._path, "the disk is full; free some space")
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return NotWritten("busy", self._path, "another program holds it open for writing; end that program")
            case sqlite3.SQLITE_READONLY if code != sqlite3.SQLITE_READONLY_DBMOVED:
                return NotWritten("readonly", self._path, "it is read-only now; make it writable again")
            case sqlite3.SQLITE_IOERR if code == sqlite3.SQLITE_IOERR_WRITE and _is_full(self._path.parent):
                return NotWritten("full", self._path, "a quota or a limit is reached; free some space")
            case (
                sqlite3.SQLITE_IOERR
                | sqlite3.SQLITE_READONLY
                | sqlite3.SQLITE_CORRUPT
                | sqlite3.SQLITE_NOTADB
                | sqlite3.SQLITE_CANTOPEN
            ):
                return self._break(error)
            case _:
                return error

    def _break(self, error: sqlite3.Error) -> RefusedState:
        # After a failed fsync a second one may succeed although the data are gone: only a new start can tell.
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        self._broken = f"failed with {name} ({error}) and takes no more writes"
        return self._refused(self._broken)

    def _refused(self, problem: str) -> RefusedState:
        return RefusedState("broken", self._path, problem, "look at the disk, then start again")


def _is_full(folder: Path) -> bool:
    """Whether a new page finds no room; SQLite itself says so only where the whole disk is full."""
    probe = folder / "probe"
    try:
        probe.write_bytes(bytes(4096))
    except OSError as error:
        return error.errno in FULL
    finally:
        probe.unlink(missing_ok=True)
    return False
