"""Design 003: a worker's life: resources opened and closed, an orderly stop, its processors and its store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from raptor.errors import BadInput
from raptor.node import Node
from raptor.runners import Context
from raptor.service import Service
from raptor.task import State, Task
from tests.designs.queue_world import QueueWorld
from tests.designs.world import TEN


@pytest.mark.spec("003-25", "003-31", "003-51", "R3-01", "R3-02")
async def test_a_stop_waits_for_what_runs_and_starts_nothing_more(queues: QueueWorld) -> None:
    queues.service(takes=10.0)
    node = await queues.boot(processors=2)
    await node.put_many("work", range(5))
    await queues.until(1)
    closing = asyncio.ensure_future(node.close())
    await queues.until(9)
    assert not closing.done()
    await closing
    assert queues.clock.now() == TEN + 10
    tasks = await queues.tasks()
    assert [task.state for task in tasks] == [State.DONE] * 2 + [State.READY] * 3
    assert [task.attempts for task in tasks] == [0] * 5


@pytest.mark.spec("003-25", "003-31")
async def test_what_outlives_the_grace_is_broken_off_and_costs_no_attempt(queues: QueueWorld) -> None:
    queues.service(takes=1000.0)
    queues.grace_s = 5.0
    node = await queues.boot()
    handle = await node.put("work")
    await queues.until(1)
    await node.close()
    assert queues.clock.now() == TEN + 6
    task = await queues.task(handle.id)
    assert (task.state, task.attempts, task.owner, task.suspect) == (State.READY, 0, None, False)
    await queues.boot()
    await queues.until(2000)
    assert (await queues.task(handle.id)).state is State.DONE


@pytest.mark.spec("003-25", "003-51")
async def test_resources_are_opened_before_the_first_task_and_closed_after_the_last(queues: QueueWorld) -> None:
    story: list[str] = []

    @asynccontextmanager
    async def pool() -> AsyncGenerator[list[str]]:
        story.append("open")
        yield story
        story.append("close")

    async def use(ctx: Context) -> None:
        await queues.clock.sleep(5)
        ctx.resources["db"].append("used")

    queues.resources["db"] = pool
    queues.services.append(Service(name="use", function=use))
    node = await queues.boot()
    await node.put_many("use", [None] * 3)
    await queues.until(1)
    assert story == ["open"]
    await node.close()
    assert story == ["open", "used", "used", "used", "close"]


async def test_scheduled_services_have_the_resources_too(tmp_path: Path, system_clock: Any) -> None:
    from raptor.config import Config

    @asynccontextmanager
    async def pool() -> AsyncGenerator[str]:
        yield "a pool"

    used: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def use(ctx: Context) -> None:
        used.set_result(ctx.resources["db"])

    config = Config.load({"home": str(tmp_path / "home")}, environ={}, cwd=tmp_path, user_file=tmp_path / "none")
    service = Service(name="use", function=use, every_s=3600.0)
    async with Node(
        services=[service], config=config, clock=system_clock, listen=False, resources={"db": pool}
    ) as node:
        await node.start("main")
        await node.schedule("main", ["use"])
        assert await asyncio.wait_for(used, 30) == "a pool"


async def test_a_scheduler_and_a_worker_of_one_name_do_not_wait_for_each_other(
    tmp_path: Path, system_clock: Any
) -> None:
    from raptor.config import Config

    async def use() -> str:
        return "done"

    config = Config.load({"home": str(tmp_path / "home")}, environ={}, cwd=tmp_path, user_file=tmp_path / "none")
    async with Node(
        services=[Service(name="use", function=use)], config=config, clock=system_clock, listen=False
    ) as node:
        await node.start("worker", "1h")
        worker = node.runtime.whereis("worker")
        assert worker is not None
        worker.kill()
        assert await (await node.put("use")).result(30) == "done"


async def test_a_resource_that_cannot_be_opened_is_tried_again_and_nothing_is_taken(queues: QueueWorld) -> None:
    tries: list[float] = []

    @asynccontextmanager
    async def pool() -> AsyncGenerator[str]:
        tries.append(queues.clock.now() - TEN)
        if len(tries) < 4:
            raise OSError("connection refused")
        yield "open"

    queues.resources["db"] = pool
    queues.service(does=lambda ctx, n: ctx.resources["db"])
    node = await queues.boot()
    handle = await node.put("work")
    await queues.until(2)
    assert (await node.status())["state"] == "opening"
    assert (await queues.task(handle.id)).state is State.READY
    assert await handle.result(60) == "open"
    assert tries == [0, 1, 3, 7]
    assert "connection refused" in str(queues.happened("resource_failing")[0].facts["error"])


async def test_a_stop_does_not_wait_for_a_resource_that_never_opens(queues: QueueWorld) -> None:
    @asynccontextmanager
    async def never() -> AsyncGenerator[None]:
        await asyncio.Event().wait()
        yield

    queues.resources["db"] = never
    queues.service()
    node = await queues.boot()
    await queues.until(1)
    await node.close()
    assert queues.clock.now() == TEN + 1


async def test_resources_are_declared_by_a_decorator_in_a_module(tmp_path: Path, system_clock: Any) -> None:
    (tmp_path / "declared_pool.py").write_text(
        "from raptor import resource, service\n"
        "@resource\n"
        "async def db():\n"
        "    yield 'a pool'\n"
        "@service\n"
        "async def use(ctx):\n"
        "    return ctx.resources['db']\n"
    )
    from raptor.config import Config

    flags = {"home": str(tmp_path / "home"), "module": ["declared_pool"]}
    config = Config.load(flags, environ={}, cwd=tmp_path, user_file=tmp_path / "none")
    async with Node(config=config, clock=system_clock, listen=False) as node:
        assert await (await node.put("use")).result(30) == "a pool"


def test_a_resource_of_two_modules_must_have_two_names() -> None:
    from types import ModuleType

    from raptor.resources import resource, resources_of

    def module(name: str) -> ModuleType:
        made = ModuleType(name)

        @resource
        async def db() -> AsyncGenerator[None]:
            yield

        made.__dict__["db"] = db
        return made

    one, other = module("one"), module("other")
    assert list(resources_of([one, one])) == ["db"]
    with pytest.raises(BadInput, match="twice"):
        resources_of([one, other])


async def test_what_a_take_brings_after_the_stop_is_given_back_unstarted(queues: QueueWorld) -> None:
    queues.service()
    node = await queues.boot()
    take = queues.image.take

    async def slow(*args: Any, **kwargs: Any) -> Any:
        found = await take(*args, **kwargs)
        await queues.clock.sleep(5)
        return found

    queues.image.take = slow  # type: ignore[method-assign]
    handle = await node.put("work")
    await queues.until(1)
    await node.close()
    task = await queues.task(handle.id)
    assert (task.state, task.attempts, task.previous, task.due, task.history) == (State.READY, 0, None, TEN, ())
    assert queues.seen == []


async def test_a_restarted_worker_waits_for_what_its_predecessor_still_does(queues: QueueWorld) -> None:
    opened = most = 0

    @asynccontextmanager
    async def pool() -> AsyncGenerator[None]:
        nonlocal opened, most
        opened += 1
        most = max(most, opened)
        try:
            yield
        finally:
            opened -= 1

    async def slow_to_end() -> None:
        try:
            await queues.clock.sleep(1000)
        finally:
            await queues.clock.sleep(0.5)

    queues.resources["db"] = pool
    queues.services.append(Service(name="slow", function=slow_to_end))
    node = await queues.boot()
    await node.put("slow")
    await queues.until(1)
    node.worker.kill()
    await queues.until(10)
    assert (opened, most) == (1, 1)
    assert (await node.status())["running"] == [1]


@pytest.mark.spec("003-28")
async def test_a_worker_goes_on_with_what_it_did_when_nobody_says_anything(queues: QueueWorld) -> None:
    queues.service()
    node = await queues.boot()
    for n in range(10):
        await node.put("work", n, in_=n * 1000)
    await queues.until(10_000)
    assert queues.times() == [n * 1000.0 for n in range(10)]


async def test_a_helper_of_the_worker_that_fails_is_noticed_and_the_worker_restarted(queues: QueueWorld) -> None:
    queues.service(takes=100.0)
    node = await queues.boot()
    extend = queues.image.extend
    failures: list[int] = []

    async def broken(*args: Any, **kwargs: Any) -> Any:
        if not failures:
            failures.append(1)
            raise RuntimeError("no lease is renewed any more")
        return await extend(*args, **kwargs)

    queues.image.extend = broken  # type: ignore[method-assign]
    first = node.worker
    await node.put("work")
    await queues.until(30)
    assert failures
    assert node.worker is not first
    await queues.until(300)
    assert set(await queues.states()) == {State.DONE}


@pytest.mark.parametrize(("service", "state"), [("work", State.DONE), ("unknown", State.DEAD)])
async def test_a_store_that_chokes_on_a_verdict_has_the_worker_restarted(
    queues: QueueWorld, service: str, state: State
) -> None:
    queues.service()
    node = await queues.boot()
    settle, first = queues.image.settle, node.worker
    failures: list[int] = []

    async def broken(*args: Any, **kwargs: Any) -> Any:
        if not failures:
            failures.append(1)
            raise RuntimeError("this is no outage")
        return await settle(*args, **kwargs)

    queues.image.settle = broken  # type: ignore[method-assign]
    await queues.image.put([Task(service=service, due=TEN)], now=TEN)
    await queues.until(30)
    assert failures
    assert node.worker is not first
    assert await queues.states() == [state]


async def test_a_worker_that_ends_just_then_hears_of_it_when_it_begins_anew(queues: QueueWorld) -> None:
    """Whoever passes on the news of others does not fall with it."""
    queues.service(takes=10.0)
    node = await queues.boot(processors=1)
    handle = await node.put("work")
    await queues.until(1)
    told = [asyncio.ensure_future(node.new_lines()), asyncio.ensure_future(node.unwanted([handle.id]))]
    await asyncio.sleep(0)
    node.worker.kill()
    await asyncio.gather(*told)
    await queues.until(60)
    assert len(queues.seen) == 2
