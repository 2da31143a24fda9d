"""Statements that give tasks away and move them on, and rows to and from records."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import msgspec

from raptor.state.base import Held, Hold, Taken, Want
from raptor.state.pace import Starts, allowance, started
from raptor.state.postgres.pipe import Answer
from raptor.state.postgres.putting import earliest, lock_keys, send_in_order
from raptor.state.postgres.trail import PRIORITIES, End, Trails, after
from raptor.state.postgres.transaction import Finish, Transaction
from raptor.state.postgres.wire import (
    EPOCH,
    INT2,
    INT4,
    INT8,
    TEXT,
    TIME,
    Column,
    Time,
    at,
    not_before,
    reached,
    seconds,
)
from raptor.task import Move, State, Task, Try

STATES = list(State)
TAKEN = State.TAKEN  # looked up once: an enum's members are slow to find
_CODES = {state: code for code, state in enumerate(STATES, 1)}
_NAMES = ", ".join(f"'{state}'" for state in STATES)

_RARE = (
    "key", "key_until", "parent", "active_s", "timeout_s", "timing", "previous", "ended", "output", "error", "history",
    "body",
)  # fmt: skip


def _micros(column: str) -> str:
    return f"round(extract(epoch FROM t.{column}) * 1000000)::bigint"


# What nearly all have, and the rest as one value that nearly none has: each column of each row costs on both sides.
GIVEN = (
    "t.id, t.service, t.data::text, t.priority, t.due, t.created, t.attempts, t.max_attempts, t.fence,"
    f" CASE WHEN {' AND '.join(f't.{name} IS NULL' for name in _RARE)} AND t.reason = '' AND t.deaths = 0 THEN NULL"
    f" ELSE json_build_array(t.key, {_micros('key_until')}, t.parent, t.active_s, t.timeout_s, t.timing,"
    f" {_micros('previous')}, {_micros('ended')}, t.output, t.error, t.history, translate(encode(t.body, 'base64'),"
    " E'\\n', ''), t.encoding, t.reason, t.deaths)::text END"
)
TAKE = (
    f"WITH due AS MATERIALIZED (SELECT d.place FROM generate_series(0, {PRIORITIES - 1}) AS p (priority), LATERAL ("
    "SELECT t.ctid AS place FROM raptor.task AS t WHERE t.state = 'ready' AND t.queue = %(queue)s"
    " AND t.suspect = %(suspects)s AND t.priority = p.priority AND t.due <= %(now)s"
    " AND (t.due, t.id) > ((%(dues)s::timestamptz[])[p.priority + 1], (%(ids)s::bigint[])[p.priority + 1])"
    " ORDER BY t.due, t.id LIMIT %(room)s FOR UPDATE SKIP LOCKED) AS d LIMIT %(room)s)"
    " UPDATE raptor.task AS t SET state = 'taken', fence = t.fence + 1, owner = %(owner)s, lease = %(lease)s,"
    f" started = %(now)s WHERE t.ctid = ANY(ARRAY(SELECT place FROM due)) RETURNING {GIVEN}"
)
SUSPECTS = (
    "SELECT q FROM unnest(%s::text[]) AS q WHERE EXISTS (SELECT 1 FROM raptor.task AS t WHERE t.state = 'ready'"
    " AND t.queue = q AND t.suspect AND t.due <= %s)"
)
LOCK_PACE = (
    "INSERT INTO raptor.pace (queue) SELECT unnest(%s::text[]) ON CONFLICT DO NOTHING",
    "SELECT queue, starts::text FROM raptor.pace WHERE queue = ANY(%s::text[]) ORDER BY queue FOR UPDATE",
)
RUNNING = "SELECT count(*) FROM raptor.task WHERE state = 'taken' AND queue = %s"
PACE = "UPDATE raptor.pace SET starts = %s::text::json WHERE queue = %s"

# One look at the primary key for each, in the order given, whatever the planner believes of the table: rows are found
# from the list, never the list from the rows. The state is an expression, lest the index of all that is taken is read.
# A row that another changed while this waited for it is locked then, but too new for the statement to see its place:
# whatever is not found is asked for once more, by a statement that sees it.
_MINE = (
    "WITH mine AS MATERIALIZED (SELECT held.place, m.* FROM unnest({arrays}) AS m ({columns}) CROSS JOIN LATERAL"
    " (SELECT t.ctid AS place FROM raptor.task AS t WHERE t.id = m.id AND t.fence = m.fence"
    " AND t.state || '' = 'taken' OFFSET 0 FOR UPDATE) AS held) "
)
_HOLDS = _MINE.format(arrays="%s::bigint[], %s::bigint[]", columns="id, fence")
_MOVES = _MINE.format(
    arrays=(
        "%s::bigint[], %s::bigint[], %s::smallint[], %s::timestamptz[], %s::integer[], %s::timestamptz[],"
        " %s::timestamptz[], %s::timestamptz[], %s::text[], %s::text[], %s::text[], %s::integer[], %s::smallint[],"
        " %s::text[]"
    ),
    columns=(
        "id, fence, state, due, attempts, previous, started, ended, output, error, reason, deaths, suspect, history"
    ),
)
# One that was cancelled meanwhile does not come back.
_GIVEN_UP = f"t.unwanted AND (ARRAY[{_NAMES}])[m.state] = 'ready'"
SETTLE = (
    f"{_MOVES} UPDATE raptor.task AS t SET"
    f" state = CASE WHEN {_GIVEN_UP} THEN 'cancelled' ELSE (ARRAY[{_NAMES}])[m.state] END,"
    f" due = CASE WHEN {_GIVEN_UP} OR m.due IS NULL THEN t.due ELSE m.due END,"
    " attempts = m.attempts, previous = m.previous, started = m.started,"
    f" ended = CASE WHEN {_GIVEN_UP} THEN %s::timestamptz ELSE m.ended END, output = m.output, error = m.error,"
    f" reason = CASE WHEN {_GIVEN_UP} THEN 'cancelled' ELSE coalesce(m.reason, '') END, deaths = coalesce(m.deaths, 0),"
    " suspect = coalesce(m.suspect, 0) = 1, history = m.history, owner = NULL, lease = NULL, unwanted = false"
    " FROM mine AS m WHERE t.ctid = m.place RETURNING t.id"
)
# Of tasks that end with the same values, one statement has them once. In the order of the ids, too.
ALIKE = (
    "UPDATE raptor.task AS t SET state = %s, attempts = %s, previous = %s::timestamptz, started = %s::timestamptz,"
    " ended = %s::timestamptz, output = %s::text, error = %s::text, reason = %s, deaths = %s, suspect = %s,"
    " history = %s::text, owner = NULL, lease = NULL, unwanted = false"
    " WHERE t.id = ANY(%s::bigint[]) AND t.fence = %s AND t.state || '' = 'taken' RETURNING t.id"
)
FORGET = f"{_HOLDS} DELETE FROM raptor.task AS t USING mine AS m WHERE t.ctid = m.place RETURNING t.id"
EXTEND = (
    f"{_HOLDS} UPDATE raptor.task AS t SET lease = %s::timestamptz FROM mine AS m WHERE t.ctid = m.place"
    " RETURNING t.id, t.unwanted"
)

_rare = msgspec.json.Decoder(
    tuple[
        str | None, int | None, int | None, float | None, float | None, str | None, int | None, int | None, str | None,
        str | None, str | None, bytes | None, str | None, str, int,
    ]
)  # fmt: skip
_tries = msgspec.json.Decoder(tuple[Try, ...])
_starts = msgspec.json.Decoder(Starts)


async def send_take(
    transaction: Transaction, trails: Trails, wants: Sequence[Want], owner: str, now: float
) -> Finish[Taken]:
    limited = sorted({want.queue for want in wants if want.concurrency is not None or want.rate is not None})
    if limited:
        return await _send_limited(transaction, wants, owner, now, limited)
    followed = {want.queue: trails.find(want.queue) for want in wants if not want.suspects}
    suspects = await _send_suspects(transaction, [queue for queue, end in followed.items() if end is None], now)
    cursors = [
        (want, await transaction.send(TAKE, _wanted(want, want.room, owner, now, followed.get(want.queue))))
        for want in wants
        if want.room > 0
    ]

    async def finish() -> Taken:
        given: list[Task] = []
        doubtful = set(await suspects())
        for want, cursor in cursors:
            rows = await cursor.fetchall()
            if len(rows) < want.room and followed.get(want.queue) is not None:  # there may be some before the trail
                again = await _send_suspects(transaction, [want.queue], now)
                rows += await transaction.rows(TAKE, _wanted(want, want.room - len(rows), owner, now))
                doubtful |= set(await again())
            given += _in_order(rows, want, owner, now)
            if not want.suspects:
                last = rows[-1] if len(rows) >= want.room else None  # they are in order now
                trails.leave(want.queue, None if last is None else End(last[3], last[4], last[0]))
        return Taken(given, {}, frozenset(doubtful))

    return finish


async def _send_suspects(transaction: Transaction, queues: list[str], now: float) -> Finish[list[str]]:
    cursor = await transaction.send(SUSPECTS, (queues, Time(reached(now)))) if queues else None

    async def finish() -> list[str]:
        return [] if cursor is None else [row[0] for row in await cursor.fetchall()]

    return finish


async def _send_limited(
    transaction: Transaction, wants: Sequence[Want], owner: str, now: float, limited: list[str]
) -> Finish[Taken]:
    suspects = await _send_suspects(transaction, [want.queue for want in wants if not want.suspects], now)
    given = await _take_limited(transaction, wants, owner, now, limited)

    async def finish() -> Taken:
        return given._replace(suspects=frozenset(await suspects()))

    return finish


async def _take_limited(
    transaction: Transaction, wants: Sequence[Want], owner: str, now: float, limited: list[str]
) -> Taken:
    """The rows of their paces are locked first, in one order for all: what is counted then stays so."""
    await transaction.send(LOCK_PACE[0], (limited,))
    paces = {queue: _starts.decode(text) for queue, text in await transaction.rows(LOCK_PACE[1], (limited,))}
    tasks: list[Task] = []
    spent: dict[str, float] = {}
    for want in wants:
        room, more_at = want.room, None
        if want.concurrency is not None:
            ((running,),) = await transaction.rows(RUNNING, (want.queue,))
            room = min(room, want.concurrency - running)
        starts = paces.get(want.queue, [])
        if want.rate is not None:
            allowed = allowance(starts, now, want.rate, want.per_s)
            if allowed.starts < room:
                room, more_at = allowed.starts, allowed.more_at
        rows = await transaction.rows(TAKE, _wanted(want, room, owner, now)) if room > 0 else []
        set_back = any(when > now for when, _ in starts)  # the clock was: from now on the wait is counted
        if want.rate is not None and (rows or set_back):
            paces[want.queue] = started(starts, now, len(rows), want.per_s)
            await transaction.send(PACE, (msgspec.json.encode(paces[want.queue]).decode(), want.queue))
        if more_at is not None and len(rows) >= max(room, 0):
            spent[want.queue] = more_at
        tasks += _in_order(rows, want, owner, now)
    return Taken(tasks, spent)


def _wanted(want: Want, room: int, owner: str, now: float, end: End | None = None) -> dict[str, Any]:
    return {
        "queue": want.queue, "suspects": want.suspects, "now": Time(reached(now)), "room": room, "owner": owner,
        "lease": Time(at(now + want.lease_s)), **after(end),
    }  # fmt: skip


async def send_settle(transaction: Transaction, moves: Sequence[Move], now: float) -> Finish[frozenset[int]]:
    """Those that are still ours move on, by their ids: two that settle the same never wait in a circle."""
    first: dict[tuple[int, int], Move] = {}
    for move in moves:
        first.setdefault((move.id, move.fence), move)
    ordered = [first[hold] for hold in sorted(first)]
    await lock_keys(transaction, [move.successor for move in ordered if move.successor is not None])
    cursors = await _send_moves(transaction, ordered, now)

    async def finish() -> frozenset[int]:
        done = {row[0] for cursor in cursors for row in await cursor.fetchall()}
        if left := [move for move in ordered if move.id not in done]:
            again = await _send_moves(transaction, left, now)
            done |= {row[0] for cursor in again for row in await cursor.fetchall()}
        counted = set[int]()
        stale = set[int]()
        repeated: list[Move] = []
        for move in moves:
            if move.id in done and move.id not in counted and first[move.id, move.fence] is move:
                counted.add(move.id)
                if move.successor is not None:
                    repeated.append(move)
            else:
                stale.add(move.id)
        if repeated:
            successors = [move.successor for move in repeated if move.successor is not None]
            await (await send_in_order(transaction, successors, now, False, [move.id for move in repeated]))()
        transaction.tell(earliest(entry for move in moves if move.id in counted for entry in move.ready))
        return frozenset(stale)

    return finish


async def _send_moves(transaction: Transaction, moves: Sequence[Move], now: float) -> list[Answer]:
    kept = [move for move in moves if move.keep]
    gone = [move for move in moves if not move.keep]
    cursors: list[Answer] = []
    alike = _alike(kept)
    if alike is not None:
        cursors.append(await transaction.send(ALIKE, alike))
    elif kept:
        cursors.append(await transaction.send(SETTLE, (*_settled(kept), Time(at(now)))))
    if gone:
        cursors.append(await transaction.send(FORGET, _columns(gone)))
    return cursors


def _alike(moves: Sequence[Move]) -> tuple[Any, ...] | None:
    """The values of all of them; None where they differ, or come back each at a time of its own."""
    if not moves or any(move.due is not None or move.state is State.READY for move in moves):
        return None

    def values(move: Move) -> tuple[Any, ...]:
        return (
            move.state, move.attempts, move.previous, move.started, move.ended, move.output, move.error, move.reason,
            move.deaths, move.suspect, move.history, move.fence,
        )  # fmt: skip

    first, common = moves[0], values(moves[0])
    if any(values(move) != common for move in moves[1:]):
        return None

    def time(value: float | None) -> Time | None:
        return None if value is None else Time(at(value))

    return (
        str(first.state), first.attempts, time(first.previous), time(first.started), time(first.ended), first.output,
        first.error, first.reason, first.deaths, first.suspect,
        msgspec.json.encode(first.history).decode() if first.history else None,
        Column(INT8, [move.id for move in moves]), first.fence,
    )  # fmt: skip


def _settled(moves: Sequence[Move]) -> tuple[Any, ...]:
    def times(values: list[float | None]) -> Column | None:
        if all(value is None for value in values):
            return None
        return Column(TIME, [None if value is None else at(value) for value in values])

    def texts(values: list[str | None]) -> Column | None:
        return Column(TEXT, values) if any(value is not None for value in values) else None

    deaths, suspect = [move.deaths for move in moves], [int(move.suspect) for move in moves]
    return (
        Column(INT8, [move.id for move in moves]),
        Column(INT8, [move.fence for move in moves]),
        Column(INT2, [_CODES[move.state] for move in moves]),
        Column(TIME, [None if move.due is None else not_before(move.due) for move in moves]),
        Column(INT4, [move.attempts for move in moves]),
        times([move.previous for move in moves]),
        times([move.started for move in moves]),
        times([move.ended for move in moves]),
        texts([move.output for move in moves]),
        texts([move.error for move in moves]),
        Column(TEXT, [move.reason for move in moves]) if any(move.reason for move in moves) else None,
        Column(INT4, deaths) if any(deaths) else None,
        Column(INT2, suspect) if any(suspect) else None,
        texts([msgspec.json.encode(move.history).decode() if move.history else None for move in moves]),
    )


async def send_extend(transaction: Transaction, holds: Sequence[Hold], until: float) -> Finish[Held]:
    ordered, lease = sorted(set(holds)), Time(at(until))
    cursor = await transaction.send(EXTEND, (*_columns(ordered), lease))

    async def finish() -> Held:
        held: dict[int, bool] = dict(await cursor.fetchall())
        if left := [hold for hold in ordered if hold.id not in held]:
            held |= await transaction.rows(EXTEND, (*_columns(left), lease))
        stale = frozenset(hold.id for hold in holds) - held.keys()
        return Held(stale, frozenset(id for id, unwanted in held.items() if unwanted))

    return finish


def _columns(holds: Sequence[Hold | Move]) -> tuple[Column, Column]:
    return Column(INT8, [hold.id for hold in holds]), Column(INT8, [hold.fence for hold in holds])


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
