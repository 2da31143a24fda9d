"""Queues of nodes under measurement: filled ahead of time, held back and let go, and seen empty from outside."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from sqlite3 import Connection
from time import perf_counter, time

from benchmarks.report import Target
from benchmarks.rounds import ratio
from benchmarks.services import PAYLOAD
from raptor.clock import SystemClock
from raptor.node import Node
from raptor.state.connection import reading
from raptor.state.files import FileStore
from raptor.state.home import Home
from raptor.task import Task

CHUNK = 1000
LOOK_S = 0.002
LOOK_SHARE = 1e-7  # seconds for a task: to look more often would cost a long drain more than it tells

# Each of them a look at the end of an index, however many tasks there are.
DUE = (
    "SELECT EXISTS (SELECT 1 FROM task WHERE state = 'ready' AND queue = 'default' AND suspect = 0 AND priority = 5"
    " AND due <= ?)"
)
TAKEN = "SELECT EXISTS (SELECT 1 FROM task WHERE state = 'taken')"
DEAD = "SELECT count(*) FROM task WHERE state = 'dead'"


async def plan(folder: Path, tasks: Iterable[Task]) -> None:
    """Leave behind what a node before would have: tasks, each with its own due time."""
    clock = SystemClock()
    owned = Home.open(folder, clock)
    store, left = FileStore(owned), iter(tasks)
    while chunk := list(islice(left, CHUNK)):
        await store.put(chunk, now=clock.now())
    await store.close()
    owned.close()


async def fill(node: Node, service: str, count: int) -> float:
    """-> the seconds for a task, put a thousand at a time."""
    started = perf_counter()
    for start in range(0, count, CHUNK):
        await node.put_many(service, [PAYLOAD] * min(CHUNK, count - start))
    return (perf_counter() - started) / count


async def drain(node: Node, folder: Path, service: str, count: int) -> float:
    """Fill the queue while it is held back, let it go, and wait for its last verdict; -> the seconds for a task."""
    await node.call("queue", name="default", paused=True)
    await fill(node, service, count)
    started = perf_counter()
    await node.call("queue", name="default", paused=False)
    await emptied(folder, count)
    return (perf_counter() - started) / count


def look_s(count: int) -> float:
    """How often to look at a drain of so many, on the event loop that drains: a hundredth of what it takes at best."""
    return max(LOOK_S, count * LOOK_SHARE)


async def emptied(folder: Path, count: int = 0) -> None:
    """Wait until all that was due is done, durably. Looked at beside the node, so that no service has to count."""
    with closing(reading(folder / "raptor.sqlite")) as connection:
        until = time()
        while _is(connection, DUE, until) or _is(connection, TAKEN):
            await asyncio.sleep(look_s(count))
        assert not _is(connection, DEAD), "a task has failed"


def _is(connection: Connection, question: str, *given: float) -> bool:
    return bool(connection.execute(question, given).fetchone()[0])


def held(
    subject: str,
    what: str,
    ours: Sequence[float],
    other: Sequence[float] | str | None,
    at_least: float,
    loop: str = "",
) -> Target:
    """How many times as fast as another we are; of one that was not measured, why."""
    measured = ratio(other, ours) if isinstance(other, Sequence) and not isinstance(other, str) else None
    return Target(
        subject=subject,
        what=what,
        loop=loop,
        value=measured.fast if measured else str(other),
        middle=measured.middle if measured else None,
        unit="x",
        at_least=at_least,
    )
