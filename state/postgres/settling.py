"""Statements that move on what was taken, or keep it: those that are still ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from raptor.state.base import Held, Hold
from raptor.state.postgres.pipe import Answer
from raptor.state.postgres.putting import earliest, lock_keys, send_in_order
from raptor.state.postgres.transaction import Finish, Reading, Transaction
from raptor.state.postgres.wire import (
    INT2,
    INT4,
    INT8,
    TEXT,
    TIME,
    Column,
    Time,
    at,
    not_before,
)
from raptor.task import Move, State

STATES = list(State)
READY = State.READY  # looked up once: an enum's members are slow to find
_CODES = {state: code for code, state in enumerate(STATES, 1)}
_NAMES = ", ".join(f"'{state}'" for state in STATES)

# One look at the primary key for each, in the order given, whatever the planner believes of the table: rows are found
# from the list, never the list from the rows.
# A row that another changed while this waited for it is locked then, but too new for the statement to see its place:
# whatever is not found is asked for once more, by a statement that sees it.
_MINE = (
    "WITH mine AS MATERIALIZED (SELECT held.place, m.* FROM unnest({arrays}) AS m ({columns}) CROSS JOIN LATERAL"
    " (SELECT t.ctid AS place FROM raptor.task AS t WHERE t.id = m.id AND t.fence = m.fence"
    " AND t.state = 'taken' OFFSET 0 FOR UPDATE) AS held) "
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
    " suspect = coalesce(m.suspect, 0) = 1, history = m.history, owner = NULL, lease = NULL, listed = NULL,"
    " unwanted = false"
    " FROM mine AS m WHERE t.ctid = m.place RETURNING t.id"
)
# Of tasks that end with the same values, one statement has them once. In the order of the ids, too.
ALIKE = (
    "UPDATE raptor.task AS t SET state = %s, attempts = %s, previous = %s::timestamptz, started = %s::timestamptz,"
    " ended = %s::timestamptz, output = %s::text, error = %s::text, reason = %s, deaths = %s, suspect = %s,"
    " history = %s::text, owner = NULL, lease = NULL, unwanted = false"
    " WHERE t.id = ANY(%s::bigint[]) AND t.fence = %s AND t.state = 'taken' RETURNING t.id"
)
# Of most tasks there is nothing to tell but that they are over: a first try, without anything that is kept of it.
FIRST = (
    "UPDATE raptor.task AS t SET state = %s, started = %s::timestamptz, ended = %s::timestamptz, owner = NULL,"
    " lease = NULL, unwanted = false WHERE t.id = ANY(%s::bigint[]) AND t.fence = %s AND t.state = 'taken'"
    " AND t.attempts = 0 AND t.previous IS NULL AND t.output IS NULL AND t.error IS NULL AND t.reason = ''"
    " AND t.deaths = 0 AND NOT t.suspect AND t.history IS NULL RETURNING t.id"
)
FORGET = f"{_HOLDS} DELETE FROM raptor.task AS t USING mine AS m WHERE t.ctid = m.place RETURNING t.id"
EXTEND = (
    f"{_HOLDS} UPDATE raptor.task AS t SET lease = %s::timestamptz FROM mine AS m WHERE t.ctid = m.place"
    " RETURNING t.id, t.unwanted"
)


async def send_settle(transaction: Transaction, moves: Sequence[Move], now: float) -> Finish[frozenset[int]]:
    """Those that are still ours move on, by their ids: two that settle the same never wait in a circle."""
    first: dict[tuple[int, int], Move] = {}
    for move in moves:
        first.setdefault((move.id, move.fence), move)
    ordered = [first[hold] for hold in sorted(first)]
    await lock_keys(transaction, [move.successor for move in ordered if move.successor is not None])
    cursors = await _send_moves(transaction, ordered, now)
    is_over = all(move.state is not READY and move.successor is None for move in ordered)  # nothing comes after them

    async def finish() -> Reading[frozenset[int]]:
        if is_over and sum([await cursor.count() for cursor in cursors]) == len(moves):
            return frozenset  # as it mostly is: all of them, whichever they were
        done = {row[0] for cursor in cursors for row in await cursor.fetchall()}
        if left := [move for move in ordered if move.id not in done]:
            again = await _send_moves(transaction, left, now, again=True)
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
        return lambda: frozenset(stale)

    return finish


async def _send_moves(
    transaction: Transaction, moves: Sequence[Move], now: float, *, again: bool = False
) -> list[Answer]:
    kept = [move for move in moves if move.keep]
    gone = [move for move in moves if not move.keep]
    cursors: list[Answer] = []
    if not again and _are_first(kept):
        ids = Column(INT8, [move.id for move in kept])
        cursors.append(await transaction.send(FIRST, (str(kept[0].state), *_span(kept[0]), ids, kept[0].fence)))
    elif (alike := _alike(kept)) is not None:
        cursors.append(await transaction.send(ALIKE, alike))
    elif kept:
        cursors.append(await transaction.send(SETTLE, (*_settled(kept), Time(at(now)))))
    if gone:
        cursors.append(await transaction.send(FORGET, _columns(gone)))
    return cursors


def _are_first(moves: Sequence[Move]) -> bool:
    if not moves:
        return False
    state, started, ended, fence = moves[0].state, moves[0].started, moves[0].ended, moves[0].fence
    return state is not READY and all(
        move.state is state and move.ended == ended and move.started == started and move.fence == fence
        and move.output is None and move.error is None and not move.attempts and move.previous is None
        and not move.reason and not move.deaths and not move.history and not move.suspect and move.due is None
        for move in moves
    )  # fmt: skip


def _alike(moves: Sequence[Move]) -> tuple[Any, ...] | None:
    """The values of all of them; None where they differ, or come back each at a time of its own."""
    if not moves or any(move.due is not None or move.state is READY for move in moves):
        return None

    def values(move: Move) -> tuple[Any, ...]:
        return (
            move.state, move.attempts, move.previous, move.started, move.ended, move.output, move.error, move.reason,
            move.deaths, move.suspect, move.history, move.fence,
        )  # fmt: skip

    first, common = moves[0], values(moves[0])
    if any(values(move) != common for move in moves[1:]):
        return None

    return (
        str(first.state), first.attempts, _time(first.previous), *_span(first), first.output, first.error,
        first.reason, first.deaths, first.suspect,
        msgspec.json.encode(first.history).decode() if first.history else None,
        Column(INT8, [move.id for move in moves]), first.fence,
    )  # fmt: skip


def _span(move: Move) -> tuple[Time | None, Time | None]:
    return _time(move.started), _time(move.ended)


def _time(value: float | None) -> Time | None:
    return None if value is None else Time(at(value))


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

    async def finish() -> Reading[Held]:
        held: dict[int, bool] = dict(await cursor.fetchall())
        if left := [hold for hold in ordered if hold.id not in held]:
            held |= await transaction.rows(EXTEND, (*_columns(left), lease))
        stale = frozenset(hold.id for hold in holds) - held.keys()
        return lambda: Held(stale, frozenset(id for id, unwanted in held.items() if unwanted))

    return finish


def _columns(holds: Sequence[Hold | Move]) -> tuple[Column, Column]:
    return Column(INT8, [hold.id for hold in holds]), Column(INT8, [hold.fence for hold in holds])
