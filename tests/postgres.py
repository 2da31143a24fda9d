"""Fixtures of the tests on PostgreSQL: one server for each test process, a new schema for each test."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Iterator

import psycopg
import pytest

from raptor.clock import Clock
from raptor.state.postgres.address import read
from raptor.state.postgres.opening import prepare
from raptor.state.postgres.store import PostgresStore
from tests.servers import Server, running


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """The address of a server that tests share: they may create what they like, and stop nothing."""
    if named := os.environ.get("RAPTOR_TEST_PG"):
        yield named
        return
    with running() as server:
        yield server.url


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server of the test's own, to be stopped and killed."""
    with running() as server:
        yield server


@pytest.fixture
def pg_address(server_url: str) -> Iterator[str]:
    """The address of a new store, which is not there yet."""
    schema = f"raptor_{secrets.token_hex(6)}"
    yield f"{server_url}{'&' if '?' in server_url else '?'}schema={schema}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())


class Stores:
    """A store, opened again and again."""

    def __init__(self, address: str, clock: Clock) -> None:
        self._address = read(address)
        self._clock = clock
        asyncio.run(prepare(self._address, clock))
        self.store = PostgresStore(self._address, clock)

    async def open_again(self) -> PostgresStore:
        await self.store.close()
        await prepare(self._address, self._clock)
        self.store = PostgresStore(self._address, self._clock)
        return self.store

    async def close(self) -> None:
        await self.store.close()


@pytest.fixture
def pg_stores(pg_address: str, system_clock: Clock) -> Iterator[Stores]:
    stores = Stores(pg_address, system_clock)
    yield stores
    asyncio.run(stores.close())
