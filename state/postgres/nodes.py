"""Statements of rights and presences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from raptor.rows import LEASE_S
from raptor.state.base import Grant, Presence, Right
from raptor.state.postgres.transaction import Transaction
from raptor.state.postgres.wire import INT8, TEXT, Column, Time, at, reached, seconds

MAKE = (
    "INSERT INTO raptor.claim (key, fence, lease) SELECT key, 0, 'epoch' FROM unnest(%s::text[]) AS u (key)"
    " ON CONFLICT DO NOTHING"
)
LOCK = "SELECT key FROM raptor.claim WHERE key = ANY(%s::text[]) ORDER BY key FOR UPDATE"
CLAIM = (
    "UPDATE raptor.claim AS c SET fence = c.fence + (c.owner IS DISTINCT FROM %(owner)s::text)::integer,"
    " owner = %(owner)s::text, lease = %(lease)s WHERE c.key = ANY(%(keys)s::text[]) AND (c.owner IS NULL"
    " OR c.owner = %(owner)s::text OR c.lease < %(now)s OR EXISTS (SELECT 1 FROM raptor.node AS n"
    " WHERE n.owner = c.owner AND raptor.is_gone(n.owner, n.seen, n.locked, %(now)s)))"
)
GRANTS = "SELECT key, owner, fence, lease FROM raptor.claim WHERE key = ANY(%s::text[])"
RELEASE = (
    "UPDATE raptor.claim AS c SET owner = NULL FROM unnest(%s::text[], %s::bigint[]) AS r (key, fence)"
    " WHERE c.key = r.key AND c.fence = r.fence AND c.owner = %s"
)
HOLDERS = (
    "SELECT c.key, c.owner, c.fence, c.lease FROM raptor.claim AS c WHERE starts_with(c.key, %(prefix)s)"
    " AND c.owner IS NOT NULL AND c.lease >= %(now)s AND NOT EXISTS (SELECT 1 FROM raptor.node AS n"
    ' WHERE n.owner = c.owner AND raptor.is_gone(n.owner, n.seen, n.locked, %(now)s)) ORDER BY c.key COLLATE "C"'
)
_NODES = (
    "SELECT n.owner, n.seen, n.record::text, NOT raptor.is_gone(n.owner, n.seen, n.locked, %(now)s) AS alive,"
    " n.started, clock_timestamp() AS here FROM raptor.node AS n WHERE n.seen >= %(now)s - interval '1 day'"
)
APPEAR = (
    "WITH mine AS (SELECT c.key FROM raptor.claim AS c JOIN unnest(%(keys)s::text[], %(fences)s::bigint[])"
    " AS r (key, fence) ON c.key = r.key AND c.fence = r.fence WHERE c.owner = %(owner)s ORDER BY c.key"
    " FOR UPDATE OF c), kept AS (UPDATE raptor.claim AS c SET lease = %(lease)s FROM mine WHERE c.key = mine.key"
    " RETURNING c.key, c.fence),"
    " me AS (INSERT INTO raptor.node AS n (owner, started, seen, locked, record) VALUES (%(owner)s, %(started)s,"
    " %(now)s, %(locked)s, %(record)s::text::json) ON CONFLICT (owner) DO UPDATE SET started = excluded.started,"
    " seen = excluded.seen, locked = excluded.locked, record = excluded.record"
    " RETURNING n.owner, n.seen, n.record::text, true, n.started, clock_timestamp())"
    " SELECT *, (SELECT coalesce(json_agg(json_build_array(key, fence)), '[]')::text FROM kept) FROM me"
    f" UNION ALL ({_NODES.replace(' AS here', ', NULL')} AND n.owner <> %(owner)s)"
)
NODES = _NODES
VANISH = (
    "DELETE FROM raptor.node WHERE owner = %s",
    "UPDATE raptor.claim SET owner = NULL WHERE owner = %s",
)


async def claim(
    transaction: Transaction, keys: Sequence[str], owner: str, now: float, lease_s: float
) -> dict[str, Grant]:
    ordered = sorted(set(keys))
    given = {"keys": ordered, "owner": owner, "lease": Time(at(now + lease_s)), "now": Time(reached(now))}
    await transaction.send(MAKE, (ordered,))
    await transaction.send(LOCK, (ordered,))
    await transaction.send(CLAIM, given)
    found = {row[0]: _grant(row) for row in await transaction.rows(GRANTS, (ordered,))}
    return {key: found[key] for key in keys}


async def release(transaction: Transaction, rights: Sequence[Right], owner: str) -> None:
    columns = (Column(TEXT, [right.key for right in rights]), Column(INT8, [right.fence for right in rights]))
    await transaction.send(RELEASE, (*columns, owner))


async def holders(transaction: Transaction, prefix: str, now: float) -> dict[str, Grant]:
    rows = await transaction.rows(HOLDERS, {"prefix": prefix, "now": Time(reached(now))})
    return {row[0]: _grant(row) for row in rows}


def shown(presence: Presence, now: float, locked: bool) -> dict[str, Any]:
    return {
        "owner": presence.owner, "started": Time(at(presence.started)), "now": Time(at(now)), "locked": locked,
        "record": msgspec.json.encode(presence).decode(), "lease": Time(at(now + LEASE_S)),
        "keys": Column(TEXT, [right.key for right in presence.rights]),
        "fences": Column(INT8, [right.fence for right in presence.rights]),
    }  # fmt: skip


def presences(rows: Sequence[tuple[Any, ...]]) -> list[Presence]:
    found = [_presence(*row) for row in rows]
    return sorted(found, key=lambda node: (node.started, node.owner))


def _presence(
    _owner: str, seen: int, record: str, alive: bool, _started: int, _here: int, kept: str | None = None
) -> Presence:
    shown = msgspec.json.decode(record, type=Presence)
    rights = shown.rights if kept is None else msgspec.json.decode(kept, type=tuple[Right, ...])
    return msgspec.structs.replace(shown, seen=seconds(seen), alive=alive, rights=rights)


def _grant(row: tuple[Any, ...]) -> Grant:
    _, owner, fence, lease = row
    return Grant(owner or "", fence, seconds(lease))
