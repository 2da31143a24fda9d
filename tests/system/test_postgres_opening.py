"""Opening a store on PostgreSQL: many at once, and what is refused with advice."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import psycopg
import pytest

from raptor.clock import Clock, SystemClock
from raptor.commands import exit_code
from raptor.errors import BadInput, NotWritten, RefusedState
from raptor.state.base import Query, Want
from raptor.state.opening import open_store
from raptor.state.postgres import migration
from raptor.state.postgres.address import read
from raptor.state.postgres.migration import VERSION
from raptor.state.postgres.store import PostgresStore
from raptor.state.prospect import Prospect
from raptor.task import State
from raptor.testing.conformance.sample import NOW, move, task
from tests.servers import WHEEL, Server, running, spare_port


def change(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def schema_of(address: str) -> str:
    return read(address).schema


async def test_twenty_that_open_at_once_find_one_schema(pg_address: str, system_clock: Clock) -> None:
    async def opened(number: int) -> int:
        async with open_store(pg_address, system_clock) as store:
            ((id, _),) = await store.put([task(data=str(number))], now=NOW)
            return id

    ids = await asyncio.gather(*map(opened, range(20)))
    assert len(set(ids)) == 20
    async with open_store(pg_address, system_clock) as store:
        assert len(await store.find(Query())) == 20


def test_processes_that_open_at_once_find_one_schema(pg_address: str) -> None:
    program = (
        "import asyncio, sys\nfrom raptor.state.opening import open_store\n"
        "async def main():\n    async with open_store(sys.argv[1]) as store: await store.queues()\nasyncio.run(main())"
    )
    started = [subprocess.Popen([sys.executable, "-c", program, pg_address]) for _ in range(4)]
    assert [one.wait() for one in started] == [0] * 4


async def test_the_version_before_goes_along_and_two_ahead_is_refused(
    pg_address: str, server_url: str, system_clock: Clock
) -> None:
    async with open_store(pg_address, system_clock):
        pass
    schema = schema_of(pg_address)
    change(server_url, f"INSERT INTO {schema}.version (version) VALUES ({VERSION + 1})")
    async with open_store(pg_address, system_clock) as store:
        assert await store.queues() == []
    change(server_url, f"INSERT INTO {schema}.version (version) VALUES ({VERSION + 2})")
    with pytest.raises(RefusedState, match=r"newer Raptor.*upgrade this node"):
        async with open_store(pg_address, system_clock):
            pass


async def test_a_node_of_the_version_before_goes_on_while_the_schema_is_brought_up(
    pg_address: str, server_url: str, system_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes and settles by statements that know nothing of `shelf`, `listed` and `wave`."""
    monkeypatch.setattr(migration, "VERSION", VERSION - 1)
    async with open_store(pg_address, system_clock) as store:
        await store.put([task(data=str(number)) for number in range(4)], now=NOW)
    schema = schema_of(pg_address)
    take = (
        f"UPDATE {schema}.task SET state = 'taken', fence = fence + 1, owner = 'before', started = to_timestamp({NOW}),"
        f" lease = to_timestamp({NOW + 60}) WHERE state = 'ready' AND id = "
    )
    settle = f"UPDATE {schema}.task SET state = 'STATE', ended = ENDED, owner = NULL, lease = NULL WHERE id = "
    done, back = settle.replace("STATE", "done").replace("ENDED", "now()"), settle.replace("STATE", "ready")
    change(server_url, f"{take}1", f"{take}2")
    monkeypatch.setattr(migration, "VERSION", VERSION)
    async with open_store(pg_address, system_clock) as after:
        with psycopg.connect(server_url) as connection:
            newest = connection.execute(f"SELECT max(version) FROM {schema}.version".encode()).fetchone()
            assert newest == (VERSION,)
        assert [one.id for one in await after.find(Query(owners=("before",)))] == [1, 2]
        change(server_url, f"{done}1")
        ((_, second),) = [await after.find(Query(states=(State.DONE, State.TAKEN)))]
        assert not await after.settle([move(second, State.READY)], now=NOW)
        given = (await after.take([Want(queue="default", room=2)], owner="after", now=NOW)).tasks
        assert [one.id for one in given] == [2, 3]
        # Nodes of the version before take back what a dead node of this one had, and take it themselves.
        change(server_url, f"{back.replace('ENDED', 'NULL')}3", f"{take}3", f"{take}4")
        assert [one.id for one in await after.find(Query(owners=("before",)))] == [3, 4]
        assert [one.id for one in await after.find(Query(owners=("after",)))] == [2]
        ((counted),) = await after.stat(now=NOW)
        assert (counted.ready, counted.taken, counted.done) == (0, 3, 1)
        third, fourth = await after.find(Query(lapsed=NOW + 61, owners=("before",)))
        assert not await after.settle([move(third, State.DONE, ended=NOW), move(fourth, State.READY)], now=NOW)
        assert [one.id for one in (await after.take([Want(queue="default", room=9)], owner="b", now=NOW)).tasks] == [4]


async def test_what_was_taken_in_vain_is_found_when_a_node_of_the_version_before_takes_it(
    pg_address: str, server_url: str, system_clock: Clock
) -> None:
    async with open_store(pg_address, system_clock) as store:
        await store.put([task(), task(queue="b")], now=NOW)
        sure = asyncio.get_running_loop().create_future()
        wants = [Want(queue="default", room=1)]
        taking = asyncio.ensure_future(store.take(wants, owner="after", now=NOW, prospect=Prospect(sure)))
        await store.queues()
        sure.set_result(False)
        assert (await taking).tasks == []
        await store.take([Want(queue="b", room=1)], owner="after", now=NOW)  # stands where that did
        take = "UPDATE {}.task SET state = 'taken', fence = fence + 1, owner = 'before', lease = now() WHERE id = 1"
        change(server_url, take.format(schema_of(pg_address)))
        assert [one.id for one in await store.find(Query(owners=("before",)))] == [1]


@pytest.mark.parametrize("table", ["task (x int)", "version (x int)"])
async def test_a_foreign_table_of_the_same_name_is_refused_and_left_alone(
    pg_address: str, server_url: str, system_clock: Clock, table: str
) -> None:
    schema = schema_of(pg_address)
    change(server_url, f"CREATE SCHEMA {schema}", f"CREATE TABLE {schema}.{table}")
    with pytest.raises(RefusedState, match=r"not Raptor's.*schema=name") as caught:
        async with open_store(pg_address, system_clock):
            pass
    assert caught.value.kind == "foreign"
    with psycopg.connect(server_url) as connection:
        found = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = %s", (schema,)).fetchone()
    assert found == (1,)


@pytest.mark.parametrize(
    ("address", "advice"),
    [
        ("postgresql://localhost/x?schema=Bad-Name", "lower-case letters"),
        ("postgresql://localhost/x?pooler=transacton", "did you mean 'transaction'"),
        ("postgres://localhost/x?deep_sleep=maybe", "true or false"),
    ],
)
async def test_an_address_that_makes_no_sense_is_refused(address: str, advice: str, system_clock: Clock) -> None:
    with pytest.raises(BadInput, match=advice):
        async with open_store(address, system_clock):
            pass


async def test_a_database_that_is_not_there_is_told(server_url: str, system_clock: Clock) -> None:
    with pytest.raises(RefusedState, match="createdb"):
        async with open_store(server_url.rpartition("/")[0] + "/nowhere", system_clock):
            pass


async def test_a_server_that_is_not_there_is_unreachable(system_clock: Clock) -> None:
    with pytest.raises(NotWritten) as caught:
        async with open_store(f"postgresql://raptor@127.0.0.1:{spare_port()}/postgres", system_clock):
            pass
    assert caught.value.reason == "unreachable"
    assert exit_code(caught.value) == 3


def test_a_password_is_never_shown() -> None:
    assert "secret" not in read("postgresql://me:secret@host/db?schema=x").shown


@pytest.fixture
def guarded(own_server: Server) -> Server:
    """A server that asks for passwords."""
    change(own_server.url, "CREATE ROLE worker LOGIN PASSWORD 'right'")
    rules = "host all raptor 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
    (own_server.data / "pg_hba.conf").write_text(rules)
    change(own_server.url, "SELECT pg_reload_conf()")
    return own_server


def as_role(server: Server, role: str, password: str = "right") -> str:
    return f"postgresql://{role}:{password}@127.0.0.1:{server.port}/postgres"


async def test_roles_that_may_little(guarded: Server, system_clock: Clock) -> None:
    with pytest.raises(RefusedState, match="user and password"):
        async with open_store(as_role(guarded, "worker", "wrong"), system_clock):
            pass
    with pytest.raises(RefusedState, match=r"raptor store migrate.*GRANT"):
        async with open_store(as_role(guarded, "worker"), system_clock):
            pass
    async with open_store(guarded.url, system_clock):
        pass
    with pytest.raises(RefusedState, match="GRANT USAGE ON SCHEMA raptor"):
        async with open_store(as_role(guarded, "worker"), system_clock):
            pass
    change(
        guarded.url,
        "GRANT USAGE ON SCHEMA raptor TO worker",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA raptor TO worker",
    )
    async with open_store(as_role(guarded, "worker"), system_clock) as store:
        ((id, _),) = await store.put([task(key="k")], now=NOW)
        assert [one.id for one in await store.find(Query())] == [id]
        change(guarded.url, "REVOKE INSERT ON raptor.task FROM worker")
        with pytest.raises(RefusedState, match="GRANT SELECT, INSERT"):
            await store.put([task()], now=NOW)


async def test_a_replica_is_refused(own_server: Server, system_clock: Clock) -> None:
    own_server.stop()
    (own_server.data / "standby.signal").touch()
    own_server.start()
    with pytest.raises(RefusedState, match=r"read-only replica.*primary"):
        async with open_store(own_server.url, system_clock):
            pass


async def test_a_store_that_becomes_read_only_is_tried_again(own_server: Server, system_clock: Clock) -> None:
    async with open_store(own_server.url, system_clock) as store:
        change(own_server.url, "ALTER DATABASE postgres SET default_transaction_read_only = on")
        with pytest.raises(NotWritten) as caught:
            await store.put([task()], now=NOW)
        assert caught.value.reason == "readonly"
        writable = f"{own_server.url}?options=-c%20default_transaction_read_only%3Doff"
        change(writable, "ALTER DATABASE postgres RESET default_transaction_read_only")
        assert (await store.put([task()], now=NOW))[0].new


async def test_a_role_that_may_only_read_is_refused(own_server: Server, system_clock: Clock) -> None:
    change(own_server.url, "ALTER ROLE raptor SET default_transaction_read_only = on")
    with pytest.raises(RefusedState, match="read-only transactions"):
        async with open_store(own_server.url, system_clock):
            pass


async def test_what_the_server_promises_is_told(pg_address: str, system_clock: Clock) -> None:
    async with open_store(pg_address, system_clock) as store:
        assert isinstance(store, PostgresStore)
        assert store.durability is not None
        assert store.durability.is_full
        assert "synchronous_commit=on" in store.durability.line
    with running("fsync=off", "full_page_writes=off", "synchronous_commit=off") as careless:
        async with open_store(careless.url, system_clock) as store:
            assert isinstance(store, PostgresStore)
            assert store.durability is not None
            assert not store.durability.is_full
            for word in ("fsync=off", "full_page_writes=off", "loses the last commits"):
                assert word in store.durability.line


async def test_a_clock_that_is_off_follows_the_servers(pg_address: str) -> None:
    class Wrong(SystemClock):
        def now(self) -> float:
            return super().now() + 100.0

    clock, right = Wrong(), SystemClock()
    async with open_store(pg_address, clock) as store:
        assert isinstance(store, PostgresStore)
        assert round(store.skew_s) == 100
        assert abs(clock.now() - right.now()) < 2.0


async def test_the_wheel_of_the_test_extra_is_a_server_too(
    monkeypatch: pytest.MonkeyPatch, system_clock: Clock
) -> None:
    monkeypatch.setenv("RAPTOR_TEST_PG", WHEEL)
    with running() as server:
        async with open_store(server.url, system_clock) as store:
            assert isinstance(store, PostgresStore)
            assert store.durability is not None
            assert store.durability.version // 10000 >= 18
            ((id, _),) = await store.put([task(key="k")], now=NOW)
            (given,) = (await store.take([Want(queue="default", room=1)], owner="a", now=NOW)).tasks
            assert given.id == id
