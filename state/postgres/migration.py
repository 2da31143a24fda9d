"""The schema: versions as .sql files, each applied once, in a transaction of its own, under one lock for all nodes.

Nodes of the version before go on with a newer schema: a new version only adds, with defaults, so that what is not
named goes on as before. It removes nothing that the version before it used, and renames nothing: that is left to the
version after it. A check is nothing that is used: it may go. A schema that is more than one version ahead is refused.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files
from typing import Any

from psycopg import AsyncConnection, errors

from raptor.errors import RefusedState
from raptor.state.postgres.address import Address
from raptor.state.postgres.trouble import grants

VERSION = 3
AHEAD = 1  # so many versions further this Raptor still goes along

TABLE = "CREATE TABLE raptor.version (version integer PRIMARY KEY, applied timestamptz NOT NULL DEFAULT now())"
APPLIED = "INSERT INTO raptor.version (version) VALUES (%s)"
_NAME = re.compile(r"\braptor\.(?=[a-z])")


def script(version: int, schema: str) -> bytes:
    text = (files("raptor.state.postgres") / "schema" / f"{version:03}.sql").read_text("utf-8")
    return named(text, schema).encode()


@lru_cache(maxsize=1000)
def named(text: str, schema: str) -> str:
    """A statement, written for the schema `raptor`, for another."""
    return text if schema == "raptor" else _NAME.sub(f"{schema}.", text)


async def found(connection: AsyncConnection[Any], address: Address) -> int:
    """The version of the schema that is there; 0: none."""
    try:
        row = await (
            await connection.execute(named("SELECT max(v.version) FROM raptor.version AS v", address.schema).encode())
        ).fetchone()
    except (errors.UndefinedTable, errors.InvalidSchemaName):
        return 0
    except errors.UndefinedColumn:
        raise _foreign(address, "version") from None
    except errors.InsufficientPrivilege as error:
        first = _first_line(error)
        raise RefusedState("unreadable", address.shown, f"gave no rights: {first}", grants(address, first)) from None
    return int(row[0] or 0) if row else 0


async def migrate(connection: AsyncConnection[Any], address: Address, *, create: bool = True) -> int:
    """Bring the schema up to this version; -> the version that is there."""
    version = await found(connection, address)
    while version < VERSION:
        if not create:
            raise RefusedState("absent", address.shown, "has no schema of Raptor", "run `raptor store migrate`")
        try:
            version = await _step(connection, address)
        except (errors.DuplicateTable, errors.DuplicateObject, errors.DuplicateFunction) as error:
            name = str(error).partition('"')[2].partition('"')[0]
            raise _foreign(address, name) from None
        except errors.InsufficientPrivilege as error:
            first = str(error).partition("\n")[0]
            advice = (
                "let its owner run `raptor store migrate` once, or GRANT CREATE ON DATABASE name TO role;"
                f" for work alone a role needs less: {grants(address)}"
            )
            raise RefusedState("unwritable", address.shown, f"lets nobody create: {first}", advice) from None
    if version > VERSION + AHEAD:
        problem = f"is of a newer Raptor (schema version {version}, this one knows {VERSION})"
        raise RefusedState("newer", address.shown, problem, "upgrade this node")
    return version


async def _step(connection: AsyncConnection[Any], address: Address) -> int:
    """Apply the next version, or see that another did."""
    name = address.schema
    async with connection.transaction():
        await connection.execute("SET LOCAL statement_timeout = 0")  # a large table takes its time
        await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 11))", (f"raptor schema {name}",))
        version = 0
        row = await (await connection.execute("SELECT to_regclass(%s)", (f"{name}.version",))).fetchone()
        if row is not None and row[0] is not None:
            version = await found(connection, address)
        if version >= VERSION:
            return version
        if version == 0:
            known = "SELECT 1 FROM pg_namespace WHERE nspname = %s"
            if await (await connection.execute(known, (name,))).fetchone() is None:
                await connection.execute(f"CREATE SCHEMA {name}".encode())
            await connection.execute(named(TABLE, name).encode())
        await connection.execute(script(version + 1, name), prepare=False)
        await connection.execute(
            named("INSERT INTO raptor.version (version) VALUES (%s)", name).encode(), (version + 1,)
        )
    return version + 1


def _foreign(address: Address, what: str) -> RefusedState:
    problem = f"has a {what or 'table'} in schema {address.schema} that is not Raptor's"
    return RefusedState("foreign", address.shown, problem, "name another schema: ?schema=name")


def _first_line(error: Exception) -> str:
    """What the server says; where in our statement is of no use to anybody."""
    return str(error).partition("\n")[0]
