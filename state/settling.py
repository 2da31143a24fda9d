"""Moving tasks of raptor.sqlite on: those that end alike in one statement. It runs in the thread that owns the file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from sqlite3 import Connection, Cursor
from typing import Any

import msgspec

from raptor.state.columns import as_list
from raptor.state.sums import fate, moment
from raptor.state.tasks import Put, put_all
from raptor.task import Move, State

MOVED = (
    "state", "attempts", "previous", "started", "ended", "output", "error", "reason", "deaths", "suspect", "history",
)  # fmt: skip
_SETTLE = (
    f"UPDATE task SET {', '.join(f'{name} = ?' for name in MOVED)}, fate = ?, owner = NULL, lease = NULL, unwanted = 0"
)
SETTLE = f"{_SETTLE}, due = coalesce(?, due), crc = crc + ? WHERE state = 'taken' AND fence = ? AND id = ?"
SETTLE_ALIKE = f"{_SETTLE} WHERE state = 'taken' AND fence = ? AND id IN (SELECT value FROM json_each(?))"

BEFORE = "SELECT id, unwanted, due FROM task WHERE id IN (SELECT value FROM json_each(?))"


def settle(connection: Connection, moves: Sequence[Move], first: int, now: float) -> frozenset[int]:
    """Those that are still ours move on; successors are stored under ids from `first` on."""
    moving = [move.id for move in moves if move.due is not None or move.state is State.READY]
    was_due: dict[int, float] = {}
    if moving:
        unwanted: set[int] = set()
        for id, is_unwanted, due in connection.execute(BEFORE, (as_list(moving),)):
            was_due[id] = due
            if is_unwanted:
                unwanted.add(id)
        if unwanted:
            moves = [
                move.given_up(now) if move.state is State.READY and move.id in unwanted else move for move in moves
            ]
    alike: defaultdict[tuple[Any, ...], list[Move]] = defaultdict(list)
    refused: list[Move] = []
    others: list[tuple[Move, tuple[Any, ...]]] = []
    for move in moves:
        row = _settled(move)
        if move.due is None:
            alike[row].append(move)
        else:
            # The checksum of what was asked goes with the due time; one that did not fit does not fit then.
            later = moment(move.due) - moment(was_due.get(move.id, move.due))
            others.append((move, (*row[:-1], _fate(row), move.due, later, row[-1], move.id)))
    for row, group in alike.items():
        given = (*row[:-1], _fate(row), row[-1])
        if len(group) == 1 or not _end_alike(connection, given, group):
            others += [(move, (*given[:-1], None, 0, row[-1], move.id)) for move in group]
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


def _fate(row: tuple[Any, ...]) -> int | None:
    """The checksum of what `_settled` gave: the task is nobody's any more."""
    columns: list[Any] = [*row, None, None, 0]
    return fate(*columns)
