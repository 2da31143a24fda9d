"""What stands between a store and its server: a transaction pooler, TLS."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from raptor.clock import Clock
from raptor.errors import NotWritten
from raptor.rows import Line
from raptor.state.base import Query, Want
from raptor.state.opening import open_store
from raptor.state.postgres import lane
from raptor.state.postgres.address import read
from raptor.state.postgres.link import looked_at
from raptor.state.postgres.store import PostgresStore
from raptor.task import State
from raptor.testing.conformance.rights import node
from raptor.testing.conformance.sample import NOW, move, task
from tests.servers import Server, running


@pytest.mark.parametrize("said", ["&pooler=transaction", ""], ids=["said", "noticed"])
async def test_behind_a_transaction_pooler_everything_works_but_notifications(
    pg_address: str, pooler: int, system_clock: Clock, said: str
) -> None:
    address = f"{pg_address.replace(f':{urlsplit(pg_address).port}/', f':{pooler}/')}{said}"
    async with open_store(address, system_clock) as store, open_store(address, system_clock) as other:
        assert isinstance(store, PostgresStore)
        assert store.durability is not None
        assert "transaction pooler" in store.durability.line
        bell = store.listen()
        await asyncio.gather(*(store.put([task(data=str(number))], now=NOW) for number in range(20)))
        await bell.ring()
        await other.put([task(queue="far", key="k")], now=NOW)
        async with asyncio.timeout(20):
            while "far" not in await bell.ring():
                pass
        given = (await store.take([Want(queue="default", room=9, concurrency=5)], owner="a", now=NOW)).tasks
        assert len(given) == 5
        assert await store.settle([move(one, State.DONE, ended=NOW) for one in given], now=NOW) == frozenset()
        await store.save([("lines", "mail", Line(name="mail"))])
        assert set(await other.load("lines")) == {"mail"}
        assert [one.alive for one in await store.appear(node("a"), now=NOW)] == [True]
        assert len(await other.find(Query(states=(State.READY,)))) == 16
        bell.close()


async def test_behind_a_pooler_a_put_that_waits_for_longer_than_a_call_may_is_stored_once(
    pg_address: str, pooler: int, system_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a lock of the table: its commit is asked for by then, and would come when it is tried again."""
    monkeypatch.setattr(lane, "CALL_S", 1.0)
    where = read(pg_address)
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%INSERT INTO %.task%'"
    )
    address = f"{pg_address.replace(f':{urlsplit(pg_address).port}/', f':{pooler}/')}&pooler=transaction"
    async with open_store(address, system_clock) as store:
        await store.put([task(data="0")], now=NOW)
        with psycopg.connect(where.url) as holder, psycopg.connect(where.url, autocommit=True) as watcher:
            holder.execute(f"LOCK TABLE {where.schema}.task IN ACCESS EXCLUSIVE MODE".encode())
            putting = asyncio.ensure_future(store.put([task(data="1")], now=NOW))
            async with asyncio.timeout(20):
                while watcher.execute(waiting.encode()).fetchone() != (2,):  # it is tried again
                    await system_clock.sleep(0.05)
            holder.commit()
            ((id, new),) = await putting
            while watcher.execute(waiting.encode()).fetchone() != (0,):
                await system_clock.sleep(0.05)
        assert new
        assert [(one.id, one.data) for one in await store.find(Query())] == [(1, "0"), (id, "1")]


async def test_a_pooler_that_keeps_sessions_is_believed(pg_address: str, pooler: int, system_clock: Clock) -> None:
    address = pg_address.replace(f":{urlsplit(pg_address).port}/", f":{pooler}/")
    assert (await looked_at(read(pg_address))).pooler is False
    assert (await looked_at(read(address))).pooler is True
    assert (await looked_at(read(f"{address}&pooler=session"))).pooler is False


@pytest.fixture
def sealed(tmp_path: Path) -> Iterator[tuple[Server, Path]]:
    """A server that speaks TLS, and the certificate to know it by."""
    certificate, key = tmp_path / "root.crt", tmp_path / "root.key"
    words = ("-new", "-x509", "-days", "2", "-nodes", "-subj", "/CN=raptor", "-addext", "subjectAltName=IP:127.0.0.1")
    made = subprocess.run(["openssl", "req", *words, "-out", certificate, "-keyout", key], check=False)
    assert made.returncode == 0
    with running() as server:
        owner = server.data.stat()
        for path, name in ((certificate, "server.crt"), (key, "server.key")):
            copy = server.data / name
            copy.write_bytes(path.read_bytes())
            copy.chmod(0o600)
            os.chown(copy, owner.st_uid, owner.st_gid)
        with psycopg.connect(server.url, autocommit=True) as connection:
            try:
                connection.execute("ALTER SYSTEM SET ssl = on")
            except psycopg.errors.InvalidParameterValue as error:  # the wheel's
                raise AssertionError("this PostgreSQL speaks no TLS: run `make servers`") from error
            connection.execute("SELECT pg_reload_conf()")
        yield server, certificate


async def test_tls_is_libpqs(sealed: tuple[Server, Path], tmp_path: Path, system_clock: Clock) -> None:
    server, certificate = sealed
    async with open_store(f"{server.url}?sslmode=verify-full&sslrootcert={certificate}", system_clock) as store:
        assert (await store.put([task()], now=NOW))[0].new
    stranger = tmp_path / "stranger.crt"
    stranger.write_text("")
    with pytest.raises(NotWritten):
        async with open_store(f"{server.url}?sslmode=verify-full&sslrootcert={stranger}", system_clock):
            pass
