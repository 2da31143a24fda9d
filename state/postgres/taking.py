"""Statements that give tasks away and move them on, and rows to and from records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from raptor.state.base import Held, Hold, Taken, Want
from raptor.state.pace import Starts, allowance, started
from raptor.state.postgres.lane import Finish, Transaction
from raptor.state.postgres.pipe import Answer
from raptor.state.postgres.putting import earliest, lock_keys, send_in_order
from raptor.state.postgres.wire import (
    INT2,
    INT4,
    INT8,
    TEXT,
    TIME,
    Column,
    Time,
    at,
    maybe,
    not_before,
    reached,
    seconds,
)
from raptor.task import Move, State, Task, Try

STATES = list(State)
_CODES = {state: code for code, state in enumerate(STATES, 1)}
_NAMES = ", ".join(f"'{state}'" for state in STATES)

COLUMNS = (
    "t.id, t.queue, t.service, t.data::text, t.body, t.encoding, t.priority, t.due, t.created, t.attempts,"
    " t.max_attempts, t.key, t.key_until, t.parent, t.active_s, t.timeout_s, t.timing, t.started, t.previous, t.ended,"
    " t.output, t.error, t.reason, t.history, t.fence, t.lease, t.deaths, t.suspect"
)
_DUE = (
    "SELECT id FROM (SELECT id FROM raptor.task WHERE state = 'ready' AND queue = %(queue)s AND suspect = %(suspects)s"
    " AND priority = {} AND due <= %(now)s ORDER BY due, id LIMIT %(room)s FOR UPDATE SKIP LOCKED) AS p{}"
)
TAKE = (
    f"WITH due AS MATERIALIZED ({' UNION ALL '.join(_DUE.format(p, p) for p in range(10))} LIMIT %(room)s)"
    " UPDATE raptor.task AS t SET state = 'taken', fence = t.fence + 1, owner = %(owner)s, lease = %(lease)s,"
    f" started = %(now)s WHERE t.id = ANY(ARRAY(SELECT id FROM due)) RETURNING {COLUMNS}"
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
SETTLE = (
    f"{_MOVES} UPDATE raptor.task AS t SET state = (ARRAY[{_NAMES}])[m.state], due = m.due, attempts = m.attempts,"
    " previous = m.previous, started = m.started, ended = m.ended, output = m.output, error = m.error,"
    " reason = coalesce(m.reason, ''), deaths = coalesce(m.deaths, 0), suspect = coalesce(m.suspect, 0) = 1,"
    " history = m.history, owner = NULL, lease = NULL, unwanted = false"
    " FROM mine AS m WHERE t.ctid = m.place RETURNING t.id"
)
FORGET = f"{_HOLDS} DELETE FROM raptor.task AS t USING mine AS m WHERE t.ctid = m.place RETURNING t.id"
EXTEND = (
    f"{_HOLDS} UPDATE raptor.task AS t SET lease = %s::timestamptz FROM mine AS m WHERE t.ctid = m.place"
    " RETURNING t.id, t.unwanted"
)

_tries = msgspec.json.Decoder(tuple[Try, ...])
_starts = msgspec.json.Decoder(Starts)


async def send_take(transaction: Transaction, wants: Sequence[Want], owner: str, now: float) -> Finish[Taken]:
    limited = sorted({want.queue for want in wants if want.concurrency is not None or want.rate is not None})
    others = [want.queue for want in wants if not want.suspects]
    suspects = await transaction.send(SUSPECTS, (others, Time(reached(now)))) if others else None
    if limited:
        given = await _take_limited(transaction, wants, owner, now, limited)
        cursors: list[Answer] = []
    else:
        given = Taken([], {})
        cursors = [
            await transaction.send(TAKE, _wanted(want, want.room, owner, now)) for want in wants if want.room > 0
        ]

    async def finish() -> Taken:
        doubtful = [] if suspects is None else await suspects.fetchall()
        tasks = [task for cursor in cursors for task in _in_order(await cursor.fetchall(), owner)]
        return Taken(given.tasks or tasks, given.spent, frozenset(row[0] for row in doubtful))

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
        tasks += _in_order(rows, owner)
    return Taken(tasks, spent)


def _wanted(want: Want, room: int, owner: str, now: float) -> dict[str, Any]:
    return {
        "queue": want.queue, "suspects": want.suspects, "now": Time(reached(now)), "room": room, "owner": owner,
        "lease": Time(at(now + want.lease_s)),
    }  # fmt: skip


async def send_settle(transaction: Transaction, moves: Sequence[Move], now: float) -> Finish[frozenset[int]]:
    """Those that are still ours move on, by their ids: two that settle the same never wait in a circle."""
    first: dict[tuple[int, int], Move] = {}
    for move in moves:
        first.setdefault((move.id, move.fence), move)
    ordered = [first[hold] for hold in sorted(first)]
    kept = [move for move in ordered if move.keep]
    gone = [move for move in ordered if not move.keep]
    if any(move.successor is not None for move in ordered):
        await lock_keys(transaction, [move.successor for move in ordered if move.successor is not None])
    cursors: list[Answer] = []
    if kept:
        cursors.append(await transaction.send(SETTLE, _settled(kept)))
    if gone:
        holds = (Column(INT8, [move.id for move in gone]), Column(INT8, [move.fence for move in gone]))
        cursors.append(await transaction.send(FORGET, holds))

    async def finish() -> frozenset[int]:
        done = {row[0] for cursor in cursors for row in await cursor.fetchall()}
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


def _settled(moves: Sequence[Move]) -> tuple[Any, ...]:
    def times(values: list[float | None]) -> Column | None:
        if all(value is None for value in values):
            return None
        return Column(TIME, [None if value is None else at(value) for value in values])

    def texts(values: list[str | None]) -> Column | None:
        return Column(TEXT, values) if any(values) or any(value is not None for value in values) else None

    deaths, suspect = [move.deaths for move in moves], [int(move.suspect) for move in moves]
    return (
        Column(INT8, [move.id for move in moves]),
        Column(INT8, [move.fence for move in moves]),
        Column(INT2, [_CODES[move.state] for move in moves]),
        Column(TIME, [not_before(move.due) for move in moves]),
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
    ordered = sorted(set(holds))
    columns = (Column(INT8, [hold.id for hold in ordered]), Column(INT8, [hold.fence for hold in ordered]))
    cursor = await transaction.send(EXTEND, (*columns, Time(at(until))))

    async def finish() -> Held:
        held = dict(await cursor.fetchall())
        stale = frozenset(hold.id for hold in holds) - held.keys()
        return Held(stale, frozenset(id for id, unwanted in held.items() if unwanted))

    return finish


def _in_order(rows: list[tuple[Any, ...]], owner: str) -> list[Task]:
    rows.sort(key=lambda row: (row[6], row[7], row[0]))
    return [_taken(row, owner) for row in rows]


def _taken(row: tuple[Any, ...], owner: str) -> Task:
    (id, queue, service, data, body, encoding, priority, due, created, attempts, max_attempts, key, key_until, parent,
     active_s, timeout_s, timing, begun, previous, ended, output, error, reason, history, fence, lease, deaths,
     suspect) = row  # fmt: skip
    if data is None:
        data = read_body(body, encoding)
    if key is key_until is parent is active_s is timeout_s is timing is previous is ended is history is None:
        return Task(  # as nearly all are
            id=id, queue=queue, service=service, data=data, state=State.TAKEN, priority=priority, due=seconds(due),
            created=seconds(created), attempts=attempts, max_attempts=max_attempts, started=seconds(begun),
            output=output, error=error, reason=reason, fence=fence, owner=owner, lease=seconds(lease), deaths=deaths,
            suspect=suspect,
        )  # fmt: skip
    tries = read_history(history)
    return Task(
        id=id, queue=queue, service=service, data=data, state=State.TAKEN, priority=priority, due=seconds(due),
        created=seconds(created), attempts=attempts, max_attempts=max_attempts, key=key, key_until=maybe(key_until),
        parent=parent, active_s=active_s, timeout_s=timeout_s, timing=timing, started=maybe(begun),
        previous=maybe(previous), ended=maybe(ended), output=output, error=error, history=tries or (), fence=fence,
        owner=owner, lease=maybe(lease), deaths=deaths, suspect=suspect,
        reason=reason if tries is not None else "damaged",
    )  # fmt: skip


def read_body(body: bytes, encoding: str | None) -> str | bytes:
    return body if encoding is None else body.decode("utf-8", "replace")


def read_history(text: str | None) -> tuple[Try, ...] | None:
    """None for one that makes no sense: anybody may write to the table."""
    try:
        return _tries.decode(text) if text else ()
    except msgspec.DecodeError:
        return None
