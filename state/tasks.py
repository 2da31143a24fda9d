"""The tasks of raptor.sqlite: statements, and rows to and from records. It runs in the thread that owns the file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from sqlite3 import SQLITE_ERROR, Connection, OperationalError
from typing import Any, NamedTuple

import msgspec

from raptor.state.base import Counts, Query, Receipt, Taken, Want
from raptor.state.columns import (
    ALL,
    FIELDS,
    SUM_OF_FATE,
    SUMS_SINCE,
    as_list,
    as_task,
    by_name,
    is_sealed,
    listed,
    nonsense,
    sealed,
    whole_rows,
)
from raptor.state.pace import Starts, allowance, noted, started
from raptor.state.sums import BROKEN, TICKS, asked, fate, fate_of, moment, plain
from raptor.task import State, Task

PRIORITIES = range(10)
TAKEN = State.TAKEN  # looked up once: an enum's members are slow to find
FENCE_AT = FIELDS.index("fence")

_DUE = (
    "SELECT * FROM (SELECT id FROM task WHERE state = 'ready' AND queue = :queue AND suspect = :suspects"
    " AND priority = {} AND due <= :now ORDER BY due, id LIMIT :room)"
)
# What a row holds that was only put, without the rarer columns: all that `fate` covers is as it begins.
_UNSET = (
    "key", "key_until", "parent", "active_s", "timeout_s", "timing", "previous", "started", "ended", "output", "error",
    "history", "owner", "lease",
)  # fmt: skip
_ZERO = ("attempts", "fence", "deaths", "suspect", "unwanted", "fate")


def _ticks(column: str) -> str:
    return f"CAST({column} * {TICKS} AS INTEGER)"


def _is_whole(column: str) -> str:
    return f"{column} BETWEEN {2.0**30} AND {2.0**31}"


# One row for all of them, so that the thread takes the interpreter's lock once and not for each: beside a busy event
# loop it would wait for it every time. Times are whole numbers there: SQLite takes longer to write a float that reads
# back as the same one than for all the rest of a row.
_IN_TIME = f"id IN (SELECT id FROM ({' UNION ALL '.join(_DUE.format(p) for p in PRIORITIES)}) LIMIT :room)"
_PLAIN = " AND ".join([
    "typeof(data) = 'text' AND state = 'ready' AND reason = ''",
    *(f"{name} = 0" for name in _ZERO),
    *(f'"{name}" IS NULL' for name in _UNSET),
    _is_whole("due"),
    _is_whole("created"),
])  # fmt: skip
DUE = (
    f"SELECT json_group_array(json_array(id, service, iif({_PLAIN}, data, NULL), priority,"
    f" {_ticks('due')}, {_ticks('created')}, max_attempts, crc)) FROM task WHERE {_IN_TIME}"
)
DUE_IDS = f"SELECT id FROM task WHERE {_IN_TIME}"
TAKE = (
    "UPDATE task SET state = 'taken', fence = 1, owner = ?, lease = ?, started = ?, fate = ?"
    " WHERE id IN (SELECT value FROM json_each(?))"
)
TAKE_ODD = (
    "UPDATE task SET state = 'taken', fence = ?, owner = ?, lease = ?, started = ?, fate = ?"
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
WITHOUT_KEY = 'UPDATE task SET "key" = NULL, crc = ? WHERE id = ?'

HOLDER = (
    'SELECT id, state, created FROM task WHERE service = ? AND "key" = ?'
    " AND (state IN ('ready', 'taken') OR key_until > ?) AND id <> ?"
    " ORDER BY state IN ('ready', 'taken') DESC, id DESC LIMIT 1"
)

_due = msgspec.json.Decoder(list[tuple[int, str, str | None, int, int, int, int | None, int]], strict=False)


LAST = "UPDATE stamp SET task = ?1, mirror = -1 - ?1"


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
    rows: list[tuple[Any, ...]] = []
    number = last = first - 1
    for tasks, now, replace, after in puts:
        placed: list[Receipt] = []
        begun, due, wait = moment(now), now, 0
        for place, task in enumerate(tasks):
            number += 1
            if task.key is not None:
                before = after[place] if after else 0
                placed.append(_put_keyed(connection, task, number, now, replace, before))
                last = max(last, placed[-1].id)
                continue
            if _needs_whole(task):
                connection.execute(WHOLE, _whole_row(task, number, now))
            else:
                if task.due != due:  # mostly all of a put are due at the same time
                    due = task.due
                    wait = moment(due) - begun
                rows.append(_row(task, number, now, wait))
            placed.append(Receipt(number, True))
            last = number
        answers.append(placed)
    rest = len(rows) % AT_ONCE
    for start in range(rest, len(rows), AT_ONCE):
        connection.execute(PLAIN_MANY, [*chain.from_iterable(rows[start : start + AT_ONCE])])
    if rest:
        connection.executemany(PLAIN, rows[:rest])
    if last >= first:
        connection.execute(LAST, (last,))
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
        known = [] if row is None else noted(row[0])
        starts = [(now, want.rate)] if known is None else known
        if known is None:  # from now on the wait is counted
            _note_starts(connection, want, starts)
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
    has_sums = connection.execute("PRAGMA user_version").fetchone()[0] >= SUMS_SINCE
    names = ALL if has_sums else FIELDS
    found = connection.execute(
        f"SELECT {listed(names)} FROM task {where} ORDER BY id {order} LIMIT ?", (*values, query.limit)
    )
    return [as_task(row, fits=not has_sums or is_sealed(row)) for row in found.fetchall()]


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


def _put_keyed(connection: Connection, task: Task, number: int, now: float, replace: bool, before: int) -> Receipt:
    held = connection.execute(HOLDER, (task.service, task.key, now, before)).fetchone()
    if held is not None and not (replace and held[1] in ("ready", "taken")):
        return Receipt(held[0], False)
    if held is not None and held[1] == "ready":
        connection.execute(
            REPLACE,
            (task.queue, task.data, task.priority, task.due, task.max_attempts, _asked(task, held[0], held[2]),
             task.key_until, task.parent, task.active_s, task.timeout_s, task.timing, held[0]),
        )  # fmt: skip
        return Receipt(held[0], False)
    if held is not None:  # it runs: it ends as it began, and the key is the new one's
        for row in whole_rows(connection, [held[0]]):
            connection.execute(WITHOUT_KEY, (sealed(by_name(row), key=None)["crc"], held[0]))
    connection.execute(WHOLE, _whole_row(task, number, now))
    return Receipt(number, True)


def _needs_whole(task: Task) -> bool:
    return not (
        task.key_until is None
        and task.parent is None
        and task.active_s is None
        and task.timeout_s is None
        and task.timing is None
    )


def _row(task: Task, number: int, now: float, wait: int) -> tuple[Any, ...]:
    queue, service, data, priority, tries = task.queue, task.service, task.data, task.priority, task.max_attempts
    crc = plain(number, queue, service, data, priority, tries, wait)
    return (number, queue, service, data, priority, task.due, now, tries, crc)


def _whole_row(task: Task, number: int, now: float) -> tuple[Any, ...]:
    return (
        number, task.queue, task.service, task.data, task.priority, task.due, now, task.max_attempts,
        _asked(task, number, now), task.key, task.key_until, task.parent, task.active_s, task.timeout_s, task.timing,
    )  # fmt: skip


def _asked(task: Task, id: int, created: float) -> int | None:
    return asked(
        id, task.queue, task.service, task.data, task.priority, task.due, created, task.max_attempts, task.key,
        task.key_until, task.parent, task.active_s, task.timeout_s, task.timing,
    )  # fmt: skip


def _give(connection: Connection, want: Want, room: int, owner: str, now: float) -> list[Task]:
    """Those that are due, given to their owner, in their order."""
    queue, suspects, lease = want.queue, want.suspects, now + want.lease_s
    asked = {"queue": queue, "suspects": suspects, "now": now, "room": room}
    given: list[Task] = []
    odd: list[int] = []
    try:
        ((found,),) = connection.execute(DUE, asked).fetchall()
        for id, service, data, priority, due, created, max_attempts, crc in _due.decode(found):
            if data is None or crc != plain(id, queue, service, data, priority, max_attempts, due - created):
                odd.append(id)
                continue
            given.append(
                Task(
                    id=id, queue=queue, service=service, data=data, state=TAKEN, priority=priority, due=due / TICKS,
                    created=created / TICKS, max_attempts=max_attempts, started=now, fence=1, owner=owner, lease=lease,
                )
            )  # fmt: skip
    except (UnicodeEncodeError, msgspec.ValidationError, OperationalError) as error:
        # A column is no text any more, or no number, or bytes, of which SQLite makes no JSON.
        if isinstance(error, OperationalError) and error.sqlite_errorcode != SQLITE_ERROR:
            raise
        given, odd = [], [row[0] for row in connection.execute(DUE_IDS, asked).fetchall()]
    new = fate("taken", 0, None, now, None, None, None, "", 0, 0, None, 1, owner, lease, 0)
    if given:
        connection.execute(TAKE, (owner, lease, now, new, as_list([task.id for task in given])))
    if odd:
        given += _give_odd(connection, odd, owner, lease, now, new)
    given.sort(key=attrgetter("priority", "due", "id"))
    return given


def _give_odd(
    connection: Connection, ids: Sequence[int], owner: str, lease: float, now: float, new: int | None
) -> list[Task]:
    """Those that are looked at column by column. A damaged one is given all the same, and says so: it must not hold up
    those behind it."""
    given: list[Task] = []
    alike: defaultdict[tuple[int, int | None], list[int]] = defaultdict(list)
    for row in whole_rows(connection, ids):
        fits = is_sealed(row)
        fence = row[FENCE_AT] + 1 if isinstance(row[FENCE_AT], int) else 1
        if not fits and (wrong := nonsense(row)):  # as it is, SQLite would let nobody change it
            connection.execute(f"UPDATE task SET {listed(wrong, ' = ?')} WHERE id = ?", (*wrong.values(), row[0]))
        task = as_task(row, fits=fits, state=TAKEN, fence=fence, owner=owner, lease=lease, started=now)
        given.append(task)
        becomes = new
        if not fits:
            becomes = BROKEN
        elif row[SUM_OF_FATE]:
            taken = {"state": "taken", "fence": task.fence, "owner": owner, "lease": lease, "started": now}
            becomes = fate_of(by_name(row) | taken)
        alike[fence, becomes].append(task.id)
    for (fence, becomes), group in alike.items():
        connection.execute(TAKE_ODD, (fence, owner, lease, now, becomes, as_list(group)))
    return given


def _note_starts(connection: Connection, want: Want, starts: Starts) -> None:
    text = msgspec.json.encode(starts).decode()
    connection.execute("REPLACE INTO pace (queue, starts) VALUES (?, ?)", (want.queue, text))
