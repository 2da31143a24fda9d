"""Design 000, in Raptor's words: one-off jobs on files, in real time, with real processes."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tenacity import wait_fixed

from raptor.clock import Clock
from raptor.config import Config
from raptor.errors import TaskFailed
from raptor.node import Node
from raptor.runners import Context
from raptor.service import Service
from raptor.state.base import Query
from raptor.task import State, Task

WAIT_S = 30.0


@pytest.fixture
def clock(system_clock: Clock) -> Clock:
    return system_clock


@pytest.fixture
def started(tmp_path: Path, clock: Clock) -> Callable[..., Any]:
    @asynccontextmanager
    async def start(*services: Any, processors: int = 100) -> AsyncGenerator[Node]:
        flags = {"home": str(tmp_path / "home"), "worker.processors": processors}
        config = Config.load(flags, environ={}, cwd=tmp_path, user_file=tmp_path / "none")
        async with Node(services=services, config=config, clock=clock, listen=False, grace_s=5.0) as node:
            yield node

    return start


async def stored(node: Node, id: int) -> Task:
    (found,) = await node._workshop.timetable.store.find(Query(ids=(id,)))  # pyright: ignore[reportPrivateUsage]
    return found


def die(how: str) -> str:
    """In a process of its own, which it kills."""
    if how == "kill":
        os.kill(os.getpid(), 9)
    return how


def mine(n: int) -> int:
    return n + 1


@pytest.mark.spec("000-01", "000-04", "000-31", "000-37", "001-38", "000-25")
async def test_thousands_of_jobs_are_each_done_once_and_their_ends_are_on_disk(
    started: Callable[..., Any], tmp_path: Path
) -> None:
    seen: list[int] = []

    async def job(n: int) -> None:
        seen.append(n)

    async with started(Service(name="job", function=job)) as node:
        ids = await node.put_many("job", [{"n": n} for n in range(3000)])
        for id in ids:
            await node.call("wait", id=id, timeout_s=WAIT_S)
    assert sorted(seen) == list(range(3000))
    with sqlite3.connect(tmp_path / "home" / "raptor.sqlite") as connection:
        query = "SELECT state, count(*), count(ended), sum(attempts) FROM task GROUP BY state"
        assert connection.execute(query).fetchall() == [("done", 3000, 3000, 0)]


@pytest.mark.spec("000-02", "R1-06", "001-05", "001-07")
async def test_no_job_starts_before_its_time_on_the_real_clock(started: Callable[..., Any]) -> None:
    starts: list[tuple[float, float]] = []

    async def job(ctx: Context) -> None:
        starts.append((time.time(), ctx.planned))

    async with started(Service(name="job", function=job)) as node:
        now = time.time()
        handles = [await node.put("job", at=now + delay) for delay in (0.0, 0.05, 0.3, 0.31, 0.7, 1.0)]
        for handle in handles:
            await handle.result(WAIT_S)
    assert len(starts) == 6
    assert all(start >= planned for start, planned in starts)
    assert [planned for _, planned in starts] == sorted(planned for _, planned in starts)


@pytest.mark.spec("000-16", "000-17", "000-18", "000-19", "000-20", "000-21", "000-23", "000-26")
async def test_a_job_is_a_row_with_its_time_type_data_state_and_attempts(started: Callable[..., Any]) -> None:
    async def job(ctx: Context) -> None: ...

    async with started(Service(name="job", function=job)) as node:
        before = time.time()
        handle = await node.put("job", {"url": "x"}, in_="1h")
        task = await stored(node, handle.id)
        shown = await node.call("task", id=handle.id)
    assert (task.service, task.data, task.state, task.attempts, task.max_attempts) == (
        "job", '{"url":"x"}', State.READY, 0, 3
    )  # fmt: skip
    assert before <= task.created <= time.time()
    assert task.due == pytest.approx(task.created + 3600, abs=5)
    assert (shown["state"], shown["data"]) == ("delayed", {"url": "x"})


@pytest.mark.spec("000-22", "000-24", "000-38", "000-39")
async def test_a_failing_job_keeps_its_error_and_ends_dead_on_disk(started: Callable[..., Any]) -> None:
    async def job() -> None:
        raise ValueError("\ud800 broken \0")

    service = Service(name="job", function=job, max_attempts=2, backoff=wait_fixed(0.01))
    async with started(service) as node:
        handle = await node.put("job")
        with pytest.raises(TaskFailed):
            await handle.result(WAIT_S)
        task = await stored(node, handle.id)
    assert (task.state, task.attempts, task.reason) == (State.DEAD, 2, "failed")
    assert "broken" in (task.error or "")
    assert [one.verdict for one in task.history] == ["retry"]


@pytest.mark.spec("000-03", "001-08", "001-27")
async def test_jobs_that_wait_survive_the_end_of_the_node(started: Callable[..., Any]) -> None:
    seen: list[int] = []

    async def job(n: int) -> int:
        seen.append(n)
        return n

    service = Service(name="job", function=job)
    async with started(service, processors=0) as node:
        handles = [await node.put("job", {"n": n}) for n in range(5)]
    async with started(service) as node:
        outputs = [(await node.call("wait", id=handle.id, timeout_s=WAIT_S))["output"] for handle in handles]
    assert outputs == seen == [0, 1, 2, 3, 4]


@pytest.mark.spec("000-03", "000-43")
async def test_sync_functions_and_processes_of_their_own_give_their_values(started: Callable[..., Any]) -> None:
    services = [Service(name="thread", function=mine), Service(name="process", function=mine, isolate=True)]
    async with started(*services) as node:
        handles = [await node.put(name, {"n": 41}) for name in ("thread", "process")]
        assert [await handle.result(WAIT_S) for handle in handles] == [42, 42]


async def test_a_job_that_kills_its_process_is_poison_and_hurts_nobody(started: Callable[..., Any]) -> None:
    services = [
        Service(name="die", function=die, isolate=True, backoff=wait_fixed(0.01)),
        Service(name="live", function=mine),
    ]
    async with started(*services) as node:
        bad, good = await node.put("die", {"how": "kill"}), await node.put("live", {"n": 1})
        assert await good.result(WAIT_S) == 2
        with pytest.raises(TaskFailed, match="poison"):
            await bad.result(WAIT_S)
        assert (await stored(node, bad.id)).deaths == 3


async def test_a_damaged_row_is_parked_alone_on_files(started: Callable[..., Any], tmp_path: Path) -> None:
    async def job(n: int) -> int:
        return n

    service = Service(name="job", function=job)
    async with started(service, processors=0) as node:
        ids = await node.put_many("job", [{"n": n} for n in range(3)])
    with sqlite3.connect(tmp_path / "home" / "raptor.sqlite") as connection:
        connection.execute("UPDATE task SET data = '{\"n\":9}' WHERE id = ?", (ids[1],))
    async with started(service) as node:
        ended = [await node.call("wait", id=id, timeout_s=WAIT_S) for id in ids]
    assert [(task["state"], task["reason"], task["output"]) for task in ended] == [
        ("done", "", 0), ("dead", "bad payload", None), ("done", "", 2),
    ]  # fmt: skip


@pytest.mark.spec("000-34", "R0-08")
async def test_a_sync_job_that_blocks_does_not_stop_the_others(started: Callable[..., Any]) -> None:
    import threading

    gate = threading.Event()

    def blocks() -> None:
        gate.wait(WAIT_S)

    async with started(Service(name="blocks", function=blocks), Service(name="quick", function=mine)) as node:
        slow = await node.put("blocks")
        handles = [await node.put("quick", {"n": n}) for n in range(20)]
        assert [await handle.result(WAIT_S) for handle in handles] == list(range(1, 21))
        assert (await stored(node, slow.id)).state is State.TAKEN
        gate.set()
        await slow.result(WAIT_S)


async def test_a_sync_job_may_put_another(started: Callable[..., Any]) -> None:
    placed: list[Any] = []

    def parent(ctx: Context) -> int:
        placed.append(ctx.put("child", {"n": 1}))
        return placed[0].id

    async with started(Service(name="parent", function=parent), Service(name="child", function=mine)) as node:
        handle = await node.put("parent")
        child = await handle.result(WAIT_S)
        shown = await node.call("wait", id=child, timeout_s=WAIT_S)
        assert (shown["parent"], shown["output"]) == (handle.id, 2)


@pytest.mark.spec("000-26")
async def test_a_job_that_runs_can_be_cancelled_on_files(started: Callable[..., Any]) -> None:
    begun = asyncio.Event()

    async def job() -> None:
        begun.set()
        await asyncio.Event().wait()  # for ever

    async with started(Service(name="job", function=job)) as node:
        handle = await node.put("job")
        await asyncio.wait_for(begun.wait(), WAIT_S)
        assert (await node.call("cancel", ids=[handle.id]))["ending"] == [handle.id]
        with pytest.raises(TaskFailed, match="cancelled"):
            await handle.result(WAIT_S)
