"""Statements of the records by key, and of the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from raptor.errors import RefusedState, StaleLease
from raptor.state.base import Record, Right
from raptor.state.postgres.transaction import Transaction
from raptor.state.postgres.wire import INT8, TEXT, TIME, Column, Time, at
from raptor.task import Run, Slot

T = TypeVar("T", bound=msgspec.Struct)

LOAD = "SELECT key, record::text FROM raptor.record WHERE kind = %s ORDER BY changed"
# One who waits for the lock then sees what the one before wrote, also where there was no row to lock.
LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
FIND = "SELECT record::text FROM raptor.record WHERE kind = %s AND key = %s"
SAVE = (
    "INSERT INTO raptor.record (kind, key, record) VALUES (%s, %s, %s::text::json) ON CONFLICT (kind, key) DO UPDATE"
    " SET record = excluded.record, changed = excluded.changed"
)
REMOVE = "DELETE FROM raptor.record WHERE kind = %s AND key = %s"
HELD = (
    "SELECT c.key FROM raptor.claim AS c JOIN unnest(%s::text[], %s::bigint[]) AS r (key, fence)"
    " ON c.key = r.key AND c.fence = r.fence WHERE c.owner IS NOT NULL ORDER BY c.key FOR SHARE OF c"
)
RUNS = (
    "INSERT INTO raptor.run (id, service, started, outcome, record) SELECT u.id, u.service, u.started, u.outcome,"
    " u.record::json FROM unnest(%s::text[], %s::text[], %s::timestamptz[], %s::text[], %s::text[])"
    " AS u (id, service, started, outcome, record) ON CONFLICT DO NOTHING"
)
SLOTS = (
    "INSERT INTO raptor.slot (service, planned, last, record) SELECT u.service, u.planned, u.last, u.record::json"
    " FROM unnest(%s::text[], %s::timestamptz[], %s::timestamptz[], %s::text[]) AS u (service, planned, last, record)"
    " ON CONFLICT (service, planned) DO UPDATE SET last = excluded.last, record = excluded.record WHERE"
    " excluded.last > raptor.slot.last AND excluded.record ->> 'verdict' = raptor.slot.record ->> 'verdict'"
)
SPAN = (
    "SELECT record::text FROM raptor.slot WHERE service = %s AND last >= %s AND planned <= %s ORDER BY planned LIMIT %s"
)
# Of nodes that are long gone, and ended without a word.
FORGET = (
    "DELETE FROM raptor.mark WHERE seen < now() - interval '7 days'",
    "DELETE FROM raptor.node WHERE seen < now() - interval '7 days'",
    "DELETE FROM raptor.wave AS w WHERE seen < now() - interval '1 hour' AND NOT EXISTS (SELECT 1 FROM raptor.task AS t"
    " WHERE t.id = ANY(w.ids) AND t.state = 'taken')",
)
PRUNE = (
    "WITH old AS (SELECT id FROM raptor.run WHERE started < %(before)s UNION SELECT id FROM (SELECT id, row_number()"
    " OVER (PARTITION BY service ORDER BY started DESC, id DESC) AS place FROM raptor.run WHERE started >= %(before)s)"
    " AS r WHERE place > %(keep)s LIMIT %(limit)s) DELETE FROM raptor.run AS r USING old WHERE r.id = old.id",
    "WITH old AS (SELECT service, planned FROM raptor.slot WHERE last < %(before)s UNION SELECT service, planned FROM"
    " (SELECT service, planned, row_number() OVER (PARTITION BY service ORDER BY planned DESC) AS place"
    " FROM raptor.slot WHERE last >= %(before)s) AS s WHERE place > %(keep)s LIMIT %(limit)s)"
    " DELETE FROM raptor.slot AS s USING old WHERE s.service = old.service AND s.planned = old.planned",
)


async def check(transaction: Transaction, rights: Sequence[Right]) -> None:
    """StaleLease unless all are held; they stay so until the end of the transaction."""
    if rights:
        columns = (Column(TEXT, [right.key for right in rights]), Column(INT8, [right.fence for right in rights]))
        held = {row[0] for row in await transaction.rows(HELD, columns)}
        for right in rights:
            if right.key not in held:
                raise StaleLease(right.key)


def read_record(text: str, kind: type[T], table: str) -> T:
    """A record of JSON; anybody may write to the table."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        problem = f"has a row that is not a {kind.__name__}: {error}"
        raise RefusedState("damaged", f"raptor.{table}", problem, "mend or delete it by SQL") from error


async def load(transaction: Transaction, table: str, kind: type[Record]) -> dict[str, Record]:
    rows = await transaction.rows(LOAD, (table,))
    return {key: read_record(text, kind, f"record ({table} {key})") for key, text in rows}


async def find(transaction: Transaction, table: str, key: str, kind: type[Record]) -> Record | None:
    """A record, which nobody else can find in this way until the end of the transaction."""
    await transaction.rows(LOCK, (f"raptor.record/{table}/{key}",))
    rows = await transaction.rows(FIND, (table, key))
    return read_record(rows[0][0], kind, f"record ({table} {key})") if rows else None


async def save(transaction: Transaction, changes: Sequence[tuple[str, str, str | None]]) -> None:
    for table, key, text in changes:
        if text is None:
            await transaction.send(REMOVE, (table, key))
        else:
            await transaction.send(SAVE, (table, key, text))
    transaction.tell_changes([(table, key) for table, key, _ in changes])


async def record(transaction: Transaction, slots: Iterable[Slot], runs: Iterable[Run]) -> None:
    lines = list(runs)
    if lines:
        await transaction.send(
            RUNS,
            (
                Column(TEXT, [run.id for run in lines]),
                Column(TEXT, [run.service for run in lines]),
                Column(TIME, [at(run.start) for run in lines]),
                Column(TEXT, [run.outcome for run in lines]),
                Column(TEXT, [msgspec.json.encode(run) for run in lines]),
            ),
        )
    longest: dict[tuple[str, float], Slot] = {}  # a statement changes a line once
    for slot in slots:
        known = longest.setdefault((slot.service, at(slot.planned)), slot)
        if slot.extends(known):
            longest[slot.service, at(slot.planned)] = slot
    closed = list(longest.values())
    if closed:
        await transaction.send(
            SLOTS,
            (
                Column(TEXT, [slot.service for slot in closed]),
                Column(TIME, [at(slot.planned) for slot in closed]),
                Column(TIME, [at(slot.last) for slot in closed]),
                Column(TEXT, [msgspec.json.encode(slot) for slot in closed]),
            ),
        )


async def history(
    transaction: Transaction, service: str | None, since: float | None, until: float | None, failed: bool, limit: int
) -> list[Run]:
    wanted: dict[str, Any] = {
        "service = %s": service,
        "started >= %s": None if since is None else Time(at(since)),
        "started <= %s": None if until is None else Time(at(until)),
    }
    given = {condition: value for condition, value in wanted.items() if value is not None}
    conditions = [*given, *(["outcome <> 'ok'"] if failed else [])]
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    statement = f'SELECT record::text FROM raptor.run {where} ORDER BY started DESC, id COLLATE "C" DESC LIMIT %s'
    rows = await transaction.rows(statement, (*given.values(), limit))
    return [read_record(row[0], Run, "run") for row in rows]


async def span(transaction: Transaction, service: str, since: float, until: float, limit: int) -> list[Slot]:
    rows = await transaction.rows(SPAN, (service, Time(at(since)), Time(at(until)), limit))
    return [read_record(row[0], Slot, "slot") for row in rows]
