"""A commit whose answer is lost is neither repeated nor given up; a server that goes away comes back to all of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from typing import cast
from urllib.parse import urlsplit

import psycopg
import pytest

from raptor.clock import Clock
from raptor.durably import Durably
from raptor.errors import NotWritten
from raptor.events import Events
from raptor.rows import Definition
from raptor.state.base import Query, Want
from raptor.state.opening import open_store
from raptor.state.postgres import lane, link
from raptor.state.postgres.address import read
from raptor.state.postgres.store import PostgresStore
from raptor.task import State, Task
from raptor.testing.conformance.sample import NOW, move, task
from tests.servers import Server
from tests.system.proxy import Proxy, proxied

CUTS = ["before", "after"]


@asynccontextmanager
async def behind_a_proxy(address: str, clock: Clock) -> AsyncGenerator[tuple[PostgresStore, Proxy]]:
    port = urlsplit(address).port
    assert port is not None
    async with (
        proxied(port) as proxy,
        open_store(address.replace(f":{port}/", f":{proxy.port}/"), clock) as store,
    ):
        yield cast("PostgresStore", store), proxy


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("key", [None, "k"])
async def test_a_put_whose_commit_is_unknown_is_stored_once(
    pg_address: str, system_clock: Clock, cut: str, key: str | None
) -> None:
    async with behind_a_proxy(pg_address, system_clock) as (store, proxy):
        await store.put([task(key="other")], now=NOW)
        await store.put([task()], now=NOW)
        proxy.cut = cut
        placed = await store.put([task(data="1", key=key), task(data="2")], now=NOW)
        assert proxy.cuts == 1
        assert [new for _, new in placed] == [True, True]
        found = await store.find(Query())
        assert [(one.id, one.data) for one in found][2:] == [(placed[0].id, "1"), (placed[1].id, "2")]


@pytest.mark.parametrize("cut", CUTS)
async def test_puts_that_share_an_unknown_commit_are_stored_once(
    pg_address: str, system_clock: Clock, cut: str
) -> None:
    async with behind_a_proxy(pg_address, system_clock) as (store, proxy):
        await store.put([task()], now=NOW)
        proxy.cut = cut
        placed = await asyncio.gather(*(store.put([task(data=str(number))], now=NOW) for number in range(20)))
        found = {one.id: one.data for one in await store.find(Query())}
        assert len(found) == 21
        assert [found[id] for ((id, _),) in placed] == [str(number) for number in range(20)]


@pytest.mark.parametrize("cut", CUTS)
async def test_a_long_put_whose_commit_is_unknown_is_told_all_of_its_ids(
    pg_address: str, system_clock: Clock, cut: str
) -> None:
    async with behind_a_proxy(pg_address, system_clock) as (store, proxy):
        await store.put([task()], now=NOW)
        proxy.cut = cut
        many = [task(data=str(number), priority=number % 3) for number in range(5000)]
        placed = await store.put(many, now=NOW)
        assert proxy.cuts == 1
        found = {one.id: one.data for one in await store.find(Query(limit=6000))}
        assert [found[id] for id, _ in placed] == [one.data for one in many]
        assert len(found) == 5001


@pytest.mark.parametrize("cut", CUTS)
async def test_a_take_whose_commit_is_unknown_gives_each_task_once(
    pg_address: str, system_clock: Clock, cut: str
) -> None:
    async with behind_a_proxy(pg_address, system_clock) as (store, proxy):
        await store.put([task() for _ in range(5)], now=NOW)
        proxy.cut = cut
        given = await store.take([Want(queue="default", room=3)], owner="a", now=NOW)
        assert (len(given.tasks), proxy.cuts) == (3, 1)
        assert [one.id for one in await store.find(Query(states=(State.TAKEN,)))] == [one.id for one in given.tasks]


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("keep", [True, False])
async def test_a_settle_whose_commit_is_unknown_counts_once(
    pg_address: str, system_clock: Clock, cut: str, keep: bool
) -> None:
    async with behind_a_proxy(pg_address, system_clock) as (store, proxy):
        await store.put([task(), task()], now=NOW)
        given = (await store.take([Want(queue="default", room=2)], owner="a", now=NOW)).tasks
        proxy.cut = cut
        moves = [move(one, State.DONE, ended=NOW, keep=keep, successor=task(data="next")) for one in given]
        assert await store.settle(moves, now=NOW) == frozenset()
        assert proxy.cuts == 1
        states = [one.state for one in await store.find(Query())]
        assert states == [*([State.DONE] * 2 if keep else []), State.READY, State.READY]


@pytest.mark.parametrize("cut", CUTS)
async def test_a_put_whose_commit_is_unknown_waits_for_a_server_that_cannot_be_reached(
    pg_address: str, system_clock: Clock, cut: str
) -> None:
    async with behind_a_proxy(pg_address, system_clock) as (store, proxy):
        await store.put([task()], now=NOW)
        proxy.cut, proxy.refuses = cut, True
        waiting = asyncio.ensure_future(store.put([task(data="1")], now=NOW))
        while proxy.refused < 3:
            assert not waiting.done(), waiting.exception()  # to say that it was not written would be a guess
            await asyncio.sleep(0.01)
        proxy.refuses = False
        ((id, new),) = await asyncio.wait_for(waiting, 30)
        assert [(one.id, one.data) for one in await store.find(Query())][1:] == [(id, "1")]
        assert new


async def test_what_was_taken_for_one_who_did_not_wait_is_given_to_the_next(
    pg_address: str, system_clock: Clock
) -> None:
    async with behind_a_proxy(pg_address, system_clock) as (store, _):
        await store.put([task()], now=NOW)
        wants = [Want(queue="default", room=1)]
        impatient = asyncio.ensure_future(store.take(wants, owner="a", now=NOW))
        await asyncio.sleep(0)
        impatient.cancel()
        await store.put([task(due=NOW + 99)], now=NOW)
        given = await store.take(wants, owner="a", now=NOW)
        assert [one.fence for one in given.tasks] == [1]


async def test_a_put_goes_on_without_its_caller_and_holds_up_nobody(pg_address: str, system_clock: Clock) -> None:
    async with behind_a_proxy(pg_address, system_clock) as (store, _):
        await store.put([task()], now=NOW)
        impatient = asyncio.ensure_future(store.put([task(data="1")], now=NOW))
        await asyncio.sleep(0)
        impatient.cancel()
        (placed,) = await store.put([task(data="2")], now=NOW)
        found = await store.find(Query())
        assert [one.data for one in found] == ["null", "1", "2"]
        assert found[2].id == placed.id


@pytest.mark.parametrize("before", [1, 2], ids=["waiting", "sent"])
async def test_a_put_that_is_under_way_ends_with_its_store(pg_address: str, system_clock: Clock, before: int) -> None:
    """The second in a row is sent when it is asked for."""
    async with behind_a_proxy(pg_address, system_clock) as (store, _):
        for _ in range(before - 1):
            await store.put([task()], now=NOW)
        under_way = asyncio.ensure_future(store.put([task()], now=NOW))
        await asyncio.sleep(0)
    done, _ = await asyncio.wait({under_way}, timeout=30.0)
    assert done
    assert under_way.cancelled() or under_way.exception() is None


async def test_a_server_that_is_away_is_told_and_tried_again(pg_address: str, system_clock: Clock) -> None:
    async with behind_a_proxy(pg_address, system_clock) as (store, proxy):
        await store.put([task()], now=NOW)
        proxy.refuses = True
        proxy.reset()
        await asyncio.gather(*proxy.serving)  # until then nobody can know
        with pytest.raises(NotWritten) as caught:
            await store.put([task()], now=NOW)
        assert caught.value.reason == "unreachable"
        proxy.refuses = False
        assert (await store.put([task()], now=NOW))[0].new
        assert len(await store.find(Query())) == 2


async def test_a_network_that_hangs_holds_up_nobody_for_ever(
    pg_address: str, system_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "CALL_S", 0.5)
    monkeypatch.setitem(link.BOUNDS, "connect_timeout", 2)
    async with behind_a_proxy(pg_address, system_clock) as (store, proxy):
        await store.put([task()], now=NOW)
        proxy.hang()
        with pytest.raises(NotWritten):
            await store.put([task()], now=NOW)
        proxy.go_on()
        await store.save([("definitions", "main", Definition(name="main"))])
        assert (await store.put([task()], now=NOW))[0].new


@pytest.mark.timeout(120)
async def test_a_server_that_is_killed_loses_and_doubles_nothing(own_server: Server, system_clock: Clock) -> None:
    durably = Durably("test", system_clock, Events(system_clock))
    acknowledged: list[int] = []
    done: set[int] = set()
    async with open_store(own_server.url, system_clock) as store:

        async def putter() -> None:
            for number in range(60):
                tasks = [Task(service="work", data=str(number), due=0.0)]
                placed = await durably(lambda tasks=tasks: store.put(tasks, now=NOW))  # type: ignore[misc]
                acknowledged.extend(id for id, _ in placed)

        async def worker(owner: str) -> None:
            while len(done) < 240:
                wants = [Want(queue="default", room=5)]
                given = await durably(lambda wants=wants: store.take(wants, owner=owner, now=NOW))  # type: ignore[misc]
                moves = [move(one, State.DONE, ended=NOW) for one in given.tasks]
                stale = await durably(lambda moves=moves: store.settle(moves, now=NOW))  # type: ignore[misc]
                assert stale == frozenset()
                for one in given.tasks:
                    assert one.id not in done
                    assert one.fence == 1
                    done.add(one.id)
                await asyncio.sleep(0)

        async def killer() -> None:
            for after in (40, 120):
                while len(acknowledged) < after:
                    await asyncio.sleep(0.01)
                await system_clock.offload(own_server.kill)
                await system_clock.offload(own_server.start)

        async with asyncio.timeout(100):
            await asyncio.gather(killer(), *(putter() for _ in range(4)), worker("a"), worker("b"))
        found = await store.find(Query(limit=1000))
    assert sorted(acknowledged) == [one.id for one in found]
    assert {one.state for one in found} == {State.DONE}
    assert {one.fence for one in found} == {1}


async def test_a_node_that_stands_still_in_a_transaction_holds_nobody_up(
    pg_address: str, system_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped after its statements and before the end of its transaction, it would keep their locks for ever."""
    monkeypatch.setattr(link, "STUCK_S", 0.5)
    where = read(pg_address)
    async with open_store(pg_address, system_clock) as store:
        await store.put([task()], now=NOW)
        (one,) = (await store.take([Want(queue="default", room=1)], owner="a", now=NOW)).tasks
        with closing(psycopg.connect(where.url, application_name="raptor tasks", autocommit=True)) as stuck:
            stuck.pgconn.enter_pipeline_mode()
            stuck.pgconn.send_query_params(f"UPDATE {where.schema}.task SET lease = lease".encode(), None)
            stuck.pgconn.send_flush_request()
            stuck.pgconn.flush()
            assert await store.settle([move(one, State.DONE, ended=NOW)], now=NOW) == frozenset()
        assert [(found.state, found.fence) for found in await store.find(Query())] == [(State.DONE, 1)]
