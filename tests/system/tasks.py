"""Tasks in every state, to put into a store and find again."""

from __future__ import annotations

import asyncio
import json

from raptor.state.base import Query, Store, Want
from raptor.state.memory import MemoryStore
from raptor.task import Move, State, Task, Try

COUNT = 200
STATES = (State.READY, State.DONE, State.DEAD, State.CANCELLED)


async def fill_tasks(store: Store) -> list[Task]:
    """Small and large ones, and some that are gone, the newest among them; -> all that are there."""
    texts = [json.dumps({"number": n}) for n in range(COUNT)]
    data: list[str | bytes] = [*texts, "x" * 20_000, b"\x00\xff" * 5000, "naïve ☕"]
    await store.put([Task(service="work", due=float(n), data=one) for n, one in enumerate(data)], now=0.5)
    await store.put([Task(service="keyed", due=0.25, key="k", key_until=9.5, parent=1, timing="{}")], now=0.5)
    taken = (await store.take([Want(queue="default", room=60, rate=1000)], owner="me", now=1e6)).tasks
    tries = (Try(start=1.5, end=2.5, verdict="retry", info="x"),)
    moves = [
        Move(id=one.id, fence=1, queue="default", state=STATES[n % 4], due=n + 0.5, attempts=n, history=tries, ended=n)
        for n, one in enumerate(taken[:50])
    ]
    await store.settle(moves, now=1e6)
    (newest,) = await store.put([Task(service="work", due=0.0, queue="last")], now=1.0)
    await store.cancel([newest.id], now=1.0, reason="gone")
    assert await store.drop([newest.id, *(move.id for move in moves[1:9])]) == 7
    return await store.find(Query(limit=10**6))


TASKS = asyncio.run(fill_tasks(MemoryStore()))
NEWEST = max(task.id for task in TASKS) + 1  # it is gone
