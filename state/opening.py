"""Stores by their address: `memory:`, `sqlite:///path/of/a/state/directory`, `postgresql://user@host/database`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from urllib.parse import unquote

from raptor.clock import Clock, SystemClock
from raptor.errors import BadInput, did_you_mean
from raptor.masked import masked
from raptor.state.base import Store
from raptor.state.files import FileStore
from raptor.state.home import Home
from raptor.state.memory import MemoryStore


def open_store(address: str, clock: Clock | None = None) -> AbstractAsyncContextManager[Store]:
    """`async with open_store("sqlite:///srv/app/.raptor") as store:` owns a store until it is left."""
    scheme, colon, rest = address.partition(":")
    if not colon or scheme not in STORES:
        advice = did_you_mean(scheme, STORES) or f"an address begins with {', '.join(f'{name}:' for name in STORES)}"
        raise BadInput(f"store {masked(address)!r}: {advice}")
    return STORES[scheme](rest, clock or SystemClock())


@asynccontextmanager
async def _memory(rest: str, clock: Clock) -> AsyncGenerator[Store]:
    if rest:
        raise BadInput(f"store 'memory:{rest}': memory: goes without a path")
    store = MemoryStore()
    yield store
    await store.close()


@asynccontextmanager
async def _sqlite(rest: str, clock: Clock) -> AsyncGenerator[Store]:
    if not rest.startswith("///") or len(rest) == 3:
        raise BadInput(f"store 'sqlite:{rest}': write sqlite:/// and the path of a state directory")
    home = await clock.offload(Home.open, Path("/" + unquote(rest[3:])), clock)
    try:
        store = await clock.offload(FileStore, home)
        try:
            yield store
        finally:
            await store.close()
    finally:
        home.close()


@asynccontextmanager
async def _postgresql(rest: str, clock: Clock) -> AsyncGenerator[Store]:
    try:
        from raptor.state.postgres.opening import open_postgres
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "psycopg":
            raise
        raise BadInput("PostgreSQL needs psycopg: pip install 'raptor-scheduler[postgres]'") from None
    async with open_postgres(f"postgresql:{rest}", clock) as store:
        yield store


STORES: dict[str, Callable[[str, Clock], AbstractAsyncContextManager[Store]]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "postgresql": _postgresql,
    "postgres": _postgresql,
}
"""By scheme. A new backend is a line here."""
