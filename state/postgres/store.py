"""The store on PostgreSQL: each verb a call on one of its lanes.

Three lanes, each a connection that is opened when it is needed: one for the steady flow of tasks, one for what may
wait for somebody else's lock, one for looking. A session beside them listens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from raptor.clock import Clock
from raptor.errors import NotWritten
from raptor.state.asked import check
from raptor.state.base import (
    TABLES,
    Counts,
    Grant,
    Held,
    Hold,
    Presence,
    Promise,
    Query,
    Receipt,
    Record,
    Right,
    Taken,
    Want,
)
from raptor.state.bells import LocalBell
from raptor.state.news import LocalWatch, News
from raptor.state.postgres import looking, nodes, tables
from raptor.state.postgres.address import Address
from raptor.state.postgres.durability import NOISE_S, Durability, is_skewed
from raptor.state.postgres.lane import READER, Call, Lane
from raptor.state.postgres.looking import DROP, EARLIEST, QUEUES, SHED, UPCOMING
from raptor.state.postgres.putting import check_all, earliest, merged, send_keyed
from raptor.state.postgres.session import Session
from raptor.state.postgres.settling import send_extend, send_settle
from raptor.state.postgres.taking import Given, is_limited, send_take
from raptor.state.postgres.trail import Trails
from raptor.state.postgres.transaction import Finish, Reading, Transaction
from raptor.state.postgres.trouble import not_written
from raptor.state.postgres.waves import Waves
from raptor.state.postgres.wire import INT8, Column, Time, at, reached, seconds
from raptor.state.prospect import Prospect, is_sure
from raptor.task import Move, Run, Slot, State, Task

T = TypeVar("T")

PRUNED = 500  # lines of the ledger that go at a time


class PostgresStore:
    exclusive = False

    def __init__(self, address: Address, clock: Clock) -> None:
        self.address = address
        self.durability: Durability | None = None  # what the server promises
        self.skew_s = 0.0  # how far the node's clock is off the server's
        self._clock = clock
        self._bells = Trails()
        self._news = News()
        self._own: set[int] = set()
        self.session = Session(address, clock, self._bells, self._news, self._own, self._earliest)
        self._flow, self._rest, self._looks = (
            Lane(address, role, self.session, self._own.add) for role in ("tasks", "records", READER)
        )
        self._waves = Waves()
        self._apart: set[asyncio.Future[frozenset[int]]] = set()  # verdicts that are not written where takes are
        self._found: dict[str, list[Task]] = {}  # taken for an owner who did not wait for them
        self._now = 0.0  # the latest that was handed in

    @property
    def looks_ahead(self) -> bool:
        """Others would have to pass over what one has its eye on."""
        return self.session.is_alone

    @property
    def promise(self) -> Promise | None:
        if self.durability is None:
            return None
        return Promise(self.address.shown, self.durability.line, self.durability.is_full)

    @property
    def sequence(self) -> int:
        return self._flow.commits + self._rest.commits + self.session.heard

    # Tasks

    async def put(self, tasks: Sequence[Task], *, now: float, replace: bool = False) -> list[Receipt]:
        check_all(tasks)
        if not tasks:
            return []
        call: Call[list[Receipt]] = Call(merge=merged, given=(tasks, now), about=tasks)
        lane = self._flow
        if any(task.key is not None for task in tasks):
            call = Call(lambda transaction: send_keyed(transaction, tasks, now, replace), about=tasks)
            lane = self._rest
        placed = await lane.ask(call)
        rung = (task for task, (_, new) in zip(tasks, placed, strict=True) if new or replace)
        self._ring(earliest((task.queue, task.due) for task in rung))
        return placed

    async def take(self, wants: Sequence[Want], *, owner: str, now: float, prospect: Prospect | None = None) -> Taken:
        sure = None if prospect is None else prospect.sure
        if sure is not None and sure.done() and not sure.result():
            return Taken([], {})
        if self._found.get(owner) and await is_sure(prospect):
            return Taken(self._found.pop(owner), {})
        if not wants or (is_limited(wants) and not await is_sure(prospect)):
            return Taken([], {})
        places = self._waves.keep(2 * len(wants))
        found = None if prospect is None else prospect.found

        def lost(given: Given) -> None:
            self._waves.give(places, given.places)
            if given.taken.tasks:
                self._found.setdefault(owner, []).extend(given.taken.tasks)

        def has_room() -> bool:
            return sure is None or (not sure.cancelled() and sure.result() and not self._apart)

        def work(transaction: Transaction) -> Awaitable[Finish[Given]]:
            return send_take(transaction, self._bells, wants, owner, now, places, has_room, found)

        try:
            if sure is None and self._apart:
                await asyncio.wait(self._apart)
            given = await self._flow.ask(Call(work, about=wants, lost=lost, until=sure))
        except NotWritten as error:
            if error.reason != "unknown":
                self._waves.give(places, {})
            raise
        self._waves.give(places, given.places)
        return given.taken

    async def settle(self, moves: Sequence[Move], *, now: float) -> frozenset[int]:
        check(move.successor for move in moves if move.successor is not None)  # all else was, of what it repeats
        if not moves:
            return frozenset()
        waits = any(move.successor is not None and move.successor.key is not None for move in moves)
        lane = self._rest if waits else self._flow
        settled = lane.ask(Call(lambda transaction: send_settle(transaction, moves, now), about=moves, joins=True))
        if waits:
            self._apart.add(settled)
            settled.add_done_callback(self._apart.discard)
        stale = await settled
        self._waves.end((move.id, move.fence) for move in moves)
        self._ring(earliest(entry for move in moves if move.id not in stale for entry in move.ready))
        return stale

    async def extend(self, holds: Sequence[Hold], *, until: float) -> Held:
        if not holds:
            return Held(frozenset(), frozenset())
        return await self._flow.ask(Call(lambda transaction: send_extend(transaction, holds, until), joins=True))

    async def cancel(self, ids: Sequence[int], *, now: float, reason: str) -> dict[int, State]:
        before = await self._write(lambda transaction: looking.cancel(transaction, ids, now, reason), ids)
        self._news.tell(("unwanted", str(id)) for id, state in before.items() if state is State.TAKEN)
        return before

    async def revive(self, ids: Sequence[int], *, now: float) -> list[int]:
        revived = await self._write(lambda transaction: looking.revive(transaction, ids, now), ids)
        self._ring({queue: now for _, queue in revived})
        return [id for id, _ in revived]

    async def find(self, query: Query) -> list[Task]:
        return await self._look(lambda transaction: looking.find(transaction, query))

    async def stat(self, *, now: float) -> list[Counts]:
        return await self._look(lambda transaction: looking.stat(transaction, now))

    async def queues(self) -> list[str]:
        return sorted(row[0] for row in await self._rows(QUEUES))

    async def upcoming(self, queues: Sequence[str], *, after: float, limit: int) -> list[tuple[str, float]]:
        given = {"queues": list(queues), "after": Time(reached(after)), "limit": limit}
        return [(queue, seconds(due)) for queue, due in await self._rows(UPCOMING, given)]

    async def drop(self, ids: Sequence[int]) -> int:
        return await self._write(lambda transaction: _counted(transaction, DROP, (Column(INT8, ids),)), ids)

    async def shed(self, *, before: float, limit: int) -> int:
        given = {"before": Time(reached(before)), "limit": limit}
        return await self._write(lambda transaction: _counted(transaction, SHED, given))

    def listen(self) -> LocalBell:
        self.session.start()
        self.session.stir()
        return self._bells.listen()

    # Records and the ledger

    async def load(self, table: str) -> dict[str, Record]:
        kind = TABLES[table]
        return await self._look(lambda transaction: tables.load(transaction, table, kind))

    async def save(self, changes: Sequence[tuple[str, str, Record | None]], *, rights: Sequence[Right] = ()) -> None:
        for table, *_ in changes:
            TABLES[table]  # KeyError
        lines = [
            (table, key, None if record is None else msgspec.json.encode(record).decode())
            for table, key, record in changes
        ]

        async def work(transaction: Transaction) -> None:
            await tables.check(transaction, rights)
            await tables.save(transaction, lines)

        await self._write(work, changes, alone=bool(rights))
        self._news.tell((table, key) for table, key, _ in changes)

    async def amend(self, table: str, key: str, seen: Record | None, record: Record) -> bool:
        kind, text = TABLES[table], msgspec.json.encode(record).decode()

        async def work(transaction: Transaction) -> bool:
            if await tables.find(transaction, table, key, kind) != seen:
                return False
            await tables.save(transaction, [(table, key, text)])
            return True

        is_written = await self._write(work, (table, key), alone=True)
        if is_written:
            self._news.tell([(table, key)])
        return is_written

    async def record(self, slots: Iterable[Slot], runs: Iterable[Run], *, rights: Sequence[Right] = ()) -> None:
        closed, lines = list(slots), list(runs)

        async def work(transaction: Transaction) -> None:
            await tables.check(transaction, rights)
            await tables.record(transaction, closed, lines)

        await self._write(work, alone=bool(rights))

    async def history(
        self,
        service: str | None = None,
        *,
        since: float | None = None,
        until: float | None = None,
        failed: bool = False,
        limit: int = 100,
    ) -> list[Run]:
        return await self._look(lambda transaction: tables.history(transaction, service, since, until, failed, limit))

    async def slots(self, service: str, *, since: float, until: float, limit: int = 1000) -> list[Slot]:
        return await self._look(lambda transaction: tables.span(transaction, service, since, until, limit))

    async def prune(self, *, before: float, keep: int) -> int:
        given = {"before": Time(at(before)), "keep": keep, "limit": PRUNED}

        async def pruned(statement: str) -> int:
            return await self._write(lambda transaction: _counted(transaction, statement, given))

        gone = 0
        for statement in tables.PRUNE:
            count = PRUNED
            while count >= PRUNED:
                count = await pruned(statement)
                gone += count
        for statement in tables.FORGET:
            await self._write(lambda transaction: _counted(transaction, statement, {}))  # noqa: B023  # awaited here
        return gone

    # Rights and presences

    async def claim(self, keys: Sequence[str], *, owner: str, now: float, lease_s: float) -> dict[str, Grant]:
        self._now = max(self._now, now)
        if not keys:
            return {}
        return await self._write(lambda transaction: nodes.claim(transaction, keys, owner, now, lease_s))

    async def release(self, rights: Sequence[Right], *, owner: str) -> None:
        if rights:
            await self._write(lambda transaction: nodes.release(transaction, rights, owner))

    async def holders(self, prefix: str) -> dict[str, Grant]:
        now = self._now or self._clock.now()
        return await self._look(lambda transaction: nodes.holders(transaction, prefix, now))

    async def appear(self, presence: Presence, *, now: float) -> list[Presence]:
        self._now = max(self._now, now)
        try:
            locked = await self.session.own(presence.owner)
            before = self._clock.monotonic()
            given = nodes.shown(presence, now, locked)
            rows = await self.session.appear(presence.owner, nodes.APPEAR, given, now)
            self._compare(self._clock.monotonic() - before, seconds(rows[0][5]))
        except Exception as error:
            raise not_written(self.address, error) from error
        return nodes.presences(rows)

    async def nodes(self, *, now: float) -> list[Presence]:
        self._now = max(self._now, now)
        return nodes.presences(await self._rows(nodes.NODES, {"now": Time(reached(now))}))

    async def vanish(self, owner: str) -> None:
        async def work(transaction: Transaction) -> None:
            for statement in nodes.VANISH:
                await transaction.send(statement, (owner,))

        await self._write(work)
        try:
            await self.session.disown(owner)
        except Exception as error:
            raise not_written(self.address, error) from error

    def watch(self) -> LocalWatch:
        self.session.start()
        return self._news.watch()

    async def close(self) -> None:
        await self.session.close()
        for lane in (self._flow, self._rest, self._looks):
            await lane.close()

    # Inside

    def _compare(self, took_s: float, there: float) -> None:
        """Follow the server's clock, if ours has left it."""
        skew_s = self._clock.now() - self._clock.offset_s - took_s / 2 - there
        if abs(skew_s - self.skew_s) > max(NOISE_S, took_s):
            self.skew_s = skew_s if is_skewed(skew_s) else 0.0
            self._clock.follow(-self.skew_s)

    async def _earliest(self) -> Mapping[str, float]:
        return {queue: seconds(due) for queue, due in await self._rows(EARLIEST)}

    def _ring(self, news: Mapping[str, float]) -> None:
        if news:
            self.session.stir()
            self._bells.ring(news.items())

    async def _rows(self, statement: str, values: Any = ()) -> list[tuple[Any, ...]]:
        return await self._look(lambda transaction: transaction.rows(statement, values))

    async def _look(self, read: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._looks.ask(Call(_at_once(read)))

    async def _write(
        self, write: Callable[[Transaction], Awaitable[T]], about: object = None, *, alone: bool = False
    ) -> T:
        return await self._rest.ask(Call(_at_once(write), about=about, alone=alone))


def _at_once(work: Callable[[Transaction], Awaitable[T]]) -> Callable[[Transaction], Awaitable[Finish[T]]]:
    """One whose answer is needed before the next begins."""

    async def do(transaction: Transaction) -> Finish[T]:
        answer = await work(transaction)

        async def finish() -> Reading[T]:
            return lambda: answer

        return finish

    return do


async def _counted(transaction: Transaction, statement: str, values: Any) -> int:
    cursor = await transaction.send(f"WITH gone AS ({statement} RETURNING 1) SELECT count(*) FROM gone", values)
    ((count,),) = await cursor.fetchall()
    return int(count)
