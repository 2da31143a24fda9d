"""Moving tasks of raptor.sqlite on: those that end alike in one statement. It runs in the thread that owns the file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from sqlite3 import Connection, Cursor
from typing import Any

import msgspec

from raptor.state.tasks import Put, as_list, put_all
from raptor.task import Move, State

MOVED = (
    "state", "attempts", "previous", "started", "ended", "output", "error", "reason", "deaths", "suspect", "history",
)  # fmt: skip
_SETTLE = f"UPDATE task SET {', '.join(f'{name} = ?' for name in MOVED)}, owner = NULL, lease = NULL, unwanted = 0"
SETTLE = f"{_SETTLE}, due = coalesce(?, due) WHERE state = 'taken' AND fence = ? AND id = ?"
SETTLE_ALIKE = f"{_SETTLE} WHERE state = 'taken' AND fence = ? AND id IN (SELECT value FROM json_each(?))"

UNWANTED = "SELECT id FROM task WHERE unwanted AND id IN (SELECT value FROM json_each(?))"


def settle(connection: Connection, moves: Sequence[Move], first: int, now: float) -> frozenset[int]:
    """Those that are still ours move on; successors are stored under ids from `first` on."""
    coming_back = [move.id for move in moves if move.state is State.READY]
    if coming_back:
        unwanted = {id for (id,) in connection.execute(UNWANTED, (as_list(coming_back),))}
        moves = [move.given_up(now) if move.id in unwanted else move for move in moves]
    alike: defaultdict[tuple[Any, ...], list[Move]] = defaultdict(list)
    refused: list[Move] = []
    others: list[tuple[Move, tuple[Any, ...]]] = []
    for move in moves:
        row = _settled(move)
        if move.due is None:
            alike[row].append(move)
        else:
            others.append((move, (*row[:-1], move.due, row[-1], move.id)))
    for row, group in alike.items():
        if len(group) == 1 or not _end_alike(connection, row, group):
            others += [(move, (*row[:-1], None, row[-1], move.id)) for move in group]
    if others and not _all_settled(connection, [row for _, row in others]):
        refused = [move for move, row in others if not connection.execute(SETTLE, row).rowcount]
    moved = [move for move in moves if not any(move is one for one in refused)] if refused else moves
    repeated = [move for move in moved if move.successor is not None]
    if repeated:
        successors = [move.successor for move in repeated if move.successor is not None]
        put_all(connection, [Put(successors, now, after=[move.id for move in repeated])], first)
    gone = [(move.id,) for move in moved if not move.keep]
    if gone:
        connection.executemany("DELETE FROM task WHERE id = ?", gone)
    return frozenset(move.id for move in refused)


def _end_alike(connection: Connection, row: tuple[Any, ...], group: list[Move]) -> bool:
    """Tasks that end with the same values, in one statement; -> False, and nothing done, if one is not ours."""
    ids = as_list([move.id for move in group])
    return _all_or_none(connection, len(group), lambda: connection.execute(SETTLE_ALIKE, (*row, ids)))


def _all_settled(connection: Connection, rows: list[tuple[Any, ...]]) -> bool:
    return _all_or_none(connection, len(rows), lambda: connection.executemany(SETTLE, rows))


def _all_or_none(connection: Connection, count: int, change: Callable[[], Cursor]) -> bool:
    connection.execute("SAVEPOINT settling")
    complete = change().rowcount == count
    if not complete:
        connection.execute("ROLLBACK TO settling")
    connection.execute("RELEASE settling")
    return complete


def _settled(move: Move) -> tuple[Any, ...]:
    """What it sets, but for the due time of those that come back, and the fence."""
    history = msgspec.json.encode(move.history).decode() if move.history else None
    return (
        move.state._value_,  # an enum's own `value` is slow to find
        move.attempts, move.previous, move.started, move.ended, move.output, move.error, move.reason, move.deaths,
        move.suspect, history, move.fence,
    )  # fmt: skip
