"""Who is told of tasks: nobody, as long as nobody else is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

import pytest
from psycopg import AsyncConnection

from raptor.clock import Clock
from raptor.state.base import Presence
from raptor.state.opening import open_store
from raptor.state.postgres.address import read
from raptor.state.postgres.session import SEEN_S
from raptor.state.postgres.store import PostgresStore
from raptor.testing.conformance.sample import NOW, task

WAIT_S = 30.0


def node(owner: str) -> Presence:
    return Presence(owner=owner, name=owner, host="here", pid=1, version="1", started=NOW)


@asynccontextmanager
async def shown(address: str, clock: Clock, owner: str, now: float = NOW) -> AsyncGenerator[PostgresStore]:
    async with open_store(address, clock) as opened:
        store = cast("PostgresStore", opened)
        store.watch()
        await store.appear(node(owner), now=now)
        yield store


class Ear:
    """Hears what all nodes are told."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def kinds(self) -> set[str]:
        """Of all that was told until now."""
        await self._connection.execute("SELECT 1")
        heard = self._connection.notifies(timeout=0)
        return {notify.payload.split()[0] async for notify in heard}


@asynccontextmanager
async def listening(address: str) -> AsyncGenerator[Ear]:
    found = read(address)
    async with await AsyncConnection.connect(found.url, autocommit=True) as connection:
        await connection.execute(f'LISTEN "{found.schema}.news"'.encode())
        yield Ear(connection)


async def heard_of(store: PostgresStore) -> None:
    async with asyncio.timeout(WAIT_S):
        while store.session.is_alone:
            await asyncio.sleep(0.001)  # the word comes over a socket, and nothing else tells of it


async def test_a_node_that_is_alone_tells_nobody_of_its_tasks(pg_address: str, system_clock: Clock) -> None:
    async with listening(pg_address) as ear, shown(pg_address, system_clock, "a") as store:
        assert await ear.kinds() == {"n"}
        for _ in range(3):
            await store.put([task()], now=NOW)
        await store.appear(node("a"), now=NOW)  # it announces itself once
        assert await ear.kinds() == set()


async def test_one_that_comes_is_told_from_then_on(pg_address: str, system_clock: Clock) -> None:
    async with listening(pg_address) as ear, shown(pg_address, system_clock, "a") as first:
        async with shown(pg_address, system_clock, "b") as second:
            await heard_of(first)
            assert await ear.kinds() == {"n"}
            for store in (first, second):
                await store.put([task()], now=NOW)
                assert await ear.kinds() == {"t"}
            await first.appear(node("a"), now=NOW + 1.0)  # it is seen, too
            assert not first.session.is_alone
            await second.vanish("b")
        await first.appear(node("a"), now=NOW + 2.0)
        assert first.session.is_alone


async def test_one_that_was_not_seen_for_long_counts_no_more(pg_address: str, system_clock: Clock) -> None:
    async with shown(pg_address, system_clock, "a") as first, shown(pg_address, system_clock, "b"):
        await first.appear(node("a"), now=NOW + SEEN_S)
        assert not first.session.is_alone
        await first.appear(node("a"), now=NOW + SEEN_S + 0.001)
        assert first.session.is_alone


@pytest.mark.parametrize("kind", ["put", "lost"])
async def test_one_that_does_not_know_tells_everybody(pg_address: str, system_clock: Clock, kind: str) -> None:
    """A program that only puts, and a node whose session was lost: it may have missed a word."""
    async with listening(pg_address) as ear, shown(pg_address, system_clock, "a") as store:
        if kind == "put":
            async with open_store(pg_address, system_clock) as other:
                await other.put([task()], now=NOW)
        else:
            assert store.session.is_alone
            async with await AsyncConnection.connect(read(pg_address).url, autocommit=True) as connection:
                await connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
                    " AND application_name LIKE '%session%'"
                )
            await heard_of(store)
            await store.put([task()], now=NOW)
        assert "t" in await ear.kinds()
