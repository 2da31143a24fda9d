"""The tasks of raptor.sqlite: statements, and rows to and from records. It runs in the thread that owns the file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from operator import attrgetter
from sqlite3 import Connection
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from raptor.state.base import Counts, Held, Hold, Query, Receipt, Taken, Want
from raptor.state.pace import Starts, allowance, started
from raptor.state.seal import BrokenSeal
from raptor.task import State, Task, Try

PRIORITIES = range(10)
STATES = frozenset(State)
TAKEN = State.TAKEN  # looked up once: an enum's members are slow to find
FIELDS = Task.__struct_fields__
COLUMNS = ", ".join(f'"{name}"' for name in FIELDS)

_DUE = (
    "SELECT * FROM (SELECT id FROM task WHERE state = 'ready' AND queue = :queue AND suspect = :suspects"
    " AND priority = {} AND due <= :now ORDER BY due, id LIMIT :room)"
)
_RARE = ("key", "key_until", "parent", "active_s", "timeout_s", "timing", "previous", "output", "error", "history")
TICKS = 2.0**22  # in a second. From 2004 to 2038 any time is a whole number of them; others are read as they stand


def _ticks(column: str) -> str:
    return f"CAST({column} * {TICKS} AS INTEGER)"


def _is_whole(column: str) -> str:
    return f"{column} BETWEEN {2.0**30} AND {2.0**31}"


# One row for all of them, so that the thread takes the interpreter's lock once and not for each: beside a busy event
# loop it would wait for it every time. Times are whole numbers there: SQLite takes longer to write a float that reads
# back as the same one than for all the rest of a row.
_IN_TIME = f"id IN (SELECT id FROM ({' UNION ALL '.join(_DUE.format(p) for p in PRIORITIES)}) LIMIT :room)"
DUE = (
    "SELECT json_group_array(json_array(id, service, iif(typeof(data) = 'text', data, NULL), priority,"
    f" {_ticks('due')}, {_ticks('created')}, attempts, max_attempts, fence, crc,"
    f""" {" AND ".join(f'"{name}" IS NULL' for name in _RARE)} AND deaths = 0 AND reason = ''"""
    f" AND {_is_whole('due')} AND {_is_whole('created')}))"
    f" FROM task WHERE {_IN_TIME}"
)
DUE_IDS = f"SELECT id FROM task WHERE {_IN_TIME}"
TAKE = (
    "UPDATE task SET state = 'taken', fence = fence + 1, owner = ?, lease = ?, started = ?"
    " WHERE id IN (SELECT value FROM json_each(?))"
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

_due = msgspec.json.Decoder(
    list[tuple[int, str, str | None, int, int, int, int, int | None, int, int, bool]], strict=False
)
_tries = msgspec.json.Decoder(tuple[Try, ...])
_starts = msgspec.json.Decoder(Starts)


def last_id(connection: Connection) -> int:
    return int(connection.execute("SELECT task FROM stamp").fetchone()[0])


class Put(NamedTuple):
    """Tasks that are stored all or none."""

    tasks: Sequence[Task]
    now: float
    replace: bool = False
    after: Sequence[int] = ()  # the tasks that they repeat


def put_all(connection: Connection, puts: Sequence[Put], first: int) -> list[list[Receipt]]:
    """Store them under ids from `first` on, which nobody else uses; those that need nothing else in few statements."""
    answers: list[list[Receipt]] = []
    plain: list[tuple[Any, ...]] = []
    number = last = first - 1
    for tasks, now, replace, after in puts:
        placed: list[Receipt] = []
        for place, task in enumerate(tasks):
            number += 1
            if task.key is not None:
                before = after[place] if after else 0
                placed.append(_put_keyed(connection, task, number, now, replace, before))
                last = max(last, placed[-1].id)
                continue
            whole = _needs_whole(task)
            row = _row(task, number, now, whole)
            if whole:
                connection.execute(WHOLE, row)
            else:
                plain.append(row)
            placed.append(Receipt(number, True))
            last = number
        answers.append(placed)
    rest = len(plain) % AT_ONCE
    for start in range(rest, len(plain), AT_ONCE):
        connection.execute(PLAIN_MANY, [*chain.from_iterable(plain[start : start + AT_ONCE])])
    if rest:
        connection.executemany(PLAIN, plain[:rest])
    if last >= first:
        connection.execute("UPDATE stamp SET task = ?", (last,))
    return answers


SUSPECTS = "SELECT EXISTS (SELECT 1 FROM task WHERE state = 'ready' AND queue = ? AND suspect = 1 AND due <= ?)"


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
    given = _give(connection, want, room, owner, now)
    if want.rate is not None and given:
        _note_starts(connection, want, started(starts, now, len(given), want.per_s))
    return given, None if len(given) < room else more_at


def take_all(connection: Connection, wants: Sequence[Want], owner: str, now: float) -> Taken:
    tasks: list[Task] = []
    spent: dict[str, float] = {}
    doubtful: list[str] = []
    for want in wants:
        found, more_at = take(connection, want, owner, now)
        tasks += found
        if more_at is not None:
            spent[want.queue] = more_at
        if not want.suspects and connection.execute(SUSPECTS, (want.queue, now)).fetchone()[0]:
            doubtful.append(want.queue)
    return Taken(tasks, spent, frozenset(doubtful))


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
    if query.ids:
        conditions.append("id IN (SELECT value FROM json_each(?))")
        values.append(as_list(query.ids))
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
    if isinstance(data, str):
        return crc32(f"{id}\0{queue}\0{service}\0{data}".encode("utf-8", "surrogateescape"))
    return crc32(data, crc32(f"{id}\0{queue}\0{service}\0".encode("utf-8", "surrogateescape")))


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
    return not (
        task.key_until is None
        and task.parent is None
        and task.active_s is None
        and task.timeout_s is None
        and task.timing is None
    )


def _row(task: Task, number: int, now: float, whole: bool) -> tuple[Any, ...]:
    queue, service, data = task.queue, task.service, task.data
    crc = checksum(number, queue, service, data)
    row = (number, queue, service, data, task.priority, task.due, now, task.max_attempts, crc)
    if not whole:
        return row
    return (*row, task.key, task.key_until, task.parent, task.active_s, task.timeout_s, task.timing)


def _give(connection: Connection, want: Want, room: int, owner: str, now: float) -> list[Task]:
    """Those that are due, given to their owner, in their order."""
    queue, suspects, lease = want.queue, want.suspects, now + want.lease_s
    asked = {"queue": queue, "suspects": suspects, "now": now, "room": room}
    ((found,),) = connection.execute(DUE, asked).fetchall()
    given: list[Task] = []
    odd: list[int] = []
    try:
        for id, service, data, priority, due, created, attempts, max_attempts, fence, crc, plain in _due.decode(found):
            # A damaged one is given all the same, and says so: it must not hold up those behind it.
            if not plain or data is None or crc != checksum(id, queue, service, data):
                odd.append(id)
                continue
            given.append(
                Task(
                    id=id, queue=queue, service=service, data=data, state=TAKEN, priority=priority, due=due / TICKS,
                    created=created / TICKS, attempts=attempts, max_attempts=max_attempts, started=now,
                    fence=fence + 1, owner=owner, lease=lease, suspect=suspects,
                )
            )  # fmt: skip
    except UnicodeEncodeError:  # one of them is no text any more
        given, odd = [], [row[0] for row in connection.execute(DUE_IDS, asked).fetchall()]
    ids = [*odd, *(task.id for task in given)]
    if ids:
        connection.execute(TAKE, (owner, lease, now, as_list(ids)))
    if odd:
        rows = connection.execute(
            f"SELECT crc, {COLUMNS} FROM task WHERE id IN (SELECT value FROM json_each(?))", (as_list(odd),)
        )
        given += [_checked(row) for row in rows.fetchall()]
    given.sort(key=attrgetter("priority", "due", "id"))
    return given


def _checked(row: Sequence[Any]) -> Task:
    task, history = _whole(row[1:]), row[1 + FIELDS.index("history")]
    damaged = row[0] != checksum(task.id, task.queue, task.service, task.data) or _history(history) is None
    return msgspec.structs.replace(task, reason="damaged") if damaged else task


def as_list(ids: Iterable[int]) -> str:
    """As one argument: of others SQLite takes only so many."""
    return msgspec.json.encode([*ids]).decode()


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
    if fields["state"] not in STATES:
        raise BrokenSeal(f"task {fields['id']} is in no state that there is: {fields['state']!r}")
    fields["state"] = State(fields["state"])
    if not isinstance(fields["data"], str | bytes):  # a number, which nobody puts: its checksum will not fit
        fields["data"] = "null"
    fields["history"] = _history(fields["history"]) or ()
    fields["suspect"], fields["unwanted"] = bool(fields["suspect"]), bool(fields["unwanted"])
    return Task(**fields)
