"""The verbs on tasks over raptor.sqlite: to read beside its owner, and as its owner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from sqlite3 import Connection
from typing import NoReturn, TypeVar

from raptor.state import amending, tasks
from raptor.state.asked import check
from raptor.state.base import Counts, Held, Hold, Query, Receipt, Taken, Want
from raptor.state.bells import Bells, LocalBell
from raptor.state.news import News
from raptor.state.prospect import Prospect, is_sure
from raptor.state.sqlite import Database
from raptor.task import Move, State, Task

T = TypeVar("T")


class TasksToRead(ABC):
    """What a reader may ask; the rest it is refused."""

    exclusive = True
    looks_ahead = False

    async def find(self, query: Query) -> list[Task]:
        return await self._look(lambda connection: tasks.find(connection, query), [])

    async def stat(self, *, now: float) -> list[Counts]:
        return await self._look(lambda connection: tasks.stat(connection, now), [])

    async def queues(self) -> list[str]:
        return await self._look(tasks.queues, [])

    async def upcoming(self, queues: Sequence[str], *, after: float, limit: int) -> list[tuple[str, float]]:
        return await self._look(lambda connection: tasks.upcoming(connection, queues, after, limit), [])

    async def put(self, tasks: Sequence[Task], *, now: float, replace: bool = False) -> list[Receipt]:
        self._refuse()

    async def take(self, wants: Sequence[Want], *, owner: str, now: float, prospect: Prospect | None = None) -> Taken:
        self._refuse()

    async def settle(self, moves: Sequence[Move], *, now: float) -> frozenset[int]:
        self._refuse()

    async def extend(self, holds: Sequence[Hold], *, until: float) -> Held:
        self._refuse()

    async def cancel(self, ids: Sequence[int], *, now: float, reason: str) -> dict[int, State]:
        self._refuse()

    async def revive(self, ids: Sequence[int], *, now: float) -> list[int]:
        self._refuse()

    async def drop(self, ids: Sequence[int]) -> int:
        self._refuse()

    async def shed(self, *, before: float, limit: int) -> int:
        self._refuse()

    def listen(self) -> LocalBell:
        self._refuse()

    @abstractmethod
    async def _look(self, read: Callable[[Connection], T], nothing: T) -> T: ...

    @abstractmethod
    def _refuse(self) -> NoReturn: ...


class TasksToOwn(TasksToRead):
    """The owner's verbs, each in the thread that writes the file, those that wait together in one commit."""

    _database: Database
    _bells: Bells
    _news: News

    async def put(self, tasks: Sequence[Task], *, now: float, replace: bool = False) -> list[Receipt]:
        check(tasks)
        placed = await self._database.put(tasks, now=now, replace=replace)
        self._bells.ring(
            [(task.queue, task.due) for task, (_, new) in zip(tasks, placed, strict=True) if new or replace]
        )
        return placed

    async def take(self, wants: Sequence[Want], *, owner: str, now: float, prospect: Prospect | None = None) -> Taken:
        if not await is_sure(prospect):
            return Taken([], {})
        return await self._database.ask(lambda connection: tasks.take_all(connection, wants, owner, now), rows=1)

    async def settle(self, moves: Sequence[Move], *, now: float) -> frozenset[int]:
        check([move.successor for move in moves if move.successor is not None])
        stale = await self._database.settle(moves, now=now)
        back = [move for move in moves if move.due is not None or move.successor is not None]
        self._bells.ring(entry for move in back if move.id not in stale for entry in move.ready)
        return stale

    async def extend(self, holds: Sequence[Hold], *, until: float) -> Held:
        return await self._database.ask(
            lambda connection: amending.extend(connection, holds, until), result=True, rows=len(holds)
        )

    async def cancel(self, ids: Sequence[int], *, now: float, reason: str) -> dict[int, State]:
        before = await self._database.ask(lambda connection: amending.cancel(connection, ids, now, reason))
        self._news.tell(("unwanted", str(id)) for id, state in before.items() if state is State.TAKEN)
        return before

    async def revive(self, ids: Sequence[int], *, now: float) -> list[int]:
        revived = await self._database.ask(lambda connection: amending.revive(connection, ids, now))
        found = await self.find(Query(ids=tuple(revived), limit=len(revived))) if revived else []
        self._bells.ring((task.queue, task.due) for task in found)
        return revived

    async def drop(self, ids: Sequence[int]) -> int:
        return await self._database.ask(lambda connection: tasks.drop(connection, ids))

    async def shed(self, *, before: float, limit: int) -> int:
        return await self._database.ask(lambda connection: tasks.shed(connection, before, limit))

    def listen(self) -> LocalBell:
        return self._bells.listen()
