"""Rows that somebody writes by SQL and that make no sense: refused by the database, or parked alone with a reason."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import psycopg
import pytest

from raptor import Node, service
from raptor.clock import Clock
from raptor.errors import BadInput
from raptor.state.base import Query
from raptor.state.opening import open_store
from raptor.state.postgres.address import read
from raptor.testing.conformance.sample import NOW, task
from tests.postgres import Stores


@service
async def greet(name: str) -> str:
    return f"hello {name}"


GOOD = "service => 'greet', data => '{\"name\": \"ann\"}'"

REFUSED = {
    "taken by nobody": "INSERT INTO {0}.task (service, state) VALUES ('greet', 'taken')",
    "taken without end": "INSERT INTO {0}.task (service, state, owner) VALUES ('greet', 'taken', 'x')",
    "an unknown state": "INSERT INTO {0}.task (service, state) VALUES ('greet', 'lost')",
    "no name": "INSERT INTO {0}.task (service) VALUES ('')",
    "no such name": "INSERT INTO {0}.task (service) VALUES ('rm -rf')",
    "no service": "INSERT INTO {0}.task (data) VALUES ('1')",
    "no time": "INSERT INTO {0}.task (service, due) VALUES ('greet', NULL)",
    "due never": "INSERT INTO {0}.task (service, due) VALUES ('greet', 'infinity')",
    "made never": "INSERT INTO {0}.task (service, created) VALUES ('greet', 'infinity')",
    "a long key": "INSERT INTO {0}.task (service, key) VALUES ('greet', repeat('k', 256))",
    "no attempts": "INSERT INTO {0}.task (service, max_attempts) VALUES ('greet', 0)",
    "attempts below none": "INSERT INTO {0}.task (service, attempts) VALUES ('greet', -1)",
    "a priority": "INSERT INTO {0}.task (service, priority) VALUES ('greet', 10)",
    "no number of seconds": "INSERT INTO {0}.task (service, timeout_s) VALUES ('greet', 'NaN')",
    "seconds without end": "INSERT INTO {0}.task (service, active_s) VALUES ('greet', 'infinity')",
    "data twice": "INSERT INTO {0}.task (service, data, body) VALUES ('greet', '1', 'x')",
    "no JSON": "INSERT INTO {0}.task (service, data) VALUES ('greet', '{{')",
    "a second of one key": "INSERT INTO {0}.task (service, key) VALUES ('greet', 'k'), ('greet', 'k')",
}

PARKED = {
    "data that do not fit": ("INSERT INTO {0}.task (service, data) VALUES ('greet', '{{\"name\": 3}}')", "bad payload"),
    "no data": ("INSERT INTO {0}.task (service) VALUES ('greet')", "bad payload"),
    "a body of nonsense": ("INSERT INTO {0}.task (service, data, body) VALUES ('greet', NULL, '\\xff00')", "payload"),
    "a timing of nonsense": (
        "INSERT INTO {0}.task (service, data, timing) VALUES ('greet', '{{\"name\": \"x\"}}', 'often')",
        "timing makes no sense",
    ),
    "a history of nonsense": (
        "INSERT INTO {0}.task (service, data, history) VALUES ('greet', '{{\"name\": \"x\"}}', 'long')",
        "damaged",
    ),
}


@pytest.mark.parametrize("wrong", REFUSED.values(), ids=REFUSED)
async def test_the_database_refuses_it(pg_stores: object, pg_address: str, wrong: str) -> None:
    where = read(pg_address)
    with psycopg.connect(where.url, autocommit=True) as connection:
        with pytest.raises((psycopg.IntegrityError, psycopg.DataError)):
            connection.execute(wrong.format(where.schema).encode())
        assert connection.execute(f"SELECT count(*) FROM {where.schema}.task".encode()).fetchone() == (0,)


@pytest.mark.parametrize(
    ("column", "values", "may_hold"),
    [
        ("queue", "repeat('q', 401)", "400 bytes"),
        ("key", "repeat('k', 256)", "255 characters"),
        ("due", "'-infinity'", "a time"),
        ("max_attempts", "0", "1 or more"),
        ("encoding", "'latin1'", "utf8"),
        ("timeout_s", "-1", "seconds"),
    ],
)
async def test_the_refusal_names_the_column_and_what_it_may_hold(
    pg_stores: object, pg_address: str, column: str, values: str, may_hold: str
) -> None:
    where = read(pg_address)
    rows = f"INSERT INTO {where.schema}.task (service, {column}) VALUES ('greet', DEFAULT), ('greet', {values})"
    with psycopg.connect(where.url, autocommit=True) as connection:
        with pytest.raises(psycopg.errors.CheckViolation, match=f"its {column} is .*{may_hold}") as caught:
            connection.execute(rows.encode())
        assert caught.value.diag.column_name == column
        assert connection.execute(f"SELECT count(*) FROM {where.schema}.task".encode()).fetchone() == (0,)


@pytest.mark.parametrize(
    "change", ["state = 'lost'", "state = 'taken'", "state = 'taken', owner = 'x'", "priority = 10", "priority = -1"]
)
async def test_a_change_by_hand_cannot_lose_a_task(pg_stores: object, pg_address: str, change: str) -> None:
    where = read(pg_address)
    with psycopg.connect(where.url, autocommit=True) as connection:
        connection.execute(f"SELECT {where.schema}.put({GOOD})".encode())
        with pytest.raises(psycopg.errors.CheckViolation):
            connection.execute(f"UPDATE {where.schema}.task SET {change}".encode())


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize(
    "wrong",
    [
        {"queue": "ä" * 201},
        {"service": ""},
        {"service": "rm -rf"},
        {"service": "x\n"},
        {"service": "x" * 101},
        {"max_attempts": -1},
        {"active_s": nan},
        {"timeout_s": inf},
        {"timeout_s": -1.0},
        {"key": "k" * 256},
    ],
)
async def test_raptor_refuses_it_of_its_own(pg_stores: Stores, wrong: dict[str, Any], key: str | None) -> None:
    with pytest.raises(BadInput):
        await pg_stores.store.put([task(**{"key": key, **wrong})], now=NOW)
    assert await pg_stores.store.find(Query()) == []


async def test_what_the_database_cannot_know_is_parked_alone(pg_address: str, system_clock: Clock) -> None:
    where = read(pg_address)
    async with open_store(pg_address, system_clock):
        pass
    with psycopg.connect(where.url, autocommit=True) as connection:
        wrong: list[int] = []
        for statement, _ in PARKED.values():
            row = connection.execute((statement.format(where.schema) + " RETURNING id").encode()).fetchone()
            assert row is not None
            wrong.append(row[0])
        good = connection.execute(f"SELECT {where.schema}.put({GOOD})".encode()).fetchone()
        assert good is not None
        async with Node(services=[greet], store=pg_address, clock=system_clock, listen=False) as node:
            assert (await node.call("wait", id=good[0], timeout_s=30.0))["output"] == "hello ann"
            for id, (what, (_, reason)) in zip(wrong, PARKED.items(), strict=True):
                ended = await node.call("wait", id=id, timeout_s=30.0)
                assert ended["state"] == "dead", what
                assert reason in f"{ended['reason']} {ended['error']}", (what, ended)


async def test_a_service_that_nobody_knows_is_parked_alone(pg_address: str, system_clock: Clock) -> None:
    where = read(pg_address)
    async with open_store(pg_address, system_clock):
        pass
    with psycopg.connect(where.url, autocommit=True) as connection:
        connection.execute(f"SELECT {where.schema}.put('nobody')".encode())
        good = connection.execute(f"SELECT {where.schema}.put({GOOD})".encode()).fetchone()
        assert good is not None
        async with Node(services=[greet], store=pg_address, clock=system_clock, listen=False) as node:
            assert (await node.call("wait", id=good[0], timeout_s=30.0))["state"] == "done"
        row = connection.execute(
            f"SELECT state, error FROM {where.schema}.task WHERE service = 'nobody'".encode()
        ).fetchone()
        assert row is not None
        assert row == ("dead", "there is no service nobody here")
