"""What is taken on PostgreSQL is seen by everybody, whatever became of the takes before, and of those who took."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from raptor.clock import Clock
from raptor.errors import NotWritten
from raptor.state.base import Query
from raptor.state.opening import open_store
from raptor.state.postgres import link
from raptor.state.postgres.address import read
from raptor.state.postgres.migration import named
from raptor.state.postgres.taking import RUNNING, SUSPECTS
from raptor.state.prospect import Prospect
from raptor.task import State
from raptor.testing.conformance.rights import node
from raptor.testing.conformance.sample import NOW, move, put, take, task, want


def ask(address: str, *statements: str) -> list[str]:
    """The first column of the last answer."""
    where = read(address)
    with psycopg.connect(where.url, autocommit=True) as connection:
        connection.execute(link.SETTINGS.replace("{schema}", where.schema).encode())
        for statement in statements:
            cursor = connection.execute(named(statement, where.schema).encode())
        return [row[0] for row in cursor.fetchall()] if cursor.description else []


async def test_a_stale_verdict_hides_no_newer_take_of_its_task(pg_address: str, system_clock: Clock) -> None:
    async with open_store(pg_address, system_clock) as one, open_store(pg_address, system_clock) as other:
        await put(one, task())
        (first,) = await take(one, owner="one")
        (lapsed,) = await other.find(Query(lapsed=NOW + 61))
        assert not await other.settle([move(lapsed, State.READY)], now=NOW + 61)
        (second,) = await take(one, owner="one", now=NOW + 61)
        assert (second.id, second.fence) == (first.id, 2)
        assert await one.settle([move(first, State.DONE, ended=NOW)], now=NOW + 61) == {first.id}
        for _ in range(2):  # into the places of the list that are free by now
            await put(one, task(queue="others"))
            assert await take(one, owner="one", now=NOW + 62, queue="others")
        assert len(await other.find(Query(lapsed=NOW + 1000))) == 3
        await put(one, task(data="2"))
        assert await take(other, owner="other", now=NOW + 62, concurrency=1) == []


async def test_a_node_that_stands_still_in_a_take_keeps_nothing_from_the_others(
    pg_address: str, system_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others pass over rows that are locked, so nobody waits for it: whoever misses its heartbeats looks."""
    monkeypatch.setattr(link, "STUCK_S", 0.3)
    async with open_store(pg_address, system_clock) as still, open_store(pg_address, system_clock) as other:
        await put(other, task())
        await still.appear(node("still"), now=NOW)
        sure = asyncio.get_running_loop().create_future()
        looking = asyncio.ensure_future(still.take([want()], owner="still", now=NOW, prospect=Prospect(sure)))
        async with asyncio.timeout(20):
            while ask(pg_address, "SELECT id FROM raptor.task FOR UPDATE SKIP LOCKED"):  # until it has its eye on it
                await system_clock.sleep(0.05)
            while not await take(other, owner="other", now=NOW + 30):
                await other.appear(node("other"), now=NOW + 30)
                await system_clock.sleep(0.05)
        sure.set_result(True)
        with pytest.raises(NotWritten):
            await looking


async def test_a_key_that_is_held_for_ever_stops_no_take(pg_address: str, system_clock: Clock) -> None:
    async with open_store(pg_address, system_clock) as store:
        values = f"('work', to_timestamp({NOW}), 'k', 'infinity')"
        ask(pg_address, f"INSERT INTO raptor.task (service, due, key, key_until) VALUES {values}")
        await put(store, task())
        assert len(await take(store)) == 2


async def test_what_is_taken_by_hand_when_it_had_come_back_is_seen(pg_address: str, system_clock: Clock) -> None:
    async with open_store(pg_address, system_clock) as store:
        await put(store, task())
        (first,) = await take(store)
        await store.settle([move(first, State.READY)], now=NOW)
        await put(store, task(queue="others"))
        assert await take(store, queue="others")  # in its place in the list
        ask(pg_address, "UPDATE raptor.task SET state = 'taken', owner = 'me', lease = now() WHERE id = 1")
        assert [one.id for one in await store.find(Query(owners=("me",)))] == [1]


async def test_what_runs_is_found_by_its_ids_whatever_the_server_believes_of_the_table(
    pg_address: str, system_clock: Clock
) -> None:
    """A plan that was made while there was little is kept when there is much: it must not walk over what is ready."""
    async with open_store(pg_address, system_clock) as store:
        await put(store, *(task() for _ in range(3)))
        (first, *_) = await take(store, 3)
        await store.settle([move(first, State.DONE, ended=NOW)], now=NOW)
        running = RUNNING.replace("%s", "$1")
        plan = ask(pg_address, f"PREPARE one AS {running}", "EXPLAIN EXECUTE one('default')")
        assert any("task_pkey" in line for line in plan)
        assert not any("task_ready" in line for line in plan)
        suspects = SUSPECTS.replace("%s", "$1", 1).replace("%s", "$2::timestamptz")
        plan = ask(pg_address, f"PREPARE one AS {suspects}", "EXPLAIN EXECUTE one('{default}', now())")
        (cond,) = [line for line in plan if "Index Cond" in line]
        assert "queue = " in cond
        assert "suspect = true" in cond
        assert "due <= " in cond
