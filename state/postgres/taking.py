"""Statements that give tasks away, and rows to records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from raptor.state.base import Taken, Want
from raptor.state.pace import Starts, allowance, started
from raptor.state.postgres.pipe import Answer
from raptor.state.postgres.trail import PRIORITIES, End, Trails, after
from raptor.state.postgres.transaction import Finish, Reading, Transaction
from raptor.state.postgres.waves import Key
from raptor.state.postgres.wire import (
    EPOCH,
    INT8,
    Column,
    Time,
    at,
    reached,
    seconds,
)
from raptor.task import State, Task, Try

TAKEN = State.TAKEN  # looked up once: an enum's members are slow to find

_RARE = (
    "key", "key_until", "parent", "active_s", "timeout_s", "timing", "previous", "ended", "output", "error", "history",
    "body",
)  # fmt: skip


def _micros(column: str) -> str:
    return f"CASE WHEN isfinite(t.{column}) THEN round(extract(epoch FROM t.{column}) * 1000000)::bigint END"


# What nearly all have, and the rest as one value that nearly none has: each column of each row costs on both sides.
GIVEN = (
    "t.id, t.service, t.data::text, t.priority, t.due, t.created, t.attempts, t.max_attempts, t.fence,"
    f" CASE WHEN {' AND '.join(f't.{name} IS NULL' for name in _RARE)} AND t.reason = '' AND t.deaths = 0 THEN NULL"
    f" ELSE json_build_array(t.key, {_micros('key_until')}, t.parent, t.active_s, t.timeout_s, t.timing,"
    f" {_micros('previous')}, {_micros('ended')}, t.output, t.error, t.history, translate(encode(t.body, 'base64'),"
    " E'\\n', ''), t.encoding, t.reason, t.deaths)::text END"
)
TAKE = (
    f"WITH due AS MATERIALIZED (SELECT d.* FROM generate_series(0, {PRIORITIES - 1}) AS p (priority), LATERAL ("
    "SELECT t.ctid AS place, t.id FROM raptor.task AS t WHERE t.shelf = 'ready' AND t.state = 'ready'"
    " AND t.queue = %(queue)s AND t.suspect = %(suspects)s AND t.priority = p.priority AND t.due <= %(now)s"
    " AND (t.due, t.id) > ((%(dues)s::timestamptz[])[p.priority + 1], (%(ids)s::bigint[])[p.priority + 1])"
    " ORDER BY t.due, t.id LIMIT %(room)s FOR UPDATE SKIP LOCKED) AS d LIMIT %(room)s),"
    " told AS (INSERT INTO raptor.wave (lane, place, ids, seen) SELECT %(lane)s, %(place)s, array_agg(id), now()"
    " FROM due HAVING count(*) > 0 ON CONFLICT (lane, place) DO UPDATE SET ids = excluded.ids, seen = excluded.seen)"
    " UPDATE raptor.task AS t SET state = 'taken', fence = t.fence + 1, listed = t.fence + 1, owner = %(owner)s,"
    " lease = %(lease)s,"
    f" started = %(now)s WHERE t.ctid = ANY(ARRAY(SELECT place FROM due)) RETURNING {GIVEN}"
)
BACK = (  # in the transaction that took them: nobody has seen that fence
    "UPDATE raptor.task SET state = 'ready', fence = fence - 1, listed = NULL, owner = NULL, lease = NULL,"
    " started = NULL WHERE id = ANY(%s::bigint[])"
)
SUSPECTS = (
    "SELECT q FROM unnest(%s::text[]) AS q WHERE (SELECT true FROM raptor.task AS t WHERE t.shelf = 'ready'"
    " AND t.state = 'ready' AND t.queue = q AND t.suspect AND t.due <= %s LIMIT 1)"
)
LOCK_PACE = (
    "INSERT INTO raptor.pace (queue) SELECT unnest(%s::text[]) ON CONFLICT DO NOTHING",
    "SELECT queue, starts::text FROM raptor.pace WHERE queue = ANY(%s::text[]) ORDER BY queue FOR UPDATE",
)
RUNNING = "SELECT count(*) FROM raptor.taken WHERE queue = %s"
PACE = "UPDATE raptor.pace SET starts = %s::text::json WHERE queue = %s"

_rare = msgspec.json.Decoder(
    tuple[
        str | None, int | None, int | None, float | None, float | None, str | None, int | None, int | None, str | None,
        str | None, str | None, bytes | None, str | None, str, int,
    ]
)  # fmt: skip
_tries = msgspec.json.Decoder(tuple[Try, ...])
_starts = msgspec.json.Decoder(Starts)


class Given(NamedTuple):
    """What a take gave, and in which places of the lane's list it stands."""

    taken: Taken
    places: Mapping[int, Sequence[Key]]


def is_limited(wants: Sequence[Want]) -> bool:
    """What runs counts: so none is taken before it is known what has ended."""
    return any(want.concurrency is not None or want.rate is not None for want in wants)


async def send_take(
    transaction: Transaction,
    trails: Trails,
    wants: Sequence[Want],
    owner: str,
    now: float,
    places: Sequence[int],
    has_room: Callable[[], bool],
    found: Callable[[Sequence[Task]], None] | None = None,
) -> Finish[Given]:
    """There are two `places` for each of the `wants`: a statement of its own may take what lies before the trail.

    If there is no room for them when the transaction is to end they go back, as if they had not been touched.
    """
    if is_limited(wants):
        return await _send_limited(transaction, wants, owner, now, places)
    followed = {want.queue: trails.find(want.queue) for want in wants if not want.suspects}
    suspects = await _send_suspects(transaction, [queue for queue, end in followed.items() if end is None], now)
    asked: list[tuple[Want, list[tuple[int, Answer]]]] = []
    for want, place in zip(wants, places, strict=False):
        if want.room > 0:
            given = _wanted(want, want.room, owner, now, followed.get(want.queue))
            asked.append((want, [(place, await _send_one(transaction, given, place))]))

    async def finish() -> Reading[Given]:
        doubtful = set((await suspects())())
        if not has_room():
            await _send_back(transaction, [answer for _, came in asked for _, answer in came])
            return lambda: Given(Taken([], {}), {})
        for (want, came), place in zip(asked, places[len(wants) :], strict=False):
            lacking = want.room - await came[0][1].count()
            if lacking > 0 and followed.get(want.queue) is not None:  # there may be some before the trail
                again = await _send_suspects(transaction, [want.queue], now)
                came.append((place, await _send_one(transaction, _wanted(want, lacking, owner, now), place)))
                doubtful |= set((await again())())
                await came[1][1].count()

        def read() -> Given:
            tasks: list[Task] = []
            for want, came in asked:
                rows = [row for _, answer in came for row in answer.rows]
                tasks += _in_order(rows, want, owner, now)
                if not want.suspects:
                    last = rows[-1] if len(rows) >= want.room else None  # they are in order now
                    trails.leave(want.queue, None if last is None else End(last[3], last[4], last[0]))
            lists = {place: _keys(answer.rows) for _, came in asked for place, answer in came}
            if found is not None:
                found(tasks)
            return Given(Taken(tasks, {}, frozenset(doubtful)), lists)

        return read

    return finish


async def _send_one(transaction: Transaction, given: Mapping[str, Any], place: int) -> Answer:
    return await transaction.send(TAKE, {**given, "lane": transaction.lane, "place": place})


async def _send_back(transaction: Transaction, answers: Sequence[Answer]) -> None:
    ids = [row[0] for answer in answers for row in await answer.fetchall()]
    if ids:
        await transaction.send(BACK, (Column(INT8, ids),))


async def _send_suspects(transaction: Transaction, queues: list[str], now: float) -> Finish[list[str]]:
    cursor = await transaction.send(SUSPECTS, (queues, Time(reached(now)))) if queues else None

    async def finish() -> Reading[list[str]]:
        found = [] if cursor is None else [row[0] for row in await cursor.fetchall()]
        return lambda: found

    return finish


async def _send_limited(
    transaction: Transaction, wants: Sequence[Want], owner: str, now: float, places: Sequence[int]
) -> Finish[Given]:
    suspects = await _send_suspects(transaction, [want.queue for want in wants if not want.suspects], now)
    taken, lists = await _take_limited(transaction, wants, owner, now, places)

    async def finish() -> Reading[Given]:
        given = Given(taken._replace(suspects=frozenset((await suspects())())), lists)
        return lambda: given

    return finish


async def _take_limited(
    transaction: Transaction, wants: Sequence[Want], owner: str, now: float, places: Sequence[int]
) -> Given:
    """The rows of their paces are locked first, in one order for all: what is counted then stays so."""
    limited = sorted({want.queue for want in wants if want.concurrency is not None or want.rate is not None})
    await transaction.send(LOCK_PACE[0], (limited,))
    paces = {queue: _starts.decode(text) for queue, text in await transaction.rows(LOCK_PACE[1], (limited,))}
    tasks: list[Task] = []
    spent: dict[str, float] = {}
    lists: dict[int, list[Key]] = {}
    for want, place in zip(wants, places, strict=False):
        room, more_at = want.room, None
        if want.concurrency is not None:
            ((running,),) = await transaction.rows(RUNNING, (want.queue,))
            room = min(room, want.concurrency - running)
        starts = paces.get(want.queue, [])
        if want.rate is not None:
            allowed = allowance(starts, now, want.rate, want.per_s)
            if allowed.starts < room:
                room, more_at = allowed.starts, allowed.more_at
        rows: list[tuple[Any, ...]] = []
        if room > 0:
            rows = await (await _send_one(transaction, _wanted(want, room, owner, now), place)).fetchall()
            lists[place] = _keys(rows)
        set_back = any(when > now for when, _ in starts)  # the clock was: from now on the wait is counted
        if want.rate is not None and (rows or set_back):
            paces[want.queue] = started(starts, now, len(rows), want.per_s)
            await transaction.send(PACE, (msgspec.json.encode(paces[want.queue]).decode(), want.queue))
        if more_at is not None and len(rows) >= max(room, 0):
            spent[want.queue] = more_at
        tasks += _in_order(rows, want, owner, now)
    return Given(Taken(tasks, spent), lists)


def _wanted(want: Want, room: int, owner: str, now: float, end: End | None = None) -> dict[str, Any]:
    return {
        "queue": want.queue, "suspects": want.suspects, "now": Time(reached(now)), "room": room, "owner": owner,
        "lease": Time(at(now + want.lease_s)), **after(end),
    }  # fmt: skip


def _keys(rows: Sequence[tuple[Any, ...]]) -> list[Key]:
    return [(row[0], row[8]) for row in rows]


def _in_order(rows: list[tuple[Any, ...]], want: Want, owner: str, now: float) -> list[Task]:
    rows.sort(key=itemgetter(3, 4, 0))
    begun, lease = seconds(reached(now)), seconds(at(now + want.lease_s))
    given: list[Task] = []
    for id, service, data, priority, due, created, attempts, max_attempts, fence, rare in rows:
        task = Task(
            id=id, queue=want.queue, service=service, data=data, state=TAKEN, priority=priority,
            due=(due + EPOCH) / 1e6, created=(created + EPOCH) / 1e6, attempts=attempts, max_attempts=max_attempts,
            started=begun, fence=fence, owner=owner, lease=lease, suspect=want.suspects,
        )  # fmt: skip
        given.append(task if rare is None else _with_rare(task, rare))
    return given


def _with_rare(task: Task, text: str) -> Task:
    (key, until, parent, active_s, timeout_s, timing, previous, ended, output, error, history, body, encoding, reason,
     deaths) = _rare.decode(text)  # fmt: skip
    tries = read_history(history)
    return msgspec.structs.replace(
        task, data=task.data if body is None else read_body(body, encoding), key=key, key_until=_epoch(until),
        parent=parent, active_s=active_s, timeout_s=timeout_s, timing=timing, previous=_epoch(previous),
        ended=_epoch(ended), output=output, error=error, history=tries or (), deaths=deaths,
        reason="damaged" if tries is None else reason,
    )  # fmt: skip


def _epoch(micros: int | None) -> float | None:
    return None if micros is None else micros / 1e6


def read_body(body: bytes, encoding: str | None) -> str | bytes:
    return body if encoding is None else body.decode("utf-8", "replace")


def read_history(text: str | None) -> tuple[Try, ...] | None:
    """None for one that makes no sense: anybody may write to the table."""
    try:
        return _tries.decode(text) if text else ()
    except msgspec.DecodeError:
        return None
