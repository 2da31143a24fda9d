"""pgqueuer in a process of its own, on asyncpg: tasks put one by one and by the thousand, drained by the thousand."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from functools import partial
from time import perf_counter
from typing import Any

import asyncpg  # type: ignore[import-untyped]
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

from benchmarks.peers import serve
from benchmarks.raw import BATCH
from benchmarks.services import PAYLOAD

HOUR = timedelta(hours=1)
DATA = PAYLOAD.encode()


async def install(url: str) -> None:
    connection = await asyncpg.connect(url)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


async def put(queries: Queries, count: int) -> float:
    started = perf_counter()
    for _ in range(count):
        await queries.enqueue("swallow", DATA, 0, HOUR)
    return (perf_counter() - started) / count


async def put_many(queries: Queries, count: int, after: timedelta | None = HOUR) -> float:
    started = perf_counter()
    for _ in range(count // BATCH):
        await queries.enqueue(["swallow"] * BATCH, [DATA] * BATCH, [0] * BATCH, [after] * BATCH)
    return (perf_counter() - started) / count


async def drain(connection: asyncpg.Connection, count: int) -> float:
    """From the first run to the last, without its start and its end."""
    ran: list[float] = []
    queue = PgQueuer.from_asyncpg_connection(connection)

    @queue.entrypoint("swallow")
    async def swallow(job: Job) -> None:
        ran.append(perf_counter())

    await queue.run(batch_size=BATCH, mode=QueueExecutionMode.drain)
    assert len(ran) == count, f"pgqueuer ran {len(ran)} of {count}"
    return (ran[-1] - ran[0]) / count


async def filled(url: str, count: int) -> float:
    connection = await asyncpg.connect(url)
    await connection.execute("TRUNCATE pgqueuer, pgqueuer_log")
    await put_many(Queries(AsyncpgDriver(connection)), count, None)
    await connection.execute("VACUUM ANALYZE pgqueuer")
    return await drain(connection, count)  # which closes it


async def with_queries(url: str, work: Callable[[Queries, int], Awaitable[float]], count: int) -> float:
    connection = await asyncpg.connect(url)
    try:
        return await work(Queries(AsyncpgDriver(connection)), count)
    finally:
        await connection.close()


def turn(work: Callable[[int], Coroutine[Any, Any, float]]) -> Callable[[int], float]:
    return lambda count: asyncio.run(work(count))


def main(url: str) -> None:
    asyncio.run(install(url))
    serve(
        {
            "put": turn(partial(with_queries, url, put)),
            "put_many": turn(partial(with_queries, url, put_many)),
            "drain": turn(partial(filled, url)),
        }
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
