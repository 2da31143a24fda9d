"""Fixtures of the tests on PostgreSQL: one server for each test process, a new schema for each test."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest

from raptor.clock import Clock
from raptor.state.postgres.address import read
from raptor.state.postgres.opening import prepare
from raptor.state.postgres.store import PostgresStore
from tests.servers import WHEEL, Server, apart, running, scratch, spare_port

POOLER = "/usr/sbin/pgbouncer"


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """The address of a server that tests share: they may create what they like, and stop nothing."""
    named = os.environ.get("RAPTOR_TEST_PG", WHEEL)
    if named != WHEEL:
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


@pytest.fixture
def pooler(server_url: str) -> Iterator[int]:
    """The port of a pgbouncer that gives a server connection for a transaction alone: one, for all clients."""
    assert os.path.exists(POOLER), "there is no pgbouncer: run `make servers`"
    port, server = spare_port(), urlsplit(server_url)
    folder = scratch()
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n* = host=127.0.0.1 port={server.port} user=raptor\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
        f"listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 2\n"
        "logfile =\nadmin_users = raptor\n"
    )
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen([POOLER, folder / "pgbouncer.ini"], stdout=log, stderr=log, **apart())
    try:
        url = f"postgresql://raptor@127.0.0.1:{port}/postgres?connect_timeout=1"
        for _ in range(200):
            try:
                psycopg.connect(url).close()
                break
            except psycopg.OperationalError:
                assert process.poll() is None, (folder / "log").read_text()
        yield port
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)


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
