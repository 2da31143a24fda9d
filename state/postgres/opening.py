"""Opening a store on PostgreSQL: the schema is brought up to date, and what the server promises is looked at."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from raptor.clock import Clock
from raptor.state.postgres.address import Address, read
from raptor.state.postgres.durability import Durability, promises, skew
from raptor.state.postgres.link import connect, looked_at
from raptor.state.postgres.migration import migrate
from raptor.state.postgres.store import PostgresStore
from raptor.state.postgres.trouble import refusal


@asynccontextmanager
async def open_postgres(address: str, clock: Clock) -> AsyncGenerator[PostgresStore]:
    where, durability, skew_s = await prepare(read(address), clock)
    store = PostgresStore(where, clock)
    store.durability, store.skew_s = durability, skew_s
    clock.follow(-store.skew_s)
    try:
        yield store
    finally:
        await store.close()


async def prepare(address: Address, clock: Clock) -> tuple[Address, Durability, float]:
    """Bring the schema up to date; -> how it is reached, what is promised, and how far the clock here is ahead."""
    try:
        address = await looked_at(address)
        connection = await connect(address, role="opening")
    except Exception as error:
        raise refusal(address, error) from error
    try:
        durability = await promises(connection, address)
        await migrate(connection, address)
        return address, durability, await skew(connection, clock)
    except Exception as error:
        raise refusal(address, error) from error
    finally:
        await connection.close()
