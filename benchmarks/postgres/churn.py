"""The same load for a long time on PostgreSQL: neither speed nor the size of the table or its indexes may drift."""

import asyncio
from functools import partial

import psycopg

from benchmarks.churn import Load, Sample, judge, keep_up, load_of
from benchmarks.postgres.queues import emptied
from benchmarks.postgres.server import databases
from benchmarks.report import Result
from benchmarks.rounds import loops, run
from benchmarks.services import services, swallow
from raptor.config import Config
from raptor.node import Node

SIZES = "SELECT pg_table_size('raptor.task') / 1e6, pg_indexes_size('raptor.task') / 1e6"


async def work(url: str, load: Load) -> list[Sample]:
    config = Config.load({"retention.tasks": f"{load.keep_s:g}s"})
    catalogue = services(["swallow"], swallow, every_s=None)
    with psycopg.connect(url, autocommit=True) as connection:
        async with Node(services=catalogue, config=config, store=url, listen=False) as node:
            return await keep_up(node, load, partial(asyncio.to_thread, emptied, url), partial(sizes_mb, connection))


def sizes_mb(connection: psycopg.Connection) -> dict[str, float]:
    row = connection.execute(SIZES).fetchone()
    assert row is not None
    return {"table": float(row[0]), "indexes": float(row[1])}


def measure(quick: bool, seconds: float | None = None) -> Result:
    load = load_of(quick, seconds)
    loop, factory = list(loops().items())[-1]
    with databases() as there:
        samples = run(factory, work(there.new("raptor"), load))
    return judge("pg-churn", load, samples, loop)
