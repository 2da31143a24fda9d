"""Procrastinate in a process of its own, on psycopg: tasks put one by one, in batches, and drained ten at a time."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import Any

from procrastinate import App, PsycopgConnector

from benchmarks.peers import serve
from benchmarks.raw import BATCH
from benchmarks.services import PAYLOAD

CONCURRENCY = 10
DATA: dict[str, Any] = {"data": PAYLOAD}


class Bench:
    """An application whose one task does nothing but note when it ran."""

    def __init__(self, url: str) -> None:
        self._app = App(connector=PsycopgConnector(conninfo=url, min_size=1, max_size=CONCURRENCY))
        self._task = self._app.task(name="swallow")(self._run)
        self._ran: list[float] = []

    async def _run(self, data: str) -> None:
        self._ran.append(perf_counter())

    async def install(self, count: int = 0) -> float:
        await self._app.schema_manager.apply_schema_async()
        return 0.0

    async def put(self, count: int) -> float:
        later = self._task.configure(schedule_at=datetime.now(UTC) + timedelta(hours=1))
        started = perf_counter()
        for _ in range(count):
            await later.defer_async(data=PAYLOAD)
        return (perf_counter() - started) / count

    async def put_many(self, count: int) -> float:
        later = self._task.configure(schedule_at=datetime.now(UTC) + timedelta(hours=1))
        started = perf_counter()
        for _ in range(count // BATCH):
            await later.batch_defer_async(*[DATA] * BATCH)
        return (perf_counter() - started) / count

    async def drain(self, count: int) -> float:
        """From the first run to the last, without its start and its end."""
        await self._app.connector.execute_query_async("TRUNCATE procrastinate_jobs CASCADE")
        await self._task.batch_defer_async(*[DATA] * count)
        await self._app.connector.execute_query_async("ANALYZE procrastinate_jobs")
        self._ran.clear()
        await self._app.run_worker_async(
            concurrency=CONCURRENCY, wait=False, delete_jobs="always", install_signal_handlers=False
        )
        assert len(self._ran) == count, f"Procrastinate ran {len(self._ran)} of {count}"
        return (self._ran[-1] - self._ran[0]) / count

    def turn(self, turn: Callable[[int], Awaitable[float]]) -> Callable[[int], float]:
        """Opened for each: a pool belongs to its event loop."""

        async def opened(count: int) -> float:
            async with self._app.open_async():
                return await turn(count)

        return lambda count: asyncio.run(opened(count))


def main(url: str) -> None:
    bench = Bench(url)
    bench.turn(bench.install)(0)
    serve({turn.__name__: bench.turn(turn) for turn in (bench.put, bench.put_many, bench.drain)})


if __name__ == "__main__":
    from benchmarks.postgres import procrastinate_peer  # not __main__: a task is named by its module

    procrastinate_peer.main(*sys.argv[1:])
