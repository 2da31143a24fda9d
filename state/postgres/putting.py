"""Statements that store tasks: those of one turn in one INSERT, and one by one where keys decide."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import inf
from typing import Any

import msgspec
from psycopg.types.numeric import Int2

from raptor.errors import BadInput
from raptor.state.asked import check
from raptor.state.base import Receipt
from raptor.state.postgres.lane import Finish, Transaction
from raptor.state.postgres.pipe import Answer
from raptor.state.postgres.wire import BYTEA, FLOAT8, INT2, INT4, INT8, TEXT, TIME, Column, Time, at, not_before
from raptor.task import Task

# What all rows have in common is given once, and the rest as arrays: an array that is missing leaves NULL.
INSERT = (
    "INSERT INTO raptor.task (queue, service, data, body, encoding, priority, due, created, max_attempts, key_until,"
    " parent, active_s, timeout_s, timing) SELECT coalesce(u.queue, %(queue)s::text), coalesce(u.service,"
    " %(service)s::text), u.data::jsonb, u.body, u.encoding, coalesce(u.priority, %(priority)s::smallint),"
    " coalesce(u.due, %(due)s::timestamptz), coalesce(u.created, %(now)s::timestamptz),"
    " nullif(coalesce(u.max_attempts, %(max_attempts)s::integer), 0), u.key_until, u.parent, u.active_s, u.timeout_s,"
    " u.timing FROM unnest(%(queues)s::text[], %(services)s::text[], %(data)s::text[], %(bodies)s::bytea[],"
    " %(encodings)s::text[], %(priorities)s::smallint[], %(dues)s::timestamptz[], %(nows)s::timestamptz[],"
    " %(all_attempts)s::integer[], %(untils)s::timestamptz[], %(parents)s::bigint[], %(actives)s::float8[],"
    " %(timeouts)s::float8[], %(timings)s::text[]) AS u (queue, service, data, body, encoding, priority, due,"
    " created, max_attempts, key_until, parent, active_s, timeout_s, timing) RETURNING id"
)
OFFER = (
    "SELECT id, is_new FROM raptor.offer(%s::text, %s::text, %s::text::jsonb, %s::bytea, %s::text, %s::smallint,"
    " %s::timestamptz, %s::timestamptz, %s::integer, %s::text, %s::timestamptz, %s::bigint, %s::float8, %s::float8,"
    " %s::text, %s::boolean, %s::bigint)"
)
LOCK_KEYS = (
    "SELECT count(pg_advisory_xact_lock(h)) FROM (SELECT DISTINCT raptor.lock_of('key', s, k) AS h"
    " FROM unnest(%s::text[], %s::text[]) AS u (s, k) ORDER BY 1) AS locks"
)

_SERVICE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")

Form = tuple[str | None, bytes | None, str | None]
"""Columns data, body, encoding."""


def check_all(tasks: Sequence[Task]) -> None:
    """Raise BadInput for what the trigger of the table refuses of others: it does not look at what Raptor puts."""
    check(tasks)
    for task in tasks:
        _check_names(task.queue, task.service)
        if task.max_attempts is not None and task.max_attempts < 0:
            raise BadInput(f"a task's max_attempts is 1 or more, not {task.max_attempts}")
        if task.key is not None and len(task.key) > 255:
            raise BadInput(f"a task's key has 255 characters at most, not {len(task.key)}")
        for name, value in (("active_s", task.active_s), ("timeout_s", task.timeout_s)):
            if value is not None and not 0 <= value < inf:
                raise BadInput(f"a task's {name} is a number of seconds, not {value}")


@lru_cache(maxsize=1000)
def _check_names(queue: str, service: str) -> None:
    if len(queue.encode("utf-8", "surrogatepass")) > 400:
        raise BadInput("the name of a task's queue has 400 bytes at most")
    if _SERVICE.fullmatch(service) is None:
        raise BadInput(f"a task's service is a name of letters, digits, _, . and -, not {service!r}")


async def lock_keys(transaction: Transaction, tasks: Sequence[Task]) -> None:
    """Of all keys at once, in one order for all: nobody waits in a circle."""
    keyed = [task for task in tasks if task.key is not None]
    if keyed:
        await transaction.send(LOCK_KEYS, ([task.service for task in keyed], [task.key for task in keyed]))


async def send_plain(
    transaction: Transaction, puts: Sequence[tuple[Sequence[Task], float]]
) -> Finish[list[list[Receipt]]]:
    """Tasks without keys, of several puts at once."""
    tasks = [task for put, _ in puts for task in put]
    cursor = await transaction.send(INSERT, _rows(tasks, [now for put, now in puts for _ in put]))
    transaction.tell(earliest((task.queue, task.due) for task in tasks))

    async def finish() -> list[list[Receipt]]:
        ids = iter(sorted(await cursor.fetchall()))  # they grew in the order of the rows
        return [[Receipt(next(ids)[0], True) for _ in put] for put, _ in puts]

    return finish


async def send_keyed(
    transaction: Transaction, tasks: Sequence[Task], now: float, replace: bool
) -> Finish[list[Receipt]]:
    """One put, some of whose tasks have keys."""
    await lock_keys(transaction, tasks)
    finish = await send_in_order(transaction, tasks, now, replace)

    async def told() -> list[Receipt]:
        placed = await finish()
        rung = (task for task, (_, new) in zip(tasks, placed, strict=True) if new or replace)
        transaction.tell(earliest((task.queue, task.due) for task in rung))
        return placed

    return told


async def send_in_order(
    transaction: Transaction, tasks: Sequence[Task], now: float, replace: bool, after: Sequence[int] = ()
) -> Finish[list[Receipt]]:
    """Store them; whoever calls it holds the locks of their keys. `after` are the tasks that they repeat."""
    steps: list[tuple[Answer, bool]] = []  # a cursor, and whether it is of one that has a key
    plain: list[Task] = []
    for place, task in enumerate(tasks):
        if task.key is None:
            plain.append(task)
            continue
        if plain:
            steps.append((await transaction.send(INSERT, _rows(plain, [now])), False))
            plain = []
        steps.append((await transaction.send(OFFER, _offer(task, now, replace, after[place] if after else 0)), True))
    if plain:
        steps.append((await transaction.send(INSERT, _rows(plain, [now])), False))

    async def finish() -> list[Receipt]:
        placed: list[Receipt] = []
        for cursor, keyed in steps:
            rows = await cursor.fetchall()
            placed += [Receipt(*row) for row in rows] if keyed else [Receipt(row[0], True) for row in sorted(rows)]
        return placed

    return finish


def earliest(entries: Iterable[tuple[str, float]]) -> dict[str, float]:
    """The earliest due time of each queue."""
    news: dict[str, float] = {}
    for queue, due in entries:
        if due < news.get(queue, inf):
            news[queue] = due
    return news


def form(data: str | bytes) -> Form:
    """JSON as jsonb; msgpack, and what jsonb does not take, as it is."""
    if isinstance(data, bytes):
        return None, data, None
    try:
        if "\\u" in data:  # of a NUL, or of half a character, which jsonb cannot hold
            text = msgspec.json.encode(msgspec.json.decode(data))
            fits = b"\\u0000" not in text
        else:
            msgspec.json.decode(data, type=msgspec.Raw)
            fits = "\0" not in data
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        fits = False
    return (data, None, None) if fits else (None, data.encode("utf-8", "surrogatepass"), "utf8")


def _rows(tasks: Sequence[Task], now: Sequence[float]) -> dict[str, Any]:
    first = tasks[0]
    forms = [form(task.data) for task in tasks]

    def differing(of: int, values: list[Any]) -> Column | None:
        one = values[0]
        return None if all(value == one for value in values) else Column(of, values)

    def present(of: int, values: list[Any]) -> Column | None:
        return None if all(value is None for value in values) else Column(of, values)

    all_attempts = [task.max_attempts or 0 for task in tasks]
    dues = [task.due for task in tasks]
    return {
        "queue": first.queue, "service": first.service, "priority": Int2(first.priority),
        "due": Time(not_before(first.due)), "now": Time(at(now[0])), "max_attempts": all_attempts[0],
        "queues": differing(TEXT, [task.queue for task in tasks]),
        "services": differing(TEXT, [task.service for task in tasks]),
        # Always there: it says how many rows there are.
        "data": Column(TEXT, [data for data, _, _ in forms]),
        "bodies": present(BYTEA, [body for _, body, _ in forms]),
        "encodings": present(TEXT, [encoding for _, _, encoding in forms]),
        "priorities": differing(INT2, [task.priority for task in tasks]),
        "dues": None if all(due == dues[0] for due in dues) else Column(TIME, [not_before(due) for due in dues]),
        "nows": None if now.count(now[0]) == len(now) else Column(TIME, [at(when) for when in now]),
        "all_attempts": differing(INT4, all_attempts),
        "untils": present(TIME, [None if task.key_until is None else at(task.key_until) for task in tasks]),
        "parents": present(INT8, [task.parent for task in tasks]),
        "actives": present(FLOAT8, [task.active_s for task in tasks]),
        "timeouts": present(FLOAT8, [task.timeout_s for task in tasks]),
        "timings": present(TEXT, [task.timing for task in tasks]),
    }  # fmt: skip


def _offer(task: Task, now: float, replace: bool, after: int) -> tuple[Any, ...]:
    until = None if task.key_until is None else Time(at(task.key_until))
    return (
        task.queue, task.service, *form(task.data), task.priority, Time(not_before(task.due)), Time(at(now)),
        task.max_attempts or None, task.key, until, task.parent, task.active_s, task.timeout_s, task.timing, replace,
        after,
    )  # fmt: skip
