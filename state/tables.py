"""The two tables, on sqlitedict used the safe way: synced and grouped commits, typed JSON with a checksum."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import Queue
from sqlite3 import Connection
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from raptor.state.commits import Answer, Commits, Work, one_by_one
from raptor.state.connection import writing
from raptor.state.front import Batch, Close, Front, Order, attend
from raptor.state.parts import PARTS, Shelf
from raptor.state.reserve import Reserve
from raptor.state.seal import seal, unseal

if TYPE_CHECKING:  # sqlitedict has no types; this much of it is used

    class SqliteDict:
        conn: Any
        filename: str

        def __init__(self, filename: str, **options: Any) -> None: ...
        def __setitem__(self, key: str, value: Any) -> None: ...
        def __getitem__(self, key: str) -> Any: ...
        def __delitem__(self, key: str) -> None: ...
        def __len__(self) -> int: ...
        def __iter__(self) -> Iterator[str]: ...
        def iteritems(self) -> Iterator[tuple[str, Any]]: ...
        def items(self) -> Iterator[tuple[str, Any]]: ...
        def close(self) -> None: ...

    class SqliteMultithread(Thread):
        filename: str
        exception: Any
        reqs: Queue[Any]
        _lock: Lock

        def __init__(self, filename: str, **options: Any) -> None: ...
        def execute(self, req: Any, arg: Any = None, res: Any = None) -> None: ...
        def check_raise_error(self) -> None: ...

else:
    from sqlitedict import SqliteDict, SqliteMultithread

T = TypeVar("T", bound=msgspec.Struct)


class Table(SqliteDict, Generic[T]):
    """One table in a file of its own. `put`, `delete`, `change` and `load` are for an event loop.

    As a dict it is typed and durable too, and it blocks.
    """

    def __init__(
        self,
        path: Path,
        kind: type[T],
        *,
        state: str,
        floor: int = 0,
        told: Callable[[int], None] = lambda _: None,
        reserve: Reserve | None = None,
    ) -> None:
        self.name = path.stem
        self.kind = kind
        versions = PARTS[path.name].versions()
        self._connect = lambda: Commits(writing(path, state, versions, floor=floor), path, told, reserve)
        super().__init__(
            str(path),
            tablename=self.name,
            autocommit=True,
            journal_mode="WAL",
            outer_stack=False,
            encode=str,
            decode=str,
        )

    async def put(self, key: str, record: T) -> None:
        await self.change([(key, record)])

    async def delete(self, key: str) -> None:
        await self.change([(key, None)])

    async def change(self, changes: Sequence[tuple[str, T | None]], *, result: bool = False) -> None:
        """Write or delete, all in one commit; returns when it is durable. A `result` may spend the reserve."""
        rows = [(key, None if record is None else seal(self.name, key, record)) for key, record in changes]
        await self._front.ask(lambda connection: self._write(connection, rows), result=result)

    async def load(self) -> dict[str, T]:
        shelf = Shelf(self.name, self.kind, "key", "value")
        return await self._front.ask(lambda connection: dict(shelf.read(connection)), writes=False)

    async def shut(self) -> None:
        """Close the file; `close` does the same and blocks."""
        await self._front.close()
        self.conn = None

    def __setitem__(self, key: str, record: T) -> None:
        super().__setitem__(key, seal(self.name, key, record))

    def __getitem__(self, key: str) -> T:
        return unseal(self.name, key, super().__getitem__(key), self.kind)

    def iteritems(self) -> Iterator[tuple[str, T]]:
        for key, text in super().iteritems():
            yield key, unseal(self.name, key, text, self.kind)

    def itervalues(self) -> Iterator[T]:
        return (record for _, record in self.iteritems())

    def update(self, items: Any = (), /, **more: Any) -> None:
        raise NotImplementedError("sqlitedict's update is not atomic: use change")

    def _new_conn(self) -> _Connection:
        """sqlitedict calls this in its constructor, and again when a closed table is entered."""
        connection = _Connection(self.filename, self._connect)
        connection.check_raise_error()
        self.commits = connection.commits
        self._front: Front[Connection] = Front(self.filename, connection.reqs.put)
        return connection

    def _write(self, connection: Connection, rows: list[tuple[str, str | None]]) -> None:
        for key, text in rows:
            if text is None:
                connection.execute(f'DELETE FROM "{self.name}" WHERE key = ?', (key,))
            else:
                connection.execute(f'REPLACE INTO "{self.name}" (key, value) VALUES (?, ?)', (key, text))


class _Connection(SqliteMultithread):
    """sqlitedict's connection thread, with grouped commits, and with its errors told to whoever asked."""

    commits: Commits

    def __init__(self, filename: str, connect: Callable[[], Commits]) -> None:
        self._open = connect
        self._pid = os.getpid()
        super().__init__(filename, autocommit=True, journal_mode="WAL", outer_stack=False)

    def run(self) -> None:
        try:
            self.commits = self._open()
        except BaseException:  # _new_conn asks for it next, and raises it
            self.exception = sys.exc_info()
            return
        finally:
            self._lock.release()
        attend(self.reqs, self.commits.together, self.commits.connection.close, read=self._read)

    def execute(self, req: Any, arg: Any = None, res: Any = None) -> None:
        if self._pid != os.getpid():
            raise RuntimeError(f"process {self._pid} owns {self.filename}; a forked child would wait for ever")
        super().execute(req, arg, res)

    def _read(self, order: Any) -> Order:
        """An order of ours as it is, one of sqlitedict's (statement, arguments, reply, stack) as one of ours."""
        if isinstance(order, Batch | Close):
            return order
        statement, arguments, reply, _ = order

        def answer(answers: list[Answer]) -> None:
            (given,) = answers
            if given.error is not None:
                with self._lock:
                    self.exception = (type(given.error), given.error, given.error.__traceback__)
            if reply is not None and (line := reply()) is not None:
                for row in given.value or ():
                    line.put(row)
                line.put("--no more--")

        def do(connection: Connection) -> list[Any]:
            return connection.execute(statement, arguments).fetchall()

        match statement:
            case "--close--":
                return Close(answer)
            case "--commit--":
                return Batch([Work(one_by_one, _nothing, writes=False)], answer)
            case _:
                # CREATE IF NOT EXISTS is its first word to every file: an opening, which must not wait for room.
                opens = statement[:6] == "CREATE"
                return Batch([Work(one_by_one, do, writes=statement[:6] != "SELECT", result=opens)], answer)


def _nothing(connection: Connection) -> tuple[()]:
    return ()
