"""Ten takers at a thousand tasks: each task goes to one, whether they are threads or processes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from raptor.clock import Clock, SystemClock
from raptor.state.base import Hold, Query, Store, Want
from raptor.state.opening import open_store
from raptor.state.postgres.address import read
from raptor.task import State, Task
from raptor.testing.conformance.sample import NOW, move, taken, task

TAKERS, TASKS = 10, 1000
WAITING = b"SELECT 1 FROM pg_locks WHERE NOT granted AND transactionid = pg_current_xact_id()::xid"


async def take_all(address: str, owner: str) -> list[int]:
    """Take and settle until there is nothing left."""
    mine: list[int] = []
    async with open_store(address, SystemClock()) as store:
        while given := (await store.take([Want(queue="default", room=7)], owner=owner, now=NOW)).tasks:
            mine += [one.id for one in given]
            assert await store.settle([move(one, State.DONE, ended=NOW) for one in given], now=NOW) == frozenset()
    return mine


@pytest.mark.spec("000-13", "000-30", "000-43")
@pytest.mark.parametrize("way", ["threads", "processes"])
async def test_of_ten_takers_at_a_thousand_tasks_each_task_goes_to_one(
    pg_address: str, system_clock: Clock, way: str
) -> None:
    async with open_store(pg_address, system_clock) as store:
        placed = await store.put([task(priority=number % 10) for number in range(TASKS)], now=NOW)
        split = await system_clock.offload(_in_threads if way == "threads" else _in_processes, pg_address)
        assert sorted(id for ids in split for id in ids) == [id for id, _ in placed]
        found = await store.find(Query(limit=2 * TASKS))
        assert {(one.state, one.fence) for one in found} == {(State.DONE, 1)}


async def test_of_many_that_put_one_key_one_does(pg_address: str, system_clock: Clock) -> None:
    async with open_store(pg_address, system_clock) as first, open_store(pg_address, system_clock) as second:
        for round in range(10):
            keyed = [[task(key=f"{round} a"), task(key=f"{round} b")], [task(key=f"{round} b"), task(key=f"{round} a")]]
            asked = [store.put(keyed[number % 2], now=NOW) for number in range(6) for store in (first, second)]
            placed = await asyncio.gather(*asked)
            assert sum(new for receipts in placed for _, new in receipts) == 2
            assert len({id for receipts in placed for id, _ in receipts}) == 2


def settled(store: Store, given: list[Task]) -> Awaitable[frozenset[int]]:
    """They end, each in its own way: what ends alike is one plain statement."""
    ends = (move(one, State.DONE, ended=NOW, output=str(one.id)) for one in given)
    return store.settle(list(ends), now=NOW)


def forgotten(store: Store, given: list[Task]) -> Awaitable[frozenset[int]]:
    return store.settle([move(one, State.DONE, ended=NOW, keep=False) for one in given], now=NOW)


async def renewed(store: Store, given: list[Task]) -> frozenset[int]:
    return (await store.extend([Hold(one.id, one.fence) for one in given], until=NOW + 99)).stale


@pytest.mark.parametrize("verb", [settled, forgotten, renewed])
async def test_a_row_that_was_changed_while_it_was_waited_for_is_still_ours(
    pg_address: str, system_clock: Clock, verb: Callable[[Store, list[Task]], Awaitable[frozenset[int]]]
) -> None:
    """Its lease was renewed, or it was cancelled, by another transaction that ended just then."""
    where = read(pg_address)
    async with open_store(pg_address, system_clock) as store:
        given = await taken(store, task(), task(), task())
        async with await psycopg.AsyncConnection.connect(where.url) as other:
            await other.execute(f"UPDATE {where.schema}.task SET lease = lease WHERE id = {given[1].id}".encode())
            asked = asyncio.ensure_future(verb(store, given))
            while not await (await other.execute(WAITING)).fetchone():
                await asyncio.sleep(0.01)
        assert await asked == frozenset()


@pytest.mark.parametrize("verb", [settled, forgotten, renewed])
async def test_a_row_that_went_to_another_while_it_was_waited_for_is_not(
    pg_address: str, system_clock: Clock, verb: Callable[[Store, list[Task]], Awaitable[frozenset[int]]]
) -> None:
    where = read(pg_address)
    async with open_store(pg_address, system_clock) as store:
        given = await taken(store, task(), task(), task())
        async with await psycopg.AsyncConnection.connect(where.url) as other:
            await other.execute(f"UPDATE {where.schema}.task SET fence = 2 WHERE id = {given[1].id}".encode())
            asked = asyncio.ensure_future(verb(store, given))
            while not await (await other.execute(WAITING)).fetchone():
                await asyncio.sleep(0.01)
        assert await asked == {given[1].id}


async def test_limits_hold_over_all_stores(pg_address: str, system_clock: Clock) -> None:
    async with open_store(pg_address, system_clock) as first, open_store(pg_address, system_clock) as second:
        await first.put([task() for _ in range(100)], now=NOW)
        limits = {"concurrency": 12, "rate": 9, "per_s": 60.0}
        wants = [Want(queue="default", room=3, **limits)]  # type: ignore[arg-type]
        asked = [store.take(wants, owner="a", now=NOW) for _ in range(5) for store in (first, second)]
        taken = await asyncio.gather(*asked)
        assert sum(len(one.tasks) for one in taken) == 9
        wants = [Want(queue="default", room=3, concurrency=12)]
        asked = [store.take(wants, owner="a", now=NOW) for _ in range(5) for store in (first, second)]
        assert sum(len(one.tasks) for one in await asyncio.gather(*asked)) == 3


def _in_threads(address: str) -> list[list[int]]:
    with ThreadPoolExecutor(TAKERS) as pool:
        return list(pool.map(lambda number: asyncio.run(take_all(address, f"thread {number}")), range(TAKERS)))


def _in_processes(address: str) -> list[list[int]]:
    words = [sys.executable, "-m", "tests.system.test_postgres_crowd", address]
    root = Path(__file__).parents[2]
    started = [subprocess.Popen([*words, str(number)], stdout=subprocess.PIPE, cwd=root) for number in range(TAKERS)]
    return [json.loads(one.communicate()[0]) for one in started]


if __name__ == "__main__":
    print(json.dumps(asyncio.run(take_all(sys.argv[1], sys.argv[2]))))
