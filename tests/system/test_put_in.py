"""`raptor.put_in`: a task within a program's own transaction, on a real server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.rows import dict_row

import raptor
from raptor import Node, put_in, running, service
from raptor.clock import Clock
from raptor.errors import BadInput, NoSuchName, RefusedState
from raptor.state.base import Query
from raptor.state.opening import open_store
from raptor.state.postgres.address import read
from raptor.state.postgres.store import PostgresStore
from raptor.task import State, Task


@service(queue="mail", max_attempts=7, priority=2)
async def send_email(to: str, copies: list[str] | None = None) -> str:
    return f"sent to {to}"


@pytest.fixture
def schema(pg_address: str, system_clock: Clock) -> str:
    """Of a store that is there."""

    async def make() -> None:
        async with open_store(pg_address, system_clock):
            pass

    asyncio.run(make())
    return read(pg_address).schema


@pytest.fixture
def connection(server_url: str, pg_address: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(server_url) as one:
        yield one


def stored(address: str, clock: Clock) -> list[Task]:
    async def look() -> list[Task]:
        async with open_store(address, clock) as store:
            return await store.find(Query())

    return asyncio.run(look())


def test_what_is_committed_is_there_and_what_is_rolled_back_never_was(
    connection: psycopg.Connection[Any], pg_address: str, schema: str, system_clock: Clock
) -> None:
    connection.execute(f"CREATE TABLE {schema}.orders (id int)".encode())
    connection.commit()
    with connection.transaction():
        connection.execute(f"INSERT INTO {schema}.orders VALUES (1)".encode())
        assert put_in(connection, send_email, {"to": "a@b"}, schema=schema).new
        raise psycopg.Rollback
    assert stored(pg_address, system_clock) == []
    before = system_clock.now()
    with connection.transaction():
        placed = put_in(connection, send_email, {"to": "a@b"}, in_="30m", schema=schema)
        assert stored(pg_address, system_clock) == []
    (found,) = stored(pg_address, system_clock)
    assert (found.id, found.service, found.queue, found.priority) == (placed.id, "send_email", "mail", 2)
    assert (found.data, found.max_attempts, found.state) == ('{"to": "a@b", "copies": null}', 7, State.READY)
    assert before + 1795 < found.due < system_clock.now() + 1805
    assert round(found.due - found.created) == 1800


def test_a_savepoint_takes_its_task_along(
    connection: psycopg.Connection[Any], pg_address: str, schema: str, system_clock: Clock
) -> None:
    with connection.transaction():
        kept = put_in(connection, send_email, {"to": "kept"}, schema=schema)
        with connection.transaction():
            put_in(connection, send_email, {"to": "gone"}, schema=schema)
            raise psycopg.Rollback
    assert [one.id for one in stored(pg_address, system_clock)] == [kept.id]


def test_a_key_that_is_held_gives_its_task_and_may_be_replaced(
    connection: psycopg.Connection[Any], pg_address: str, schema: str, system_clock: Clock
) -> None:
    first = put_in(connection, "send_email", {"to": "a"}, key="k", in_="1h", schema=schema)
    second = put_in(connection, "send_email", {"to": "b"}, key="k", schema=schema)
    assert (first.new, second) == (True, (first.id, False))
    third = put_in(connection, "send_email", {"to": "c"}, key="k", key_for="1d", replace=True, schema=schema)
    assert third == (first.id, False)
    connection.commit()
    (found,) = stored(pg_address, system_clock)
    assert (found.data, found.key) == ('{"to": "c"}', "k")
    assert found.key_until is not None
    assert round(found.key_until - found.due) == 86400


def test_the_options_are_those_of_a_put(
    connection: psycopg.Connection[Any], pg_address: str, schema: str, system_clock: Clock
) -> None:
    when = datetime(2100, 1, 1, 12, 30, 0, 250_001, tzinfo=UTC)
    put_in(
        connection, send_email, {"to": "a"}, at=when, queue="far", priority=9, max_attempts="unlimited", active="2h",
        timeout="5m", parent=77, schema=schema,
    )  # fmt: skip
    put_in(connection, send_email, {"to": "a"}, every="10m", schema=schema)
    put_in(connection, send_email, {"to": "a"}, cron="0 2 * * *", timezone="UTC", schema=schema)
    put_in(connection, "any", "\0 is no jsonb", schema=schema)
    put_in(connection, "any", schema=schema)
    connection.commit()
    far, every, cron, odd, nothing = stored(pg_address, system_clock)
    assert (far.due, far.queue, far.priority, far.max_attempts) == (when.timestamp(), "far", 9, None)
    assert (far.active_s, far.timeout_s, far.parent) == (7200.0, 300.0, 77)
    assert every.timing is not None
    assert '"every_s":600.0' in every.timing
    assert cron.timing is not None
    assert cron.due % 86400 == 7200
    assert (odd.data, nothing.data) == ('"\\u0000 is no jsonb"', "null")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"data": {"to": 1}}, r"data: Expected `str`, got `int` - at `\$\.to`"),
        ({"data": {"to": "a", "copies": ["b", 2]}}, r"at `\$\.copies\[1\]`"),
        ({"data": {"to": "a"}, "priority": 10}, "priority"),
        ({"data": {"to": "a"}, "in_": "1h", "at": 5.0}, "give one of"),
        ({"data": {"to": "a"}, "schema": "Robert'); DROP"}, "lower-case letters"),
    ],
)
def test_what_does_not_fit_is_refused_and_the_transaction_goes_on(
    connection: psycopg.Connection[Any], pg_address: str, schema: str, system_clock: Clock, given: Any, said: str
) -> None:
    with connection.transaction():
        put_in(connection, send_email, {"to": "kept"}, schema=schema)
        with pytest.raises(BadInput, match=said):
            put_in(connection, send_email, **{"schema": schema, **given})
    assert [one.data for one in stored(pg_address, system_clock)] == ['{"to": "kept", "copies": null}']


def test_a_list_of_services_refuses_other_names(connection: psycopg.Connection[Any], schema: str) -> None:
    with pytest.raises(NoSuchName, match="did you mean 'send_email'"):
        put_in(connection, "send_emal", {"to": "a"}, services=[send_email], schema=schema)
    with pytest.raises(BadInput, match=r"\$\.to"):
        put_in(connection, "send_email", {"to": 3}, services=[send_email], schema=schema)
    assert put_in(connection, "other", [1], services=[send_email], force=True, schema=schema).new


async def test_an_async_connection_is_awaited(
    server_url: str, pg_address: str, schema: str, system_clock: Clock
) -> None:
    async with open_store(pg_address, system_clock) as store, await psycopg.AsyncConnection.connect(server_url) as one:
        async with one.transaction():
            await put_in(one, send_email, {"to": "gone"}, schema=schema)
            raise psycopg.Rollback
        async with one.transaction():
            first = await put_in(one, send_email, {"to": "a"}, key="k", schema=schema)
            with pytest.raises(BadInput, match=r"\$\.to"):
                await put_in(one, send_email, {"to": 1}, schema=schema)
            assert await put_in(one, send_email, {"to": "b"}, key="k", schema=schema) == (first.id, False)
        assert [found.id for found in await store.find(Query())] == [first.id]


async def test_the_commit_wakes_workers_and_nothing_before_it(
    server_url: str, pg_address: str, schema: str, system_clock: Clock
) -> None:
    async with open_store(pg_address, system_clock) as store, await psycopg.AsyncConnection.connect(server_url) as one:
        assert isinstance(store, PostgresStore)
        bell = store.listen()
        await store.queues()
        await put_in(one, send_email, {"to": "a"}, key="k", in_="1h", schema=schema)
        await store.queues()
        assert store.session.heard == 0
        await one.commit()
        async with asyncio.timeout(20):
            assert set(await bell.ring()) == {"mail"}
        before = system_clock.now()
        await put_in(one, send_email, {"to": "a"}, key="k", replace=True, schema=schema)
        await one.commit()
        async with asyncio.timeout(20):
            rung = await bell.ring()
        assert before - 5 < rung["mail"] < before + 60
        bell.close()


@pytest.mark.spec("000-10")
async def test_a_node_runs_what_a_program_beside_it_commits(
    server_url: str, pg_address: str, schema: str, system_clock: Clock
) -> None:
    async with (
        Node(services=[send_email], store=pg_address, clock=system_clock, listen=False) as node,
        await psycopg.AsyncConnection.connect(server_url, autocommit=True, row_factory=dict_row) as one,
    ):
        placed = await put_in(one, "send_email", {"to": "a@b"})  # its catalogue and its schema are the node's
        ended = await node.call("wait", id=placed.id, timeout_s=30.0)
        assert (ended["state"], ended["output"]) == ("done", "sent to a@b")
        with pytest.raises(NoSuchName):
            put_in(one, "nobody")
        with pytest.raises(BadInput, match=r"\$\.to"):
            put_in(one, "send_email", {"to": 1})


def test_a_synchronous_program_inside_a_node_puts_too(server_url: str, pg_address: str, tmp_path: Any) -> None:
    with (
        running(services=[send_email], store=pg_address, listen=False) as node,
        psycopg.connect(server_url, autocommit=True, cursor_factory=psycopg.ClientCursor) as one,
    ):
        placed = put_in(one, send_email, {"to": "a@b"})
        assert node.call("wait", id=placed.id, timeout_s=30.0)["output"] == "sent to a@b"


def test_behind_a_transaction_pooler(pooler: int, pg_address: str, schema: str, system_clock: Clock) -> None:
    where = read(pg_address)
    pooled = where.url.replace(f":{urlsplit(where.url).port}/", f":{pooler}/")
    with psycopg.connect(pooled, prepare_threshold=None) as one, psycopg.connect(pooled) as other:
        for number in range(10):
            put_in(one, send_email, {"to": str(number)}, schema=schema)
            one.commit()
            put_in(other, send_email, {"to": str(number)}, key=str(number), schema=schema)
            other.rollback()
    assert len(stored(pg_address, system_clock)) == 10


def test_a_role_that_may_only_put(
    connection: psycopg.Connection[Any], server_url: str, pg_address: str, schema: str, system_clock: Clock
) -> None:
    role = f"only_{schema}"
    connection.execute(f"CREATE ROLE {role} LOGIN".encode())
    connection.commit()
    try:
        with psycopg.connect(server_url.replace("raptor@", f"{role}@")) as one:
            with pytest.raises(RefusedState, match=f"gave no rights.*GRANT USAGE ON SCHEMA {schema}"):
                put_in(one, send_email, {"to": "a"}, schema=schema)
            one.rollback()
            connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}".encode())
            connection.execute(f"GRANT SELECT, INSERT ON {schema}.task TO {role}".encode())
            connection.commit()
            put_in(one, send_email, {"to": "a"}, schema=schema)
            put_in(one, send_email, {"to": "a"}, key="k", schema=schema)
    finally:
        connection.rollback()
        connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())
        connection.commit()
    assert len(stored(pg_address, system_clock)) == 2


def test_where_there_is_no_store_it_is_said(connection: psycopg.Connection[Any]) -> None:
    with pytest.raises(RefusedState, match="raptor store migrate"):
        put_in(connection, send_email, {"to": "a"}, schema="nowhere")


def test_what_is_no_connection_is_refused() -> None:
    wrong: Any = object()
    with pytest.raises(BadInput, match=r"psycopg 3 is expected, not object: SQLAlchemy"):
        put_in(wrong, send_email, {"to": "a"})


def test_raptor_itself_does_not_import_psycopg() -> None:
    program = "import sys, raptor; raptor.put_in, raptor.Node; sys.exit('psycopg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
    assert "put_in" in raptor.__all__
