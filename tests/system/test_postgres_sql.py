"""PostgreSQL as other programs see it: a plain INSERT, raptor.put, the views; and what they wake."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import psycopg
import pytest

from raptor.clock import Clock
from raptor.rows import Line
from raptor.state.base import Query, Want
from raptor.state.opening import open_store
from raptor.state.postgres import session
from raptor.state.postgres.address import read
from raptor.state.postgres.migration import named
from raptor.state.postgres.store import PostgresStore
from raptor.task import State
from raptor.testing.conformance.rights import node
from raptor.testing.conformance.sample import NOW, move, task


def run(address: str, statement: str) -> list[tuple[Any, ...]]:
    """As psql would."""
    where = read(address)
    with psycopg.connect(where.url, autocommit=True) as connection:
        cursor = connection.execute(named(statement, where.schema).encode())
        return cursor.fetchall() if cursor.description else []


@pytest.mark.spec("000-09")
async def test_a_plain_insert_is_a_task_and_wakes_workers(pg_address: str, system_clock: Clock) -> None:
    async with open_store(pg_address, system_clock) as store:
        bell = store.listen()
        await store.queues()
        insert = (
            "INSERT INTO raptor.task (service, data, due) VALUES"
            " ('mail', '{\"to\": 1}', to_timestamp(5)), ('mail', '2', to_timestamp(3))"
        )
        await system_clock.offload(run, pg_address, insert)
        async with asyncio.timeout(20):
            assert await bell.ring() == {"default": 3.0}
        first, second = (await store.take([Want(queue="default", room=9)], owner="a", now=NOW)).tasks
        assert (first.data, second.data, second.service) == ("2", '{"to": 1}', "mail")
        assert (first.priority, first.max_attempts, first.attempts, first.key) == (5, 3, 0, None)
        bell.close()


async def test_put_in_sql_has_the_options_of_a_put(pg_address: str, system_clock: Clock) -> None:
    async with open_store(pg_address, system_clock) as store:
        bell = store.listen()
        await store.queues()
        before = system_clock.now()
        ((id,),) = run(
            pg_address,
            "SELECT raptor.put('send_email', '{\"to\": \"a@b\"}', in_seconds => 1800, queue => 'mail', priority => 2,"
            " key => 'k', max_attempts => 7)",
        )
        assert run(pg_address, "SELECT raptor.put('send_email', key => 'k')") == [(id,)]
        async with asyncio.timeout(20):
            assert set(await bell.ring()) == {"mail"}
        (found,) = await store.find(Query())
        assert (found.id, found.queue, found.priority, found.key, found.max_attempts) == (id, "mail", 2, "k", 7)
        assert before + 1799 < found.due < system_clock.now() + 1801
        run(pg_address, "SELECT raptor.put('now')")
        ((due,),) = run(pg_address, "SELECT due <= clock_timestamp() FROM raptor.task WHERE service = 'now'")
        assert due
        bell.close()


@pytest.mark.parametrize(
    "values",
    [
        "service => NULL",
        "service => 'no such name!'",
        "service => 'x', priority => 10",
        "service => 'x', max_attempts => 0",
        "service => 'x', in_seconds => 1, at => now()",
        "service => 'x', at => 'infinity'",
        "service => 'x', queue => repeat('q', 401)",
    ],
)
async def test_what_makes_no_sense_is_refused_by_the_database(
    pg_address: str, system_clock: Clock, values: str
) -> None:
    async with open_store(pg_address, system_clock) as store:
        with pytest.raises((psycopg.IntegrityError, psycopg.DataError)):
            run(pg_address, f"SELECT raptor.put({values})")
        assert await store.find(Query()) == []


async def test_the_views_are_for_people(pg_address: str, system_clock: Clock) -> None:
    async with open_store(pg_address, system_clock) as store:
        await store.put([task(), task(due=4e9), task(queue="mail")], now=NOW)
        (given,) = (await store.take([Want(queue="mail", room=9)], owner="a", now=NOW)).tasks
        await store.settle([move(given, State.DEAD, ended=NOW + 1, error="e", reason="failed")], now=NOW)
        status = run(pg_address, "SELECT queue, ready, delayed, taken, dead FROM raptor.queue_status")
        assert status == [("default", 1, 1, 0, 0), ("mail", 0, 0, 0, 1)]
        assert run(pg_address, "SELECT service, outcome, error FROM raptor.recent_runs") == [("work", "dead", "e")]


async def test_two_stores_hear_of_each_other(pg_address: str, system_clock: Clock) -> None:
    async with open_store(pg_address, system_clock) as here, open_store(pg_address, system_clock) as there:
        bell, watch = here.listen(), here.watch()
        await here.queues()
        await there.put([task(queue="far", due=NOW + 7.25)], now=NOW)
        async with asyncio.timeout(20):
            assert await bell.ring() == {"far": NOW + 7.25}
        await there.save([("lines", "far away", Line(name="far away"))])
        async with asyncio.timeout(20):
            assert await watch.ring() == {("lines", "far away")}
        await there.put([task()], now=NOW)
        (given,) = (await here.take([Want(queue="default", room=9)], owner="a", now=NOW)).tasks
        await there.cancel([given.id], now=NOW, reason="x")
        async with asyncio.timeout(20):
            assert await watch.ring() == {("unwanted", str(given.id))}
        bell.close()
        watch.close()


async def test_a_take_that_goes_on_from_the_last_misses_nothing_that_is_earlier(
    pg_address: str, system_clock: Clock
) -> None:
    async with open_store(pg_address, system_clock) as here, open_store(pg_address, system_clock) as there:

        async def take(room: int) -> list[str | bytes]:
            return [one.data for one in (await here.take([Want(queue="default", room=room)], owner="a", now=NOW)).tasks]

        bell = here.listen()
        await here.queues()
        await here.put([task(data=str(number), due=NOW - 50.0) for number in range(10)], now=NOW)
        await here.put([task(data="urgent", due=NOW - 10.0, priority=4)], now=NOW)
        await bell.ring()
        assert await take(2) == ["urgent", "0"]
        assert await take(2) == ["1", "2"]
        await here.put([task(data="more urgent", priority=1)], now=NOW)
        await here.put([task(data="earlier", due=NOW - 60.0)], now=NOW)
        assert await take(3) == ["more urgent", "earlier", "3"]
        await bell.ring()
        await there.put([task(data="elsewhere", due=NOW - 60.0)], now=NOW)
        async with asyncio.timeout(20):
            await bell.ring()
        assert await take(2) == ["elsewhere", "4"]
        quiet = (
            "SET raptor.quiet = 'on';"
            " INSERT INTO raptor.task (service, data, due) VALUES ('work', '\"quiet\"', to_timestamp(3))"
        )
        await system_clock.offload(run, pg_address, quiet)
        assert sorted(map(str, await take(9))) == [
            '"quiet"',
            "5",
            "6",
            "7",
            "8",
            "9",
        ]  # it found less than it asked for
        bell.close()


@pytest.mark.spec("000-09", "000-12")
async def test_without_notifications_a_poll_finds_what_is_there(pg_address: str, system_clock: Clock) -> None:
    async with open_store(pg_address, system_clock) as store:
        bell = store.listen()
        await store.queues()
        quiet = "SET raptor.quiet = 'on'; INSERT INTO raptor.task (service, due) VALUES ('mail', to_timestamp(3))"
        await system_clock.offload(run, pg_address, quiet)
        async with asyncio.timeout(20):
            assert await bell.ring() == {"default": 3.0}
        bell.close()


async def test_after_a_lost_session_everything_is_looked_at(pg_address: str, system_clock: Clock) -> None:
    async with open_store(pg_address, system_clock) as store:
        bell, watch = store.listen(), store.watch()
        await store.put([task(queue="later", due=4e9)], now=NOW)
        await bell.ring()
        kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'raptor session'"
        await system_clock.offload(run, pg_address, kill)
        async with asyncio.timeout(20):
            assert ("", "") in await watch.ring()
            assert (await bell.ring())["later"] == 4e9
        bell.close()
        watch.close()


async def test_an_owner_whose_session_is_gone_is_gone_after_a_beat(pg_address: str, system_clock: Clock) -> None:
    async with open_store(pg_address, system_clock) as here:
        async with open_store(pg_address, system_clock) as there:
            await there.appear(node("b"), now=NOW)
            await there.claim(["scheduler:main"], owner="b", now=NOW, lease_s=60.0)
            await here.appear(node("a"), now=NOW + 6.0)
            assert [one.alive for one in await here.nodes(now=NOW + 6.0)] == [True, True]
            grants = await here.claim(["scheduler:main"], owner="a", now=NOW + 6.0, lease_s=60.0)
            assert grants["scheduler:main"].owner == "b"
        async with asyncio.timeout(20):  # the server hears of the end of a connection a little later
            while all(one.alive for one in await here.nodes(now=NOW + 6.0)):
                await asyncio.sleep(0)
        assert [one.alive for one in await here.nodes(now=NOW + 5.0)] == [True, True]
        grants = await here.claim(["scheduler:main"], owner="a", now=NOW + 6.0, lease_s=60.0)
        assert (grants["scheduler:main"].owner, grants["scheduler:main"].fence) == ("a", 2)


def test_a_statement_for_another_schema_names_it_everywhere() -> None:
    assert named("SELECT raptor.put('x') FROM raptor.task -- 'raptor.news'", "other") == (
        "SELECT other.put('x') FROM other.task -- 'other.news'"
    )


@pytest.mark.parametrize(("option", "polls"), [("", False), ("&deep_sleep=false", True), ("&pooler=transaction", True)])
async def test_after_a_quiet_minute_there_are_no_more_polls(
    pg_address: str, system_clock: Clock, monkeypatch: pytest.MonkeyPatch, option: str, polls: bool
) -> None:
    monkeypatch.setattr(session, "POLL_S", 0.001)
    monkeypatch.setattr(session, "EMPTY", 5)
    looks = asyncio.Event()
    count = 0
    async with open_store(pg_address + option, system_clock) as store:
        assert isinstance(store, PostgresStore)
        look = store.session.earliest

        async def counted() -> Mapping[str, float]:
            nonlocal count
            count += 1
            if count >= 5:
                looks.set()
            return await look()

        store.session.earliest = counted
        bell = store.listen()
        async with asyncio.timeout(20):
            await looks.wait()
            await store.queues()
            assert store.session.is_polling() is polls
        await store.put([task()], now=NOW)
        assert store.session.is_polling()
        bell.close()
