"""What a role may do: the statements that grant it, and which of them are missing."""

from __future__ import annotations

import re
from typing import Any, Literal, TypeAlias

from psycopg import AsyncConnection

from raptor.errors import BadInput

Purpose: TypeAlias = Literal["work", "put", "look"]
"""What a role is for: to run nodes, to put tasks in its own transactions, to look."""

TABLES: dict[Purpose, str] = {
    "work": "SELECT, INSERT, UPDATE, DELETE",
    "put": "SELECT, INSERT",
    "look": "SELECT",
}
MISSING = (
    "SELECT c.relname, p.word FROM pg_class AS c, unnest(%(words)s::text[]) WITH ORDINALITY AS p (word, place)"
    " WHERE c.relnamespace = to_regnamespace(%(schema)s) AND c.relkind IN ('r', 'v')"
    " AND (c.relkind = 'r' OR p.word = 'SELECT') AND NOT has_table_privilege(c.oid, p.word)"
    " ORDER BY c.relname, p.place"
)
CLOSED = (
    "SELECT p.oid::regprocedure::text FROM pg_proc AS p WHERE p.pronamespace = to_regnamespace(%(schema)s)"
    " AND NOT has_function_privilege(p.oid, 'EXECUTE') ORDER BY 1"
)
USAGE = "SELECT to_regnamespace(%(schema)s) IS NULL OR has_schema_privilege(to_regnamespace(%(schema)s), 'USAGE')"
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")


def statements(role: str, schema: str, purpose: Purpose = "work") -> list[str]:
    """For its owner to run, who is also the one to migrate: what later versions add is granted then."""
    if not role or "\0" in role:
        raise BadInput("name a role")
    who = role if _PLAIN.fullmatch(role) else '"' + role.replace('"', '""') + '"'
    words = TABLES[purpose]
    use = f"GRANT USAGE ON SCHEMA {schema} TO {who};"
    if purpose == "put":
        return [use, f"GRANT {words} ON {schema}.task TO {who};"]
    every = [
        use,
        f"GRANT {words} ON ALL TABLES IN SCHEMA {schema} TO {who};",
        f"ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT {words} ON TABLES TO {who};",
    ]
    if purpose == "look":
        return every
    return [
        *every,
        f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {who};",
        f"ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT EXECUTE ON FUNCTIONS TO {who};",
    ]


async def missing(connection: AsyncConnection[Any], schema: str) -> list[str]:
    """What the role of a connection lacks to run a node, as the statements that grant it."""
    who = connection.info.user
    who = who if _PLAIN.fullmatch(who) else f'"{who}"'
    given = {"schema": schema, "words": TABLES["work"].split(", ")}
    lacking: list[str] = []
    if await (await connection.execute(USAGE, given)).fetchone() == (False,):
        lacking.append(f"GRANT USAGE ON SCHEMA {schema} TO {who};")
    tables: dict[str, list[str]] = {}
    for table, word in await (await connection.execute(MISSING, given)).fetchall():
        tables.setdefault(table, []).append(word)
    lacking += [f"GRANT {', '.join(words)} ON {schema}.{table} TO {who};" for table, words in tables.items()]
    for (function,) in await (await connection.execute(CLOSED, given)).fetchall():
        lacking.append(f"GRANT EXECUTE ON FUNCTION {function} TO {who};")
    return lacking


def one_of(error: str, schema: str) -> str:
    """What grants that of which a server says that it is denied; nothing where it speaks another language."""
    found = re.search(r"permission denied for (schema|table|view|function) (\S+)", error)
    match found and found.groups():
        case ("schema", name):
            return f"GRANT USAGE ON SCHEMA {name} TO role"
        case ("table" | "view", name):
            return f"GRANT {TABLES['work']} ON {schema}.{name} TO role"
        case ("function", name):
            return f"GRANT EXECUTE ON FUNCTION {schema}.{name} TO role"
        case _:
            return ""
