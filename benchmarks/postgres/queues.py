"""Queues of nodes on PostgreSQL under measurement: filled ahead of time, and seen empty from outside."""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import islice
from time import perf_counter, sleep, time

import psycopg

from benchmarks.queues import CHUNK, fill, look_s
from raptor.clock import SystemClock
from raptor.node import Node
from raptor.state.postgres.opening import open_postgres
from raptor.task import Task

DEADLINE_S = 600.0
SLOWER = 2  # times as long as on SQLite a drain takes at best; a look costs the server more, too

# A look at the ends of two indexes, whatever the planner thinks of a table that it has not seen yet.
BY_INDEX = "SET enable_seqscan = off; SET jit = off"
PENDING = (
    "SELECT EXISTS (SELECT 1 FROM raptor.task WHERE shelf = 'ready' AND state = 'ready' AND queue = 'default'"
    " AND NOT suspect AND priority = 5 AND due <= to_timestamp(%s)) OR EXISTS (SELECT 1 FROM raptor.taken)"
)
DEAD = "SELECT count(*) FROM raptor.task WHERE shelf = 'dead'"


async def plan(url: str, tasks: Iterable[Task]) -> None:
    """Leave behind what a node before would have: tasks, each with its own due time."""
    clock, left = SystemClock(), iter(tasks)
    async with open_postgres(url, clock) as store:
        while chunk := list(islice(left, CHUNK)):
            await store.put(chunk, now=clock.now())


async def drain(node: Node, url: str, service: str, count: int) -> float:
    """Fill the queue while it is held back, let it go, and wait for its last verdict; -> the seconds for a task."""
    await node.call("queue", name="default", paused=True)
    await fill(node, service, count)
    started = perf_counter()
    await node.call("queue", name="default", paused=False)
    await asyncio.to_thread(emptied, url, count)
    return (perf_counter() - started) / count


def emptied(url: str, count: int = 0) -> None:
    """Wait until all that was due is done, durably."""
    until = time()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(BY_INDEX)
        while _first(connection.execute(PENDING, (until,)).fetchone()):
            assert time() < until + DEADLINE_S, "the queue was not empty in time"
            sleep(look_s(SLOWER * count))
        assert not _first(connection.execute(DEAD).fetchone()), "a task has failed"


def _first(row: Sequence[object] | None) -> bool:
    assert row is not None
    return bool(row[0])
