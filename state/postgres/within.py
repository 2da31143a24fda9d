"""Storing a task within a transaction of somebody else's, on whatever connection of psycopg that is.

The connection is left as it is: nothing is registered or prepared on it, and no setting of it is relied upon. What
goes wrong aborts the transaction as any statement of the caller's would.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias

import psycopg
from psycopg import AsyncConnection, Connection, errors
from psycopg.rows import tuple_row

from raptor.errors import BadInput, RefusedState
from raptor.state.base import Receipt
from raptor.state.postgres.address import SCHEMA, Address
from raptor.state.postgres.migration import named
from raptor.state.postgres.putting import check_all, form
from raptor.state.postgres.trouble import not_written
from raptor.state.postgres.wire import EPOCH, at, not_before
from raptor.task import Task

Steps: TypeAlias = Generator[tuple[str, tuple[Any, ...]], tuple[Any, ...], Receipt]
"""Statements that give one row each, to what they amount to."""

NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_TIME = "'epoch'::timestamptz + %s * interval '1 microsecond'"
INSERT = (
    "INSERT INTO raptor.task (queue, service, data, body, encoding, priority, due, created, max_attempts, parent,"
    " active_s, timeout_s, timing) VALUES (%s::text, %s::text, %s::text::jsonb, %s::bytea, %s::text, %s::smallint,"
    f" {_TIME}, {_TIME}, %s::integer, %s::bigint, %s::float8, %s::float8, %s::text) RETURNING id, true"
)
LOCK = "SELECT pg_advisory_xact_lock(raptor.lock_of('key', %s::text, %s::text)) IS NULL"
OFFER = (
    "SELECT id, is_new FROM raptor.offer(%s::text, %s::text, %s::text::jsonb, %s::bytea, %s::text, %s::smallint,"
    f" {_TIME}, {_TIME}, %s::integer, %s::text, {_TIME}, %s::bigint, %s::float8, %s::float8, %s::text, %s::boolean, 0)"
)
TELL = "SELECT pg_notify('raptor.news', 't ' || %s::text || ' ' || %s::text) IS NULL"

_LACKING = (errors.UndefinedTable, errors.UndefinedFunction, errors.InvalidSchemaName, errors.InsufficientPrivilege)
_WRONG = (psycopg.DataError, errors.CheckViolation, errors.NotNullViolation)


def is_async(connection: object) -> bool:
    """Of which kind it is; what is none is refused."""
    if isinstance(connection, AsyncConnection):
        return True
    if isinstance(connection, Connection):
        return False
    raise BadInput(
        f"a connection of psycopg 3 is expected, not {type(connection).__name__}: SQLAlchemy has it as"
        " `session.connection().connection.driver_connection`, Django as `django.db.connection.connection`"
    )


def store(task: Task, now: float, replace: bool) -> Steps:
    """The statements of one put. The table's trigger tells workers with the commit; of a row that is replaced we do."""
    check_all([task])
    due, created = not_before(task.due) + EPOCH, at(now) + EPOCH
    first = (task.queue, task.service, *form(task.data), task.priority, due, created, task.max_attempts or None)
    last = (task.parent, task.active_s, task.timeout_s, task.timing)
    if task.key is None:
        return Receipt(*(yield INSERT, (*first, *last)))
    yield LOCK, (task.service, task.key)
    until = None if task.key_until is None else at(task.key_until) + EPOCH
    placed = Receipt(*(yield OFFER, (*first, task.key, until, *last, replace)))
    if replace and not placed.new:
        yield TELL, (repr(task.due), task.queue)
    return placed


def clock(connection: Connection[Any], schema: str) -> float:
    """The server's time, as all nodes have it."""
    return float(_row(connection, schema, NOW, ())[0]) / 1e6


async def clock_later(connection: AsyncConnection[Any], schema: str) -> float:
    return float((await _row_later(connection, schema, NOW, ()))[0]) / 1e6


def perform(connection: Connection[Any], schema: str, steps: Steps) -> Receipt:
    try:
        asked = next(steps)
        while True:
            asked = steps.send(_row(connection, schema, *asked))
    except StopIteration as end:
        placed: Receipt = end.value
        return placed


async def perform_later(connection: AsyncConnection[Any], schema: str, steps: Steps) -> Receipt:
    try:
        asked = next(steps)
        while True:
            asked = steps.send(await _row_later(connection, schema, *asked))
    except StopIteration as end:
        placed: Receipt = end.value
        return placed


def _row(connection: Connection[Any], schema: str, statement: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    try:
        with connection.cursor(row_factory=tuple_row) as cursor:
            # Behind a transaction pooler what is prepared may be elsewhere the next time.
            row = cursor.execute(named(statement, schema).encode(), values, prepare=False).fetchone()
    except (*_LACKING, *_WRONG) as error:
        raise _told(error, connection, schema) from error
    assert row is not None
    return row


async def _row_later(
    connection: AsyncConnection[Any], schema: str, statement: str, values: tuple[Any, ...]
) -> tuple[Any, ...]:
    try:
        async with connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(named(statement, schema).encode(), values, prepare=False)
            row = await cursor.fetchone()
    except (*_LACKING, *_WRONG) as error:
        raise _told(error, connection, schema) from error
    assert row is not None
    return row


def _told(error: psycopg.Error, connection: psycopg.BaseConnection[Any], schema: str) -> BadInput | RefusedState:
    """In our words where another try does not help; all else stays psycopg's, for the caller's own ways with it."""
    info = connection.info
    shown = f"postgresql://{info.user}@{info.host}:{info.port}/{info.dbname}"
    told = not_written(Address(shown, shown + ("" if schema == SCHEMA else f" (schema {schema})"), schema), error)
    assert isinstance(told, BadInput | RefusedState)
    return told
