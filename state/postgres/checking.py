"""Looking at a store on PostgreSQL before it is used: who one is there, what it promises, what is missing."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NamedTuple

from raptor.clock import Clock
from raptor.state.postgres.address import Address
from raptor.state.postgres.durability import Durability, promises, skew
from raptor.state.postgres.grants import missing
from raptor.state.postgres.link import Connection, connect, looked_at
from raptor.state.postgres.migration import AHEAD, VERSION, found, migrate
from raptor.state.postgres.trouble import refusal

CLOCK_S = 1.0


class Looked(NamedTuple):
    """What was found, a line each: whether it is well, what it is about, and what to do."""

    well: bool
    about: str
    text: str


class Migrated(NamedTuple):
    before: int
    after: int


@asynccontextmanager
async def opened(address: Address) -> AsyncGenerator[tuple[Connection, Address]]:
    try:
        address = await looked_at(address)
        connection = await connect(address, role="check")
    except Exception as error:
        raise refusal(address, error) from error
    try:
        yield connection, address
    except Exception as error:
        raise refusal(address, error) from error
    finally:
        await connection.close()


async def bring_up(address: Address) -> Migrated:
    """Create the schema, or bring it up to this version."""
    async with opened(address) as (connection, address):
        await promises(connection, address)  # of a replica it is said before anything is tried
        before = await found(connection, address)
        return Migrated(before, await migrate(connection, address))


async def examine(address: Address, clock: Clock) -> list[Looked]:
    """Whatever can be seen without changing anything."""
    async with opened(address) as (connection, address):
        durability = await promises(connection, address)
        who = f"{address.shown} answers as {connection.info.user}: PostgreSQL {durability.version // 10000}, a primary"
        lines = [Looked(True, "server", who), *_commits(durability), *_between(address)]
        skew_s = await skew(connection, clock)
        if abs(skew_s) >= CLOCK_S:
            lines.append(Looked(False, "clock", f"this machine's is off by {skew_s:.1f} s: set it by NTP"))
        lacking = await missing(connection, address.schema)
        if any("USAGE" in one for one in lacking):
            return [*lines, Looked(False, "rights", f"as the owner: {' '.join(lacking)}")]
        version = await found(connection, address)
    lines.append(_schema(address, version))
    if version and lacking:
        lines.append(Looked(False, "rights", f"to run nodes, as the owner: {' '.join(lacking)}"))
    elif version:
        lines.append(Looked(True, "rights", "all that a node needs"))
    return lines


def _commits(durability: Durability) -> list[Looked]:
    told = [Looked(durability.synchronous_commit != "off", "commits", _commit(durability.synchronous_commit))]
    for name, on in (("fsync", durability.fsync), ("full_page_writes", durability.full_page_writes)):
        damage = "off: a crash of the machine damages the database; set it to on in postgresql.conf"
        told.append(Looked(on, "commits", f"{name}={'on' if on else damage}"))
    return told


def _commit(setting: str) -> str:
    advice = ": a crash of the server loses the last commits; ALTER ROLE name SET synchronous_commit = on"
    return f"synchronous_commit={setting}" + (advice if setting == "off" else "")


def _between(address: Address) -> list[Looked]:
    if not address.pooler:
        return []
    off = "no notifications: queues are looked at once a second; no session locks: a dead node is gone after its lease"
    return [Looked(True, "pooler", f"transactions alone, so {off}; nothing is prepared")]


def _schema(address: Address, version: int) -> Looked:
    name = address.schema
    if version == 0:
        return Looked(False, "schema", f"{name} is not there: raptor store migrate")
    if version < VERSION:
        return Looked(False, "schema", f"{name} has version {version}, before {VERSION}: raptor store migrate")
    if version > VERSION + AHEAD:
        return Looked(False, "schema", f"{name} has version {version}, and this Raptor knows {VERSION}: upgrade it")
    return Looked(True, "schema", f"{name} has version {version}")
