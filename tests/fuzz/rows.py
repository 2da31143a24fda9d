"""Targets: rows of the ledger and of the tables, the anchor, and tasks, as a store reads them back."""

from __future__ import annotations

import sqlite3
from functools import cache
from typing import Any

import msgspec

from raptor.errors import BadInput, RefusedState
from raptor.rows import Definition, Line, SchedulerState, ServiceTiming
from raptor.state import amending, anchor, columns, rescue, tasks
from raptor.state.base import Hold, Query, Want
from raptor.state.columns import listed
from raptor.state.connection import lenient, schema
from raptor.state.parts import SCRIPTS
from raptor.state.postgres import looking, taking
from raptor.state.postgres.tables import read_record
from raptor.state.postgres.wire import at, not_before, packed, reached, seconds
from raptor.state.seal import BrokenSeal, is_id, new_id, seal, unseal
from raptor.state.settling import settle
from raptor.state.sums import asked_of, fate_of, teach
from raptor.task import Move, Run, Slot, State, Task, Try
from tests.fuzz.draw import Draw
from tests.fuzz.target import Target, must, scratch

KINDS: dict[str, tuple[type[msgspec.Struct], ...]] = {
    "ledger": (Run, Slot),
    "record": (ServiceTiming, SchedulerState, Definition, Line),
}
NOW = 1_763_433_600.0
RUN = Run(id="r", service="s", scheduler="main", planned=1.5, attempt=1, start=2.5, end=3.5, info="é")
SLOT = Slot(service="s", planned=1.0, last=2.0, count=2, verdict="missed", recorded=3.0)
TIMING = ServiceTiming(last_run_timestamp=1, interval_seconds=60.0, slot=1.0, next_due=61.0, last_run_id="r")
STATE = SchedulerState(
    cycle="c", slot=1.0, started=1.5, services_queue=("a", "b"), current_service="c", current_run=RUN
)
TASK = Task(service="ping", due=NOW - 1, data='{"a":1}')


def sealed(data: bytes, what: str) -> None:
    """A row of any text; of any text with a checksum that fits; and as PostgreSQL keeps it."""
    draw = Draw(data)
    kind, checked = draw.pick(KINDS[what]), draw.below(3)
    body = draw.rest()
    text = body.decode("utf-8", "surrogateescape")
    if checked == 0:
        row: object = text
    elif checked == 1:
        row = f'{text[:-1]},"crc":"{_checksum(what, text)}"}}'
    else:
        row = [body, None, 1, 2.5][len(body) % 4]
    try:
        record = unseal(what, "k", row, kind)
        _keeps(what, record)
    except BrokenSeal:
        pass
    try:
        _keeps(what, read_record(text, kind, what))
    except RefusedState:
        pass


def _checksum(table: str, text: str) -> str:
    from raptor.state.seal import _crc

    return f"{_crc(table, 'k', text[:-1].encode('utf-8', 'surrogateescape') + b'}'):08x}"


def _keeps(what: str, record: msgspec.Struct) -> None:
    again = unseal(what, "k", seal(what, "k", record), type(record))
    must(again == record, f"{record} reads back as {again}")


def anchors(data: bytes) -> None:
    """anchor.json and heads, of any bytes."""
    kept, content = scratch() / (anchor.NAME if data[:1] < b"\x80" else "heads"), data[1:]
    if data[:1] >= b"\x40" and data[:1] < b"\x80":
        text = content.decode("utf-8", "surrogateescape")
        from raptor.state.seal import _crc

        crc = _crc("anchor", "", text[:-1].encode("utf-8", "surrogateescape") + b"}")
        content = f'{text[:-1]},"crc":"{crc:08x}"}}'.encode("utf-8", "surrogateescape")
    kept.write_bytes(content)
    try:
        anchor.read(scratch())
    except RefusedState:
        pass
    for name, head in anchor.read_heads(scratch()).items():
        must(0 <= head < 10**anchor.DIGITS, f"the head of {name} is {head}")
    is_id(content.decode("utf-8", "surrogateescape")[:32])


@cache
def _database() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.text_factory = lenient
    connection.executescript(schema("stamp.sql"))
    connection.execute("INSERT INTO stamp VALUES (?, 1)", (new_id(),))
    teach(connection)
    for script in SCRIPTS:
        connection.executescript(schema(script))
    return connection


def _put(value: Any) -> Any:
    """A column of a task as it is put."""
    return None if isinstance(value, tuple) else int(value) if isinstance(value, bool) else value


CHANGED = tuple(name for name in rescue.COLUMNS if name not in ("id", "crc", "fate"))
UNCHANGED = {name: _put(getattr(TASK, name, None)) for name in CHANGED} | {"state": "ready"}
TEXT = {*columns.TEXTS, *columns.MAYBE_TEXTS}
# Bytes as text, for what is not UTF-8; data may be either.
INSERTS = tuple(
    f"INSERT INTO task ({listed(rescue.COLUMNS)}) VALUES ("
    + ", ".join(f"CAST(:{name} AS TEXT)" if name in texts else f":{name}" for name in rescue.COLUMNS)
    + ")"
    for texts in (TEXT, {*TEXT, "data"})
)


def _column(draw: Draw, name: str) -> Any:
    """What STRICT lets a column of task hold, however little sense it makes."""
    if name in columns.TEXTS:
        return draw.pick((*State, "", "lost")) if name == "state" else draw.text().encode("utf-8", "surrogatepass")
    if name == "data":
        return draw.pick((draw.text().encode("utf-8", "surrogatepass"), draw.blob(), draw.integer(), _finite(draw)))
    if name in columns.COUNTS:
        return draw.integer() >> 1  # a fence that cannot grow by one has no takes left
    if name in columns.NUMBERS:
        return _finite(draw)
    if name in columns.MAYBE_TEXTS:
        return draw.maybe(lambda: draw.text().encode("utf-8", "surrogatepass"))
    return draw.maybe(draw.integer if name in columns.MAYBE_COUNTS else lambda: _finite(draw))


def _finite(draw: Draw) -> float:
    found = draw.number()  # SQLite takes NaN for NULL, which the columns refuse
    return 0.0 if found != found else found


def rows_of_tasks(data: bytes) -> None:
    """Whatever SQLite lets stand in a row is found, given or refused, and settled, as the contract of Store says."""
    draw, connection = Draw(data), _database()
    connection.execute("BEGIN")
    try:
        for id in range(1, 2 + draw.below(3)):
            _insert(connection, draw, id)
        try:
            rescue.examine(connection)
        except BrokenSeal:
            pass
        want = Want(
            queue="default", room=1 + draw.below(3), suspects=bool(draw.below(2)), rate=draw.maybe(lambda: 2),
            concurrency=draw.maybe(lambda: 2),
        )  # fmt: skip
        if draw.chance(8):
            connection.execute("REPLACE INTO pace VALUES ('default', ?)", (draw.pick(("[]", "[[1,2]]", "[[1e18,5]]")),))
        taken = tasks.take_all(connection, [want], "me", NOW)
        holds = [Hold(task.id, task.fence) for task in taken.tasks]
        amending.extend(connection, holds, NOW + 60)
        moves = [_move(draw, task) for task in taken.tasks]
        must(settle(connection, moves, 100, NOW) == frozenset(), "what was taken is another's")
        tasks.stat(connection, NOW)
        tasks.queues(connection)
        try:
            tasks.find(connection, Query())
            amending.cancel(connection, [1, 2, 3], NOW, "")
        except BrokenSeal:
            pass
        amending.revive(connection, [1, 2, 3], NOW)
        tasks.shed(connection, NOW, 10)
        tasks.drop(connection, [1, 2, 3])
    finally:
        connection.execute("ROLLBACK")


def _insert(connection: sqlite3.Connection, draw: Draw, id: int) -> None:
    """Most columns stay as they were put."""
    row = {**UNCHANGED, "id": id}
    for _ in range(draw.below(12)):
        name = draw.pick(CHANGED)
        row[name] = _column(draw, name)
    body = row["data"]
    is_text = isinstance(body, bytes) and bool(draw.below(2))
    body = lenient(body) if is_text else body
    read = {name: lenient(value) if isinstance(value, bytes) else value for name, value in row.items()} | {"data": body}
    for name, of in (("crc", asked_of), ("fate", fate_of)):
        fitting = of(read) if draw.below(4) else None
        row[name] = draw.integer() if fitting is None else fitting
    connection.execute(INSERTS[is_text], row)


def _move(draw: Draw, task: Task) -> Move:
    state = draw.pick(tuple(state for state in State if state is not State.TAKEN))
    return Move(
        id=task.id, fence=task.fence, queue="default", state=state, attempts=draw.below(100), ended=NOW,
        due=NOW if state is State.READY else None, keep=bool(draw.below(2)),
        history=(Try(start=None, end=NOW, verdict="retry"),), successor=draw.maybe(lambda: TASK),
    )  # fmt: skip


def rows_of_postgres(data: bytes) -> None:
    """Values that the columns of raptor.task may hold: rows of a take, and whole ones; and times there and back."""
    draw = Draw(data)
    micros = 816_748_800_000_000 + draw.integer() % 10**15
    texts = [draw.text().encode("utf-8", "replace").decode() for _ in range(3)]
    body = draw.maybe(draw.blob)
    encoding = draw.maybe(lambda: draw.pick(("json", "text")))
    history = draw.pick((None, "", "[]", texts[0], draw.rest().decode("utf-8", "replace")))
    rare = msgspec.json.encode(
        [texts[0], micros, 5, 1.5, 2.5, texts[1], None, micros, None, texts[2], history, body, encoding, "", 3]
    ).decode()
    row = (7, "ping", None if body else "1", 5, micros, micros, 0, None, 1, rare if len(texts[0]) % 2 else None)
    (task,) = taking._in_order([row], Want(queue="default", room=1), "me", NOW)
    must(task.id == 7 and task.fence == 1, "another task")
    data_of = None if body is not None else "{}"
    whole = (
        7, "q", "ping", data_of, body, encoding, 5, micros, micros, 0, None, texts[0], None, None, None, 1.0, texts[1],
        micros, None, None, None, texts[2], "", history, 1, micros, 0, False, "taken", "me", False,
    )  # fmt: skip
    must(looking._whole(whole).due == task.due, "another due time")
    must(at(seconds(micros)) == micros and not_before(seconds(micros)) == micros, f"{micros} is another time when read")
    must(reached(seconds(micros)) == micros, f"{micros} is not reached")
    when = draw.number()
    try:
        must(seconds(not_before(when)) >= when >= seconds(reached(when)), f"{when} is rounded to the wrong side")
    except (BadInput, OverflowError, ValueError):
        must(not abs(when) < 1e11, f"{when} was refused")
    packed(25, texts)


TARGETS = (
    Target(
        "ledger",
        lambda data: sealed(data, "ledger"),
        (b"\x00\x01" + msgspec.json.encode(RUN), b"\x01\x01" + msgspec.json.encode(SLOT), seal("ledger", "k",
         RUN).encode()),
        (b"null", b"1e309", b"NaN", b'"end"', b'"outcome":"ok"', b'"planned"', b"\\ud800", b"[[[["),
    ),
    Target(
        "record",
        lambda data: sealed(data, "record"),
        (
            b"\x00\x01" + msgspec.json.encode(TIMING), b"\x01\x01" + msgspec.json.encode(STATE),
            b"\x02\x01" + msgspec.json.encode(Definition(name="main", interval_s=60.0)),
            b"\x03\x01" + msgspec.json.encode(Line(name="q", rate=5)), b"\x00\x00" + seal("record", "k",
            TIMING).encode(),
        ),
        (b"null", b"1e309", b"next_due", b'"services_queue":[', b"\\ud800", b"99999999999999999999", b"[[[["),
    ),
    Target(
        "anchor",
        anchors,
        (
            b"\x00" + seal("anchor", "", anchor.Anchor(state=new_id(), owner="o", clean=True, written=1.0,
            sequences={"a": 1})).encode(),
            b"\x40" + msgspec.json.encode(anchor.Anchor(state="s", owner="o", clean=True, written=1.0,
            sequences={"a": 1})),
            b"\x80" + b"00000000000000000001\n" * 3,
        ),
        (b'"format":', b'"sequences":{', b"null", b"9" * 20, b"\n"),
    ),
    Target("task", rows_of_tasks, (bytes(64), bytes(range(3, 255, 4)), b"\x03\x01\x02" * 40), (b"[[", b"\xed\xa0\x80")),
    Target("postgres", rows_of_postgres, (bytes(40), bytes(range(1, 200, 3)), b"\x01\x02[]" * 12), (b"[]",
    b'[{"end":1,"verdict":""}]')),
)  # fmt: skip
