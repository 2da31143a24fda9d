"""Tasks to test with, and the verbs in short."""

from __future__ import annotations

from typing import Any

import msgspec

from raptor.state.base import Query, Receipt, Store, Want
from raptor.task import Move, State, Task

NOW = 1_000_000.0

replaced = msgspec.structs.replace


def task(**options: Any) -> Task:
    """One that is due."""
    asked: dict[str, Any] = {"service": "work", "due": NOW}
    return Task(**asked | options)


def want(queue: str = "default", room: int = 100, **limits: Any) -> Want:
    return Want(queue=queue, room=room, **limits)


def move(taken: Task, state: State, **changes: Any) -> Move:
    """What its owner makes of a taken task; nothing else of it changes."""
    same = ("id", "fence", "queue", "due", "attempts", "started", "suspect")
    settled: dict[str, Any] = {name: getattr(taken, name) for name in same} | {"state": state}
    return Move(**settled | changes)


async def put(store: Store, *tasks: Task, now: float = NOW, replace: bool = False) -> list[Receipt]:
    return await store.put(tasks, now=now, replace=replace)


async def take(store: Store, room: int = 100, *, owner: str = "a", now: float = NOW, **limits: Any) -> list[Task]:
    return (await store.take([want(room=room, **limits)], owner=owner, now=now)).tasks


async def taken(store: Store, *tasks: Task, owner: str = "a") -> list[Task]:
    """Put and take them."""
    await put(store, *tasks)
    given = await take(store, len(tasks), owner=owner)
    assert len(given) == len(tasks)
    return given


async def ended(store: Store, state: State, *tasks: Task, at: float = NOW) -> list[Task]:
    """Put, take and end them."""
    given = await taken(store, *tasks)
    assert await store.settle([move(one, state, ended=at, reason="") for one in given], now=at) == frozenset()
    return await store.find(Query(ids=tuple(one.id for one in given)))


async def one(store: Store, id: int) -> Task:
    (found,) = await store.find(Query(ids=(id,)))
    return found


async def rows(store: Store) -> list[Task]:
    return await store.find(Query(limit=10**6))


async def ids(store: Store, **query: Any) -> list[int]:
    return [found.id for found in await store.find(Query(**query))]
