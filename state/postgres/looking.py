"""Statements that find, count, cancel, revive and delete tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from raptor.state.base import Counts, Query
from raptor.state.postgres.taking import read_body, read_history
from raptor.state.postgres.transaction import Transaction
from raptor.state.postgres.wire import INT8, TEXT, Column, Time, at, maybe, reached, seconds
from raptor.task import State, Task

COLUMNS = (
    "t.id, t.queue, t.service, t.data::text, t.body, t.encoding, t.priority, t.due, t.created, t.attempts,"
    " t.max_attempts, t.key, t.key_until, t.parent, t.active_s, t.timeout_s, t.timing, t.started, t.previous, t.ended,"
    " t.output, t.error, t.reason, t.history, t.fence, t.lease, t.deaths, t.suspect"
)
WHOLE = f"SELECT {COLUMNS}, t.state, t.owner, t.unwanted FROM raptor.task AS t"
TAKEN = WHOLE.replace("raptor.task", "raptor.taken")
ENDED = "state IN ('done', 'dead', 'cancelled')"
OPEN = "shelf = 'ready' AND state = 'ready'"

LOCK = "SELECT t.id, t.state FROM raptor.task AS t WHERE t.id = ANY(%s::bigint[]) ORDER BY t.id FOR UPDATE"  # one order
CANCEL = "UPDATE raptor.task SET state = 'cancelled', ended = %s, reason = %s WHERE id = ANY(%s::bigint[])"
UNWANTED = "UPDATE raptor.task SET unwanted = true WHERE id = ANY(%s::bigint[])"
REVIVE = (
    "UPDATE raptor.task AS t SET state = 'ready', due = %s, attempts = 0, deaths = 0, ended = NULL, started = NULL,"
    " reason = '', previous = t.due, key_until = NULL, listed = NULL"
    f" WHERE t.id = %s AND t.{ENDED} AND (t.key IS NULL OR NOT EXISTS (SELECT 1 FROM raptor.task AS other"
    " WHERE other.service = t.service AND other.key = t.key AND other.state IN ('ready', 'taken')))"
    " RETURNING t.id, t.queue"
)
KEYS_OF = (
    "SELECT count(pg_advisory_xact_lock(h)) FROM (SELECT DISTINCT raptor.lock_of('key', t.service, t.key) AS h"
    " FROM raptor.task AS t WHERE t.id = ANY(%s::bigint[]) AND t.key IS NOT NULL ORDER BY 1) AS locks"
)
DROP = f"DELETE FROM raptor.task WHERE id = ANY(%s::bigint[]) AND {ENDED}"
SHED = (
    "DELETE FROM raptor.task WHERE id IN (SELECT id FROM raptor.task WHERE shelf IN ('done', 'cancelled')"
    " AND ended < %(before)s AND (key IS NULL OR key_until IS NULL OR key_until <= %(before)s)"
    " ORDER BY ended, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED)"
)
READY = (
    "SELECT queue, count(*) FILTER (WHERE due <= %(now)s), count(*) FILTER (WHERE due > %(now)s), min(due)"
    f" FROM raptor.task WHERE {OPEN} GROUP BY queue"
)
COUNTED = (
    "SELECT queue, state, count(*) FROM raptor.taken GROUP BY queue, state",
    "SELECT queue, state, count(*) FROM raptor.task WHERE shelf = 'dead' GROUP BY queue, state",
    "SELECT queue, state, count(*) FROM raptor.task WHERE shelf IN ('done', 'cancelled') GROUP BY queue, state",
)
# From one name to the next in the index: a plain DISTINCT would read all of it.
_NAMES = (
    "WITH RECURSIVE name(n) AS ((SELECT queue FROM raptor.task WHERE shelf = 'ready' ORDER BY queue LIMIT 1) UNION ALL"
    " SELECT (SELECT queue FROM raptor.task WHERE shelf = 'ready' AND queue > n ORDER BY queue LIMIT 1)"
    " FROM name WHERE n IS NOT NULL)"
)
QUEUES = (
    f"{_NAMES} SELECT n FROM name WHERE n IS NOT NULL AND EXISTS (SELECT 1 FROM raptor.task WHERE {OPEN} AND queue = n)"
)
_LANES = "unnest(ARRAY[false, true]) AS s (suspect), generate_series(0, 9) AS p (priority)"
UPCOMING = (
    f"SELECT q.queue, d.due FROM unnest(%(queues)s::text[]) AS q (queue), {_LANES},"
    f" LATERAL (SELECT due FROM raptor.task AS t WHERE {OPEN} AND t.queue = q.queue"
    " AND t.suspect = s.suspect AND t.priority = p.priority"
    ' AND t.due > %(after)s ORDER BY t.due LIMIT %(limit)s) AS d ORDER BY d.due, q.queue COLLATE "C" LIMIT %(limit)s'
)
EARLIEST = (
    f"{_NAMES} SELECT n, min(d.due) FROM name, {_LANES}, LATERAL (SELECT due FROM raptor.task AS t"
    f" WHERE {OPEN} AND t.queue = n AND t.suspect = s.suspect AND t.priority = p.priority"
    " ORDER BY t.due LIMIT 1) AS d WHERE n IS NOT NULL GROUP BY n"
)

SHELVES: dict[State, tuple[str, ...]] = {
    State.READY: ("ready",),
    State.TAKEN: ("ready", "taken"),
    State.DONE: ("done",),
    State.DEAD: ("dead",),
    State.CANCELLED: ("cancelled",),
}
"""Where the rows in a state are, by which they are found."""


async def find(transaction: Transaction, query: Query) -> list[Task]:
    wanted: dict[str, Any] = {
        "t.queue = %s": query.queue,
        "t.service = %s": query.service,
        "t.key = %s": query.key,
        "t.parent = %s": query.parent,
        "t.owner <> %s": query.owner_not,
        "t.lease < %s": None if query.lapsed is None else Time(reached(query.lapsed)),
        "t.due >= %s": None if query.due_from is None else Time(at(query.due_from)),
        "t.due <= %s": None if query.due_until is None else Time(reached(query.due_until)),
        "t.id > %s": query.after or None,
        "t.id = ANY(%s::bigint[])": Column(INT8, query.ids) if query.ids else None,
        "t.owner = ANY(%s::text[])": Column(TEXT, query.owners) if query.owners else None,
    }
    given = {condition: value for condition, value in wanted.items() if value is not None}
    conditions = list(given)
    runs = query.owner_not is not None or query.lapsed is not None or bool(query.owners)
    if query.states:  # spelled out, so that a partial index is found
        conditions.append(f"t.state IN ({_listed(query.states)})")
        conditions.append(f"t.shelf IN ({_listed({shelf for state in query.states for shelf in SHELVES[state]})})")
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    order = "DESC" if query.newest else "ASC"
    whole = TAKEN if runs or set(query.states) == {State.TAKEN} else WHOLE
    statement = f"{whole} {where} ORDER BY t.id {order} LIMIT %s"
    return [_whole(row) for row in await transaction.rows(statement, (*given.values(), query.limit))]


def _listed(words: Iterable[str]) -> str:
    return ", ".join(f"'{word}'" for word in sorted(words))


def _whole(row: Sequence[Any]) -> Task:
    (id, queue, service, data, body, encoding, priority, due, created, attempts, max_attempts, key, key_until, parent,
     active_s, timeout_s, timing, begun, previous, ended, output, error, reason, history, fence, lease, deaths,
     suspect, state, owner, unwanted) = row  # fmt: skip
    return Task(
        id=id, queue=queue, service=service, data=read_body(body, encoding) if data is None else data,
        state=State(state), priority=priority, due=seconds(due), created=seconds(created), attempts=attempts,
        max_attempts=max_attempts, key=key, key_until=maybe(key_until), parent=parent, active_s=active_s,
        timeout_s=timeout_s, timing=timing, started=maybe(begun), previous=maybe(previous), ended=maybe(ended),
        output=output, error=error, reason=reason, history=read_history(history) or (), fence=fence, owner=owner,
        lease=maybe(lease), deaths=deaths, suspect=suspect, unwanted=unwanted,
    )  # fmt: skip


async def cancel(transaction: Transaction, ids: Sequence[int], now: float, reason: str) -> dict[int, State]:
    before = {id: State(state) for id, state in await transaction.rows(LOCK, (Column(INT8, ids),))}
    ready = [id for id, state in before.items() if state is State.READY]
    taken = [id for id, state in before.items() if state is State.TAKEN]
    if ready:
        await transaction.send(CANCEL, (Time(at(now)), reason, Column(INT8, ready)))
    if taken:
        await transaction.send(UNWANTED, (Column(INT8, taken),))
        transaction.tell_changes([("unwanted", str(id)) for id in taken])
    return before


async def revive(transaction: Transaction, ids: Sequence[int], now: float) -> list[tuple[int, str]]:
    """-> which were, with their queues."""
    await transaction.send(KEYS_OF, (Column(INT8, ids),))
    await transaction.send(LOCK, (Column(INT8, ids),))
    cursors = [await transaction.send(REVIVE, (Time(at(now)), id)) for id in dict.fromkeys(ids)]
    revived = [row for cursor in cursors for row in await cursor.fetchall()]
    transaction.tell({queue: now for _, queue in revived})
    return [(id, queue) for id, queue in revived]


async def stat(transaction: Transaction, now: float) -> list[Counts]:
    ready = await transaction.send(READY, {"now": Time(reached(now))})
    cursors = [await transaction.send(counted) for counted in COUNTED]
    found: dict[str, dict[str, Any]] = {}
    for queue, due, delayed, oldest in await ready.fetchall():
        found[queue] = {"ready": due, "delayed": delayed, "oldest": seconds(oldest) if due else None}
    for cursor in cursors:
        for queue, state, count in await cursor.fetchall():
            found.setdefault(queue, {})[state] = count
    return [Counts(queue=queue, **counts) for queue, counts in sorted(found.items())]
