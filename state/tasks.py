"""The tasks of raptor.sqlite: statements, and rows to and from records. It runs in the thread that owns the file."""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Connection
from typing import Any
from zlib import crc32

import msgspec

from raptor.state.base import Counts, Held, Hold, Query, Receipt, Taken, Want
from raptor.state.pace import Starts, allowance, started
from raptor.task import Move, State, Task, Try

PRIORITIES = range(10)
FIELDS = Task.__struct_fields__
COLUMNS = ", ".join(f'"{name}"' for name in FIELDS)
TAKEN = (
    "id", "queue", "service", "data", "priority", "due", "created", "attempts", "max_attempts", "key", "key_until",
    "parent", "active_s", "timeout_s", "timing", "started", "previous", "ended", "output", "error", "reason", "history",
    "fence", "lease", "deaths", "suspect", "crc",
)  # fmt: skip

_DUE = (
    "SELECT * FROM (SELECT id FROM task WHERE state = 'ready' AND queue = :queue AND suspect = :suspects"
    " AND priority = {} AND due <= :now ORDER BY due, id LIMIT :room)"
)
TAKE = (
    "UPDATE task SET state = 'taken', fence = fence + 1, owner = :owner, lease = :lease, started = :now"
    f" WHERE id IN (SELECT id FROM ({' UNION ALL '.join(_DUE.format(p) for p in PRIORITIES)}) LIMIT :room)"
    f" RETURNING {', '.join(repr(name).replace(chr(39), chr(34)) for name in TAKEN)}"
)
MOVED = (
    "state", "due", "attempts", "previous", "started", "ended", "output", "error", "reason", "deaths", "suspect",
    "history",
)  # fmt: skip
SETTLE = (
    f"UPDATE task SET {', '.join(f'{name} = ?' for name in MOVED)}, owner = NULL, lease = NULL, unwanted = 0"
    " WHERE id = ? AND fence = ? AND state = 'taken'"
)
AT_ONCE = 100  # rows in one statement
PLAIN = (
    "INSERT INTO task (id, queue, service, data, priority, due, created, max_attempts, crc) VALUES (?,?,?,?,?,?,?,?,?)"
)
PLAIN_MANY = f"{PLAIN}{', (?,?,?,?,?,?,?,?,?)' * (AT_ONCE - 1)}"
WHOLE = (
    'INSERT INTO task (id, queue, service, data, priority, due, created, max_attempts, crc, "key", key_until, parent,'
    " active_s, timeout_s, timing) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
)
REPLACE = (
    "UPDATE task SET queue = ?, data = ?, priority = ?, due = ?, max_attempts = ?, crc = ?, key_until = ?, parent = ?,"
    " active_s = ?, timeout_s = ?, timing = ? WHERE id = ?"
)

HOLDER = (
    "SELECT id, state FROM task WHERE service = ? AND \"key\" = ? AND (state IN ('ready', 'taken') OR key_until > ?)"
    " AND id <> ? ORDER BY state IN ('ready', 'taken') DESC, id DESC LIMIT 1"
)

_tries = msgspec.json.Decoder(tuple[Try, ...])
_starts = msgspec.json.Decoder(Starts)


def last_id(connection: Connection) -> int:
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'task'").fetchone()
    return 0 if row is None else int(row[0])


def put(
    connection: Connection, tasks: Sequence[Task], first: int, now: float, replace: bool, after: Sequence[int] = ()
) -> list[Receipt]:
    """Store them under ids from `first` on, which nobody else uses; `after` are the tasks that they repeat."""
    placed: list[Receipt] = []
    plain: list[tuple[Any, ...]] = []
    for number, task in enumerate(tasks, first):
        if task.key is not None:
            before = after[number - first] if after else 0
            placed.append(_put_keyed(connection, task, number, now, replace, before))
        else:
            whole = _needs_whole(task)
            row = _row(task, number, now, whole)
            if whole:
                connection.execute(WHOLE, row)
            else:
                plain.append(row)
            placed.append(Receipt(number, True))
    rest = len(plain) % AT_ONCE
    for start in range(rest, len(plain), AT_ONCE):
        connection.execute(PLAIN_MANY, [value for row in plain[start : start + AT_ONCE] for value in row])
    if rest:
        connection.executemany(PLAIN, plain[:rest])
    return placed


def take(connection: Connection, want: Want, owner: str, now: float) -> tuple[list[Task], float | None]:
    """What one queue gives; -> the tasks, and when its rate allows more, if that is what held it back."""
    room = want.room
    if want.concurrency is not None:
        query = "SELECT count(*) FROM task WHERE state = 'taken' AND queue = ?"
        room = min(room, want.concurrency - connection.execute(query, (want.queue,)).fetchone()[0])
    starts: Starts = []
    more_at: float | None = None
    if want.rate is not None:
        row = connection.execute("SELECT starts FROM pace WHERE queue = ?", (want.queue,)).fetchone()
        starts = [] if row is None else _starts.decode(row[0])
        allowed = allowance(starts, now, want.rate, want.per_s)
        if allowed.starts < room:
            room, more_at = allowed.starts, allowed.more_at
    if room <= 0 and any(at > now for at, _ in starts):  # the clock was set back: from now on the wait is counted
        _note_starts(connection, want, started(starts, now, 0, want.per_s))
    if room <= 0:
        return [], more_at
    given = {
        "owner": owner, "lease": now + want.lease_s, "now": now, "queue": want.queue, "suspects": want.suspects,
        "room": room,
    }  # fmt: skip
    rows = connection.execute(TAKE, given).fetchall()
    if want.rate is not None and rows:
        _note_starts(connection, want, started(starts, now, len(rows), want.per_s))
    if len(rows) < room:
        more_at = None
    rows.sort(key=lambda row: (row[4], row[5], row[0]))
    return [_taken(row, owner) for row in rows], more_at


def take_all(connection: Connection, wants: Sequence[Want], owner: str, now: float) -> Taken:
    tasks: list[Task] = []
    spent: dict[str, float] = {}
    for want in wants:
        found, more_at = take(connection, want, owner, now)
        tasks += found
        if more_at is not None:
            spent[want.queue] = more_at
    return Taken(tasks, spent)


def settle(connection: Connection, moves: Sequence[Move], first: int, now: float) -> frozenset[int]:
    """Those that are still ours move on; successors are stored under ids from `first` on."""
    stale: list[Move] = []
    moved: list[Move] = list(moves)
    rows = [_settled(move) for move in moves]
    connection.execute("SAVEPOINT settling")
    if rows and connection.executemany(SETTLE, rows).rowcount < len(rows):
        connection.execute("ROLLBACK TO settling")  # one by one, to see which
        moved = []
        for move, row in zip(moves, rows, strict=True):
            (moved if connection.execute(SETTLE, row).rowcount else stale).append(move)
    connection.execute("RELEASE settling")
    repeated = [move for move in moved if move.successor is not None]
    if repeated:
        successors = [move.successor for move in repeated if move.successor is not None]
        put(connection, successors, first, now, replace=False, after=[move.id for move in repeated])
    gone = [(move.id,) for move in moved if not move.keep]
    if gone:
        connection.executemany("DELETE FROM task WHERE id = ?", gone)
    return frozenset(move.id for move in stale)


def extend(connection: Connection, holds: Sequence[Hold], until: float) -> Held:
    query = "UPDATE task SET lease = ? WHERE id = ? AND fence = ? AND state = 'taken' RETURNING id, unwanted"
    held: dict[int, int] = {}
    for hold in holds:
        held.update(connection.execute(query, (until, hold.id, hold.fence)).fetchall())
    stale = frozenset(hold.id for hold in holds) - held.keys()
    return Held(stale, frozenset(id for id, unwanted in held.items() if unwanted))


def cancel(connection: Connection, ids: Sequence[int], now: float, reason: str) -> dict[int, State]:
    before = {task.id: task.state for task in find(connection, Query(ids=tuple(ids), limit=len(ids)))}
    ready = [(now, reason, id) for id, state in before.items() if state is State.READY]
    connection.executemany("UPDATE task SET state = 'cancelled', ended = ?, reason = ? WHERE id = ?", ready)
    taken = [(id,) for id, state in before.items() if state is State.TAKEN]
    connection.executemany("UPDATE task SET unwanted = 1 WHERE id = ?", taken)
    return before


def revive(connection: Connection, ids: Sequence[int], now: float) -> list[int]:
    query = (
        "UPDATE task SET state = 'ready', due = ?, attempts = 0, deaths = 0, ended = NULL, started = NULL, reason = '',"
        " previous = due, key_until = NULL WHERE id = ? AND state IN ('done', 'dead', 'cancelled')"
        ' AND ("key" IS NULL OR NOT EXISTS (SELECT 1 FROM task AS other WHERE other.service = task.service'
        """ AND other."key" = task."key" AND other.state IN ('ready', 'taken'))) RETURNING id"""
    )
    return [row[0] for id in ids for row in connection.execute(query, (now, id)).fetchall()]


def drop(connection: Connection, ids: Sequence[int]) -> int:
    rows = [(id,) for id in ids]
    query = "DELETE FROM task WHERE id = ? AND state IN ('done', 'dead', 'cancelled')"
    return connection.executemany(query, rows).rowcount if rows else 0


def shed(connection: Connection, before: float, limit: int) -> int:
    old = (
        "SELECT id FROM task WHERE state IN ('done', 'cancelled') AND ended < ?1"
        ' AND ("key" IS NULL OR key_until IS NULL OR key_until <= ?1) ORDER BY ended, id LIMIT ?2'
    )
    return connection.execute(f"DELETE FROM task WHERE id IN ({old})", (before, limit)).rowcount


def find(connection: Connection, query: Query) -> list[Task]:
    wanted: dict[str, Any] = {
        "queue = ?": query.queue,
        "service = ?": query.service,
        '"key" = ?': query.key,
        "parent = ?": query.parent,
        "owner <> ?": query.owner_not,
        "lease < ?": query.lapsed,
        "due >= ?": query.due_from,
        "due <= ?": query.due_until,
        "id > ?": query.after or None,
    }
    given = {condition: value for condition, value in wanted.items() if value is not None}
    if query.owner_not is not None or query.lapsed is not None or query.owners:
        given["state = 'taken' AND 1 = ?"] = 1
    conditions, values = list(given), list(given.values())
    if query.ids:  # as one argument: of others SQLite takes only so many
        conditions.append("id IN (SELECT value FROM json_each(?))")
        values.append(msgspec.json.encode(query.ids).decode())
    if query.owners:
        conditions.append("owner IN (SELECT value FROM json_each(?))")
        values.append(msgspec.json.encode(query.owners).decode())
    if query.states:  # spelled out, so that a partial index is found
        conditions.append(f"state IN ({', '.join(repr(State(state).value) for state in query.states)})")
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    order = "DESC" if query.newest else "ASC"
    rows = connection.execute(f"SELECT {COLUMNS} FROM task {where} ORDER BY id {order} LIMIT ?", (*values, query.limit))
    return [_whole(row) for row in rows.fetchall()]


def stat(connection: Connection, now: float, *, ended: bool = True) -> list[Counts]:
    """Counts by queue. Those that are done are by far the most, and can be left out."""
    found: dict[str, dict[str, Any]] = {}
    ready = "SELECT queue, sum(due <= :now), sum(due > :now), min(due) FROM task WHERE state = 'ready' GROUP BY queue"
    for queue, due, delayed, oldest in connection.execute(ready, {"now": now}).fetchall():
        found[queue] = {"ready": due, "delayed": delayed, "oldest": oldest if due else None}
    for states in ("state = 'taken'", "state = 'dead'", "state IN ('done', 'cancelled')")[: 3 if ended else 2]:
        counted = f"SELECT queue, state, count(*) FROM task WHERE {states} GROUP BY queue, state"
        for queue, state, count in connection.execute(counted).fetchall():
            found.setdefault(queue, {})[state] = count
    return [Counts(queue=queue, **counts) for queue, counts in sorted(found.items())]


def queues(connection: Connection) -> list[str]:
    # From one name to the next in the index: a plain DISTINCT would read all of it.
    names = (
        "WITH RECURSIVE name(n) AS (SELECT min(queue) FROM task WHERE state = 'ready' UNION ALL"
        " SELECT (SELECT min(queue) FROM task WHERE state = 'ready' AND queue > n) FROM name WHERE n IS NOT NULL)"
        " SELECT n FROM name WHERE n IS NOT NULL"
    )
    return [row[0] for row in connection.execute(names).fetchall()]


def upcoming(connection: Connection, queues: Sequence[str], after: float, limit: int) -> list[tuple[str, float]]:
    one = (
        "SELECT due FROM task WHERE state = 'ready' AND queue = ? AND suspect = ? AND priority = ? AND due > ?"
        " ORDER BY due LIMIT ?"
    )
    found = [
        (queue, row[0])
        for queue in queues
        for suspect in (0, 1)
        for priority in PRIORITIES
        for row in connection.execute(one, (queue, suspect, priority, after, limit)).fetchall()
    ]
    found.sort(key=lambda entry: (entry[1], entry[0]))
    return found[:limit]


def checksum(id: int, queue: str, service: str, data: str | bytes) -> int:
    body = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
    return crc32(body, crc32(f"{id}\0{queue}\0{service}\0".encode("utf-8", "surrogateescape")))


def _put_keyed(connection: Connection, task: Task, number: int, now: float, replace: bool, before: int) -> Receipt:
    held = connection.execute(HOLDER, (task.service, task.key, now, before)).fetchone()
    if held is not None and not (replace and held[1] in ("ready", "taken")):
        return Receipt(held[0], False)
    if held is not None and held[1] == "ready":
        crc = checksum(held[0], task.queue, task.service, task.data)
        connection.execute(
            REPLACE,
            (task.queue, task.data, task.priority, task.due, task.max_attempts, crc, task.key_until, task.parent,
             task.active_s, task.timeout_s, task.timing, held[0]),
        )  # fmt: skip
        return Receipt(held[0], False)
    if held is not None:  # it runs: it ends as it began, and the key is the new one's
        connection.execute('UPDATE task SET "key" = NULL WHERE id = ?', (held[0],))
    connection.execute(WHOLE, _row(task, number, now, True))
    return Receipt(number, True)


def _needs_whole(task: Task) -> bool:
    options = (task.key_until, task.parent, task.active_s, task.timeout_s, task.timing)
    return any(option is not None for option in options)


def _row(task: Task, number: int, now: float, whole: bool) -> tuple[Any, ...]:
    queue, service, data = task.queue, task.service, task.data
    crc = checksum(number, queue, service, data)
    row = (number, queue, service, data, task.priority, task.due, now, task.max_attempts, crc)
    if not whole:
        return row
    return (*row, task.key, task.key_until, task.parent, task.active_s, task.timeout_s, task.timing)


def _settled(move: Move) -> tuple[Any, ...]:
    history = msgspec.json.encode(move.history).decode() if move.history else None
    return (
        move.state.value, move.due, move.attempts, move.previous, move.started, move.ended, move.output, move.error,
        move.reason, move.deaths, move.suspect, history, move.id, move.fence,
    )  # fmt: skip


def _taken(row: tuple[Any, ...], owner: str) -> Task:
    (id, queue, service, data, priority, due, created, attempts, max_attempts, key, key_until, parent, active_s,
     timeout_s, timing, begun, previous, ended, output, error, reason, history, fence, lease, deaths, suspect,
     crc) = row  # fmt: skip
    # A damaged one is given all the same, and says so: it must not hold up those behind it.
    damaged = crc != checksum(id, queue, service, data)
    if key is parent is active_s is timeout_s is timing is previous is history is None and not damaged:
        return Task(  # as nearly all are
            id=id, queue=queue, service=service, data=data, state=State.TAKEN, priority=priority, due=due,
            created=created, attempts=attempts, max_attempts=max_attempts, started=begun, ended=ended, output=output,
            error=error, reason=reason, fence=fence, owner=owner, lease=lease, deaths=deaths, suspect=bool(suspect),
            key_until=key_until,
        )  # fmt: skip
    tries = _history(history)
    damaged = damaged or tries is None
    return Task(
        id=id, queue=queue, service=service, data=data, state=State.TAKEN, priority=priority, due=due, created=created,
        attempts=attempts, max_attempts=max_attempts, key=key, key_until=key_until, parent=parent, active_s=active_s,
        timeout_s=timeout_s, timing=timing, started=begun, previous=previous, ended=ended, output=output, error=error,
        history=tries or (), fence=fence, owner=owner, lease=lease, deaths=deaths, suspect=bool(suspect),
        reason="damaged" if damaged else reason,
    )  # fmt: skip


def _history(text: str | None) -> tuple[Try, ...] | None:
    """None for one that is damaged."""
    try:
        return _tries.decode(text) if text else ()
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None


def _note_starts(connection: Connection, want: Want, starts: Starts) -> None:
    text = msgspec.json.encode(starts).decode()
    connection.execute("REPLACE INTO pace (queue, starts) VALUES (?, ?)", (want.queue, text))


def _whole(row: Sequence[Any]) -> Task:
    fields = dict(zip(FIELDS, row, strict=True))
    fields["state"] = State(fields["state"])
    fields["history"] = _history(fields["history"]) or ()
    fields["suspect"], fields["unwanted"] = bool(fields["suspect"]), bool(fields["unwanted"])
    return Task(**fields)
