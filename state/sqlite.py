"""raptor.sqlite: definitions of schedulers and queues, the ledger of slots and runs, and tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from sqlite3 import Connection
from typing import cast

from raptor.rows import Definition, Line
from raptor.state import tasks
from raptor.state.base import Receipt
from raptor.state.commits import MANY, Commits, Work
from raptor.state.connection import writing
from raptor.state.front import Close, Front, Here, Server
from raptor.state.parts import PARTS, RUNS, SLOTS
from raptor.state.reserve import Reserve
from raptor.state.seal import seal
from raptor.state.settling import settle
from raptor.task import Move, Run, Slot, Task

WAVE = 65  # tasks that end together: more than threads, which end one after another
STEP = 500  # rows that are pruned in one commit, so that nobody waits long behind it


class Database:
    """The one connection that writes raptor.sqlite, in a thread of its own."""

    def __init__(
        self,
        path: Path,
        *,
        state: str,
        floor: int = 0,
        told: Callable[[int], None] = lambda _: None,
        reserve: Reserve | None = None,
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        connection = writing(path, state, PARTS[path.name].versions(), floor=floor)
        self.commits = Commits(connection, path, told, reserve)
        self._server = Server(path.stem, self.commits.together, connection.close)
        self._server.start()
        here = None if monotonic is None else Here(self.commits.together, monotonic)
        self._front: Front[Connection] = Front(path, self._server.put, here)
        self.ask = self._front.ask
        self._last = tasks.last_id(connection)
        self._put = self._write_puts  # one object, by which those that wait together are known

    async def change(self, table: str, changes: Sequence[tuple[str, Definition | Line | None]]) -> None:
        """Write or delete definitions, all in one commit."""
        rows = [(key, None if record is None else seal(table, key, record)) for key, record in changes]

        def write(connection: Connection) -> None:
            for key, text in rows:
                if text is None:
                    connection.execute(f"DELETE FROM {table} WHERE key = ?", (key,))
                else:
                    connection.execute(f"REPLACE INTO {table} (key, record) VALUES (?, ?)", (key, text))

        await self._front.ask(write)

    async def put(self, new: Sequence[Task], *, now: float, replace: bool) -> list[Receipt]:
        work = Work(self._put, tasks.Put(new, now, replace), rows=len(new))
        return cast("list[Receipt]", await self._front.hand_in(work))

    def _write_puts(self, connection: Connection, puts: list[tasks.Put]) -> list[list[Receipt]]:
        return tasks.put_all(connection, puts, self._reserved(sum([len(put.tasks) for put in puts])))

    async def settle(self, moves: Sequence[Move], *, now: float) -> frozenset[int]:
        successors = sum(move.successor is not None for move in moves)

        def write(connection: Connection) -> frozenset[int]:
            return settle(connection, moves, self._reserved(successors), now)

        # After a few others end soon, and share the next commit in the thread; a wave is all that there was.
        return await self._front.ask(write, result=True, rows=len(moves) if len(moves) >= WAVE else MANY)

    def _reserved(self, count: int) -> int:
        """The first of so many ids that nobody had before, even if what they are for is rolled back."""
        first, self._last = self._last + 1, self._last + count
        return first

    async def record(self, slots: Iterable[Slot], runs: Iterable[Run]) -> None:
        new_runs = [(run.id, seal("run", run.id, run)) for run in runs]
        closed = list(slots)
        new_slots = [(seal("slot", "", slot),) for slot in closed]
        ranges = [(one.service, one.planned, one.last, one.verdict) for one in closed if one.last > one.planned]

        def write(connection: Connection) -> None:
            connection.executemany("INSERT OR IGNORE INTO run (id, record) VALUES (?, ?)", new_runs)
            connection.executemany(
                "DELETE FROM slot WHERE service = ? AND planned = ? AND last < ? AND verdict = ?", ranges
            )
            connection.executemany("INSERT OR IGNORE INTO slot (record) VALUES (?)", new_slots)

        await self._front.ask(write, result=True)

    async def prune(self, *, before: float, keep: int) -> int:
        gone = 0
        for table, age, order in (("run", "start", "start, id"), ("slot", "last", "planned")):
            gone += await self._shed(table, f"{age} < ?", before)
            crowded = f"SELECT service, count(*) FROM {table} GROUP BY service HAVING count(*) > {keep}"
            for service, count in await self._front.ask(partial(_fetch, crowded), writes=False):
                gone += await self._shed(table, f"service = ? ORDER BY {order}", service, count - keep)
        return gone

    async def _shed(self, table: str, which: str, argument: object, most: int | None = None) -> int:
        gone = 0
        while most is None or gone < most:
            step = STEP if most is None else min(STEP, most - gone)
            query = f"DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE {which} LIMIT {step})"
            count = await self._front.ask(partial(_delete, query, argument))
            gone += count
            if count < step:
                break
        return gone

    async def between(self, do: Callable[[], None]) -> None:
        """Do it in this thread, between two commits."""
        await self._front.ask(lambda _: do(), writes=False)

    async def shut(self) -> None:
        """Close the file; `close` does the same and blocks."""
        await self._front.close()

    def close(self) -> None:
        self._server.put(Close(lambda _: None))
        self._server.join()


def _fetch(query: str, connection: Connection) -> list[tuple[str, int]]:
    return connection.execute(query).fetchall()


def _delete(query: str, argument: object, connection: Connection) -> int:
    return connection.execute(query, (argument,)).rowcount


def history(
    connection: Connection,
    service: str | None,
    *,
    since: float | None,
    until: float | None,
    failed: bool,
    limit: int,
) -> list[Run]:
    wanted = {
        "service = ?": service,
        "start >= ?": since,
        "start <= ?": until,
        "outcome <> ?": "ok" if failed else None,
    }
    given = {condition: value for condition, value in wanted.items() if value is not None}
    where = f"WHERE {' AND '.join(given)}" if given else ""
    rest = f"{where} ORDER BY start DESC, id DESC LIMIT ?"
    return [run for _, run in RUNS.read(connection, rest, (*given.values(), limit))]


def slots(connection: Connection, service: str, *, since: float, until: float, limit: int) -> list[Slot]:
    rest = "WHERE service = ? AND last >= ? AND planned <= ? ORDER BY planned LIMIT ?"
    return [slot for _, slot in SLOTS.read(connection, rest, (service, since, until, limit))]
