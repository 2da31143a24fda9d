"""Statements that store tasks: those of one turn in one INSERT, and one by one where keys decide."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import inf
from typing import Any

import msgspec

from raptor.errors import BadInput
from raptor.state.asked import check
from raptor.state.base import Receipt
from raptor.state.postgres.pipe import Answer
from raptor.state.postgres.transaction import Finish, Merged, Reading, Transaction
from raptor.state.postgres.wire import BYTEA, FLOAT8, INT2, INT4, INT8, TEXT, TIME, Column, Time, at, not_before
from raptor.task import Task

# Columns of a task, and their types; and those that would get a value if they were left out.
_TYPES = {
    "queue": TEXT, "service": TEXT, "data": TEXT, "body": BYTEA, "encoding": TEXT, "priority": INT2, "due": TIME,
    "created": TIME, "max_attempts": INT4, "key_until": TIME, "parent": INT8, "active_s": FLOAT8, "timeout_s": FLOAT8,
    "timing": TEXT,
}  # fmt: skip
_DEFAULT = ("data", "max_attempts")
_SQL = {
    INT2: "smallint", INT4: "integer", INT8: "bigint", FLOAT8: "float8", TEXT: "text", BYTEA: "bytea",
    TIME: "timestamptz",
}  # fmt: skip

# The ids are in the mark. If nobody is there to be told, the statement is shorter by that.
_PUT = (
    "WITH put AS ({}) INSERT INTO raptor.mark AS m (lane, mark, seen, told) SELECT %(lane)s::text, %(mark)s::bigint,"
    " now(), {} FROM put ON CONFLICT (lane) DO UPDATE SET"
    " mark = CASE WHEN m.mark < excluded.mark THEN excluded.mark END, seen = excluded.seen,"
    " told = excluded.told RETURNING m.told"
)
_TELL = ", (SELECT count(pg_notify('raptor.news', note)) FROM unnest(%(notes)s::text[]) AS note)"
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


def merged(puts: Sequence[tuple[Sequence[Task], float]]) -> Merged:
    """Tasks without keys, of several puts at once."""
    tasks = [task for put, _ in puts for task in put]
    insert, values = _insert(tasks, [now for put, now in puts for _ in put])
    news = earliest((task.queue, task.due) for task in tasks)

    def statement(tells: bool) -> str:
        return _put(insert, "ARRAY[id]" if len(tasks) == 1 else "array_agg(id)", tells)

    def answers(told: Sequence[int]) -> list[list[Receipt]]:
        ids = iter(sorted(told))  # they grew in the order of the rows
        return [[Receipt(next(ids), True) for _ in put] for put, _ in puts]

    return Merged(statement, values, news, answers)


async def send_keyed(
    transaction: Transaction, tasks: Sequence[Task], now: float, replace: bool
) -> Finish[list[Receipt]]:
    """One put, some of whose tasks have keys."""
    await lock_keys(transaction, tasks)
    finish = await send_in_order(transaction, tasks, now, replace)

    async def told() -> Reading[list[Receipt]]:
        placed = (await finish())()
        rung = (task for task, (_, new) in zip(tasks, placed, strict=True) if new or replace)
        transaction.tell(earliest((task.queue, task.due) for task in rung))
        return lambda: placed

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
            steps.append((await transaction.send(*_insert(plain, [now] * len(plain))), False))
            plain = []
        steps.append((await transaction.send(OFFER, _offer(task, now, replace, after[place] if after else 0)), True))
    if plain:
        steps.append((await transaction.send(*_insert(plain, [now] * len(plain))), False))

    async def finish() -> Reading[list[Receipt]]:
        placed: list[Receipt] = []
        for cursor, keyed in steps:
            rows = await cursor.fetchall()
            placed += [Receipt(*row) for row in rows] if keyed else [Receipt(row[0], True) for row in sorted(rows)]
        return lambda: placed

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


def _insert(tasks: Sequence[Task], now: Sequence[float]) -> tuple[str, dict[str, Any]]:
    """What all rows have in common is given once, what differs as arrays, and what none of them has is left out."""
    if len(tasks) == 1:
        return _insert_one(tasks[0], now[0])
    data, bodies, encodings = zip(*(form(task.data) for task in tasks), strict=True)
    columns: dict[str, Sequence[Any]] = {
        "queue": [task.queue for task in tasks],
        "service": [task.service for task in tasks],
        "data": data,
        "body": bodies,
        "encoding": encodings,
        "priority": [task.priority for task in tasks],
        "due": [task.due for task in tasks],
        "created": now,
        "max_attempts": [task.max_attempts or None for task in tasks],
        "key_until": [task.key_until for task in tasks],
        "parent": [task.parent for task in tasks],
        "active_s": [task.active_s for task in tasks],
        "timeout_s": [task.timeout_s for task in tasks],
        "timing": [task.timing for task in tasks],
    }
    common: list[str] = []
    apart: list[str] = []
    given: dict[str, Any] = {}
    for name, values in columns.items():
        one = values[0]
        # The data is always apart: it says how many there are.
        if name == "data" or values.count(one) < len(values):
            apart.append(name)
            given[name] = Column(_TYPES[name], _times(name, values))
        elif one is not None or name in _DEFAULT:
            common.append(name)
            given[name] = Time(*_times(name, values[:1])) if _TYPES[name] == TIME else one
    return _statement(tuple(common), tuple(apart)), given


def _insert_one(task: Task, now: float) -> tuple[str, dict[str, Any]]:
    data, body, encoding = form(task.data)
    columns: dict[str, Any] = {
        "queue": task.queue,
        "service": task.service,
        "data": data,
        "body": body,
        "encoding": encoding,
        "priority": task.priority,
        "due": Time(not_before(task.due)),
        "created": Time(at(now)),
        "max_attempts": task.max_attempts or None,
        "key_until": None if task.key_until is None else Time(at(task.key_until)),
        "parent": task.parent,
        "active_s": task.active_s,
        "timeout_s": task.timeout_s,
        "timing": task.timing,
    }
    given = {name: value for name, value in columns.items() if value is not None or name in _DEFAULT}
    return _statement(tuple(given), ()), given


def _times(name: str, values: Sequence[Any]) -> Sequence[Any]:
    if _TYPES[name] != TIME:
        return values
    moment = not_before if name == "due" else at
    return [None if value is None else moment(value) for value in values]


@lru_cache(maxsize=1000)
def _statement(common: tuple[str, ...], apart: tuple[str, ...]) -> str:
    def cast(name: str, text: str) -> str:
        return f"{text}::jsonb" if name == "data" else text

    once = [cast(name, f"%({name})s::{_SQL[_TYPES[name]]}") for name in common]
    each = [cast(name, f"u.{name}") for name in apart]
    arrays = ", ".join(f"%({name})s::{_SQL[_TYPES[name]]}[]" for name in apart)
    columns, values = ", ".join((*common, *apart)), ", ".join((*once, *each))
    rows = f"SELECT {values} FROM unnest({arrays}) AS u ({', '.join(apart)})" if apart else f"VALUES ({values})"
    return f"INSERT INTO raptor.task ({columns}) {rows} RETURNING id"


@lru_cache(maxsize=1000)
def _put(insert: str, ids: str, tells: bool) -> str:
    return _PUT.format(insert, ids) + (_TELL if tells else "")


def _offer(task: Task, now: float, replace: bool, after: int) -> tuple[Any, ...]:
    until = None if task.key_until is None else Time(at(task.key_until))
    return (
        task.queue, task.service, *form(task.data), task.priority, Time(not_before(task.due)), Time(at(now)),
        task.max_attempts or None, task.key, until, task.parent, task.active_s, task.timeout_s, task.timing, replace,
        after,
    )  # fmt: skip
