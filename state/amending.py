"""Changing few tasks of raptor.sqlite, one by one: leases, cancels, revivals. Runs in the thread that owns the file."""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Connection
from typing import Any

from raptor.state.base import Held, Hold, Query
from raptor.state.columns import SUMS, by_name, listed, nonsense, sealed, whole_rows
from raptor.state.tasks import find
from raptor.task import State


def extend(connection: Connection, holds: Sequence[Hold], until: float) -> Held:
    fences = {hold.id: hold.fence for hold in holds}
    found = map(by_name, whole_rows(connection, fences))
    held = [row for row in found if row["state"] == "taken" and row["fence"] == fences[row["id"]]]
    for row in held:
        _amend(connection, row, lease=until)
    stale = fences.keys() - {row["id"] for row in held}
    return Held(frozenset(stale), frozenset(row["id"] for row in held if row["unwanted"]))


def cancel(connection: Connection, ids: Sequence[int], now: float, reason: str) -> dict[int, State]:
    before = {task.id: task.state for task in find(connection, Query(ids=tuple(ids), limit=len(ids)))}
    for row in map(by_name, whole_rows(connection, before)):
        match before[row["id"]]:
            case State.READY:
                _amend(connection, row, state="cancelled", ended=now, reason=reason)
            case State.TAKEN:
                _amend(connection, row, unwanted=1)
            case _:
                pass
    return before


# Of two with the same key only one waits.
REVIVABLE = (
    "SELECT 1 FROM task WHERE id = ? AND state IN ('done', 'dead', 'cancelled')"
    ' AND ("key" IS NULL OR NOT EXISTS (SELECT 1 FROM task AS other WHERE other.service = task.service'
    """ AND other."key" = task."key" AND other.state IN ('ready', 'taken')))"""
)


def revive(connection: Connection, ids: Sequence[int], now: float) -> list[int]:
    revived: list[int] = []
    for id in ids:
        if connection.execute(REVIVABLE, (id,)).fetchone() is None:
            continue
        for row in map(by_name, whole_rows(connection, [id])):
            _amend(
                connection, row, state="ready", due=now, attempts=0, deaths=0, ended=None, started=None, reason="",
                previous=row["due"], key_until=None,
            )  # fmt: skip
        revived.append(id)
    return revived


def _amend(connection: Connection, row: dict[str, Any], **changes: Any) -> None:
    changes = nonsense([*row.values()]) | changes  # as they are, SQLite would let nobody change the row
    new = sealed(row, **changes)
    columns = (*changes.keys() - SUMS, *SUMS)
    values = [new[name] for name in columns]
    connection.execute(f"UPDATE task SET {listed(columns, ' = ?')} WHERE id = ?", (*values, row["id"]))
