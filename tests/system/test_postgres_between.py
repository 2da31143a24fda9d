"""What stands between a store and its server: a transaction pooler, TLS."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import uvloop

from raptor.clock import Clock, SystemClock
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


class Cutter:
    """Sits before a server: when it is armed, a client gets the first half of a long answer and a reset, in one."""

    def __init__(self, port: int) -> None:
        self.armed = False
        self.cuts = 0
        self._server = "127.0.0.1", port
        self._door = socket.create_server(("127.0.0.1", 0))
        self._door.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._door.fileno(), self._open)
        self._ends: dict[socket.socket, socket.socket] = {}
        self.port: int = self._door.getsockname()[1]

    def close(self) -> None:
        self._loop.remove_reader(self._door.fileno())
        self._door.close()
        for end in list(self._ends):
            self._let_go(end)

    def _open(self) -> None:
        client, server = self._door.accept()[0], socket.create_connection(self._server)
        self._ends |= {client: server, server: client}
        self._loop.add_reader(client.fileno(), self._pass_on, client, False)
        self._loop.add_reader(server.fileno(), self._pass_on, server, True)

    def _pass_on(self, end: socket.socket, is_answer: bool) -> None:
        if end not in self._ends:
            return
        other, data = self._ends[end], end.recv(1 << 16)
        is_cut = is_answer and self.armed and len(data) > 1000
        other.sendall(data[: len(data) // 2] if is_cut else data)
        if is_cut:
            self.armed = False
            self.cuts += 1
            other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if is_cut or not data:
            self._let_go(end)

    def _let_go(self, end: socket.socket) -> None:
        for one in (end, self._ends.get(end)):
            if one is not None and self._ends.pop(one, None) is not None:
                self._loop.remove_reader(one.fileno())
                one.close()


@pytest.mark.parametrize("loops", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_reset_that_comes_together_with_a_part_of_an_answer_is_heard(
    pg_address: str, monkeypatch: pytest.MonkeyPatch, loops: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """A lane waited for the rest until its call was given up, 20 seconds later, and all others with it."""
    monkeypatch.setattr(lane, "CALL_S", 3600.0)

    async def look() -> None:
        cutter = Cutter(urlsplit(pg_address).port or 0)
        address = pg_address.replace(f":{urlsplit(pg_address).port}/", f":{cutter.port}/")
        async with asyncio.timeout(20), open_store(address, SystemClock()) as store:
            await store.put([task(data=f'"{"x" * 100}"') for _ in range(100)], now=NOW)
            assert await store.queues() == ["default"]
            cutter.armed = True
            assert len(await store.find(Query())) == 100
            assert cutter.cuts == 1
        cutter.close()

    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(look())


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
