"""raptor.testing, as the tests of somebody's program would use it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import raptor
import raptor.testing
from raptor import service
from raptor.errors import BadInput, TaskFailed
from raptor.service import command_service
from raptor.task import Outcome, Retry
from raptor.testing import World, in_virtual_time, inline

NINE = datetime(2026, 3, 2, 9, tzinfo=UTC)


@service(queue="mail", max_attempts=3)
async def send_email(to: str, subject: str = "", ctx: raptor.Context | None = None) -> str:
    if to == "nobody":
        raise ValueError("no such address")
    return f"sent to {to}"


@service
async def sign_up(name: str, ctx: raptor.Context) -> None:
    await ctx.put(send_email, {"to": name, "subject": "welcome"}, in_="30m", key=f"welcome-{name}")


@service
def slow(data: Any = None) -> str:
    return "slept"


@service(timeout="5s")
def limited(n: int) -> int:
    return n + 1


@service
def put_from_a_thread(name: str, ctx: raptor.Context) -> None:
    ctx.put(send_email, {"to": name})


@service(batch=10)
async def add_up(numbers: list[int]) -> list[int]:
    return [sum(numbers)] * len(numbers)


@service
async def wait_half_an_hour() -> str:
    await asyncio.sleep(1800)
    return "waited"


def test_the_examples_of_the_page_pass() -> None:
    page = (Path(__file__).parents[2] / "docs/testing.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "page"}
    for block in re.findall(r"^```python\n(.*?)^```", page, re.M | re.S):
        exec(compile(block, "docs/testing.md", "exec"), names)
    tests = [test for name, test in names.items() if name.startswith("test_")]
    assert len(tests) == 3
    for test in tests:
        test()


# A whole node


@in_virtual_time
async def test_a_welcome_is_sent_half_an_hour_after_signing_up() -> None:
    async with World(services=[sign_up, send_email]) as world:
        await world.put(sign_up, {"name": "ann"})
        await world.run_until_idle()
        world.assert_put("send_email", {"to": "ann"}, in_="30m", key="welcome-ann")
        assert [task["state"] for task in await world.tasks(service=send_email)] == ["delayed"]
        await world.advance("29m59s")
        assert await world.tasks(service="send_email", state="done") == []
        await world.advance("1s")
        (sent,) = await world.tasks(service="send_email", state="done")
        assert (sent["output"], sent["data"]["subject"]) == ("sent to ann", "welcome")


@in_virtual_time(start=NINE)
async def test_time_moves_by_exactly_what_was_asked_for() -> None:
    async with World() as world:
        assert world.now == NINE.timestamp()
        for _ in range(1000):
            await world.advance("1s")
        assert world.now == NINE.timestamp() + 1000


@in_virtual_time
async def test_idle_waits_for_what_runs_and_not_for_what_is_due_later() -> None:
    async with World(services=[wait_half_an_hour, send_email]) as world:
        began = world.now
        await world.put(wait_half_an_hour)
        await world.put(send_email, {"to": "b"}, in_="7d")
        await world.run_until_idle()
        assert world.now == pytest.approx(began + 1800, abs=1e-3)
        assert [task["state"] for task in await world.tasks()] == ["done", "delayed"]


@in_virtual_time
async def test_what_never_gets_idle_is_named() -> None:
    async with World(services=[wait_half_an_hour]) as world:
        await world.put(wait_half_an_hour)
        with pytest.raises(AssertionError, match=r"not idle after 10m: wait_half_an_hour \(taken\)"):
            await world.run_until_idle(within="10m")


@in_virtual_time
async def test_a_paused_queue_is_idle() -> None:
    async with World(services=[send_email]) as world:
        await world.node.call("queue", name="mail", paused=True)
        await world.put(send_email, {"to": "a"})
        await world.run_until_idle()
        assert [task["state"] for task in await world.tasks(queue="mail")] == ["ready"]


@in_virtual_time
async def test_a_result_is_waited_for_without_waiting() -> None:
    async with World(services=[send_email]) as world:
        assert await (await world.put(send_email, {"to": "a"}, in_="2d")).result() == "sent to a"
        with pytest.raises(TaskFailed, match="no such address"):
            await (await world.put(send_email, {"to": "nobody"})).result()


@in_virtual_time
async def test_a_scheduler_runs_in_virtual_time_too() -> None:
    ran = list[float]()

    def tick() -> None:
        ran.append(world.now)

    async with World(services=[tick]) as world:
        began = world.now
        await world.schedule(["tick"], interval="1h")
        await world.advance("3h")
        assert [at - began for at in ran] == [0, 3600, 7200, 10800]


@in_virtual_time
async def test_function_put_and_threads_reach_the_world() -> None:
    async with World(services=[send_email, put_from_a_thread, limited]) as world:
        await send_email.put(to="c")  # type: ignore[attr-defined]
        await world.put(limited, {"n": 1})  # a time limit needs no process here
        await world.run_until_idle()
        world.assert_put(send_email, {"to": "c"}, queue="mail", times=1)
        assert {task["state"] for task in await world.tasks()} == {"done"}


@in_virtual_time
async def test_resources_are_open_while_services_run() -> None:
    seen = list[Any]()

    @service(name="reads")
    async def reads(ctx: raptor.Context) -> None:
        seen.append(ctx.resources["pool"])

    @asynccontextmanager
    async def pool() -> AsyncGenerator[str]:
        yield "a pool"

    async with World(services=[reads], resources={"pool": pool}) as world:
        await world.put("reads")
        await world.run_until_idle()
    assert seen == ["a pool"]


@in_virtual_time
async def test_what_was_not_put_is_told_with_all_that_was() -> None:
    async with World(services=[send_email]) as world:
        with pytest.raises(AssertionError, match="send_email was not put; what was put: nothing"):
            world.assert_put("send_email")
        await world.put(send_email, {"to": "a"}, in_="30m", key="k")
        world.assert_put("send_email", times=1)
        world.assert_put("send_email", {"to": "b"}, times=0)
        wrongs: list[dict[str, Any]] = [{"in_": "31m"}, {"key": "other"}, {"queue": "default"}, {"times": 2}]
        for wrong in wrongs:
            with pytest.raises(AssertionError) as caught:
                world.assert_put("send_email", {"to": "a"}, **wrong)
            assert "  send_email {'to': 'a', 'subject': ''} in_='30m' key='k' queue='mail'" in str(caught.value)
        with pytest.raises(AssertionError, match=r"send_email \{'to': 'b'\} was not put"):
            world.assert_put("send_email", {"to": "b"})


@in_virtual_time
async def test_a_world_leaves_nothing_behind() -> None:
    before = set(asyncio.all_tasks())
    async with World(services=[send_email]) as world:
        await world.put(send_email, {"to": "a"})
    await asyncio.sleep(60)
    assert set(asyncio.all_tasks()) == before


def test_a_world_outside_of_virtual_time_is_refused() -> None:
    async def main() -> None:
        World()

    with pytest.raises(BadInput, match=r"put @raptor\.testing\.in_virtual_time before the test"):
        asyncio.run(main())


@in_virtual_time
async def test_a_service_that_takes_real_time_is_refused() -> None:
    with pytest.raises(BadInput, match="service 'sh': kind 'command' takes real time"):
        World(services=[command_service("sh", ["true"])])


@in_virtual_time
async def test_virtual_time_keeps_fixtures(tmp_path: Path) -> None:
    assert tmp_path.name.startswith("test_virtual_time")


# What is put runs at once


def test_inline_runs_what_is_put_in_the_caller() -> None:
    with inline([send_email, sign_up]) as puts:
        assert send_email.put(to="a").value == "sent to a"  # type: ignore[attr-defined]
        assert send_email.put(to="b").result() == "sent to b"  # type: ignore[attr-defined]
        sign_up.put(name="ann")  # type: ignore[attr-defined]
        puts.assert_put(send_email, {"to": "ann"}, in_="30m")
        assert [put.service for put in puts.puts] == ["send_email", "send_email", "sign_up", "send_email"]


async def test_inline_is_awaited_on_an_event_loop() -> None:
    with inline([send_email]) as node:
        assert (await send_email.put(to="a")).value == "sent to a"  # type: ignore[attr-defined]
        task = await node.put("send_email", {"to": "b"})
        assert (task.id, task.new, await task.result()) == (2, True, "sent to b")
        assert await node.put_many(send_email, [{"to": "c"}, {"to": "d"}]) == [3, 4]


def test_inline_runs_batches_of_one_and_puts_from_threads() -> None:
    with inline([send_email, put_from_a_thread, add_up, limited]) as puts:
        put_from_a_thread.put(name="t")  # type: ignore[attr-defined]
        puts.assert_put("send_email", {"to": "t"}, times=1)
        assert limited.put(n=1).value == 2  # type: ignore[attr-defined]
        assert puts.put_from(add_up, 5).value == [5]


def test_inline_does_not_hide_a_failure() -> None:
    with inline([send_email]), pytest.raises(TaskFailed, match="no such address"):
        send_email.put(to="nobody")  # type: ignore[attr-defined]
    with inline([send_email], raises=False):
        task = send_email.put(to="nobody")  # type: ignore[attr-defined]
        assert task.failed
        with pytest.raises(TaskFailed):
            task.result()


def test_inline_checks_data_as_a_node_does() -> None:
    with inline([send_email]), pytest.raises(BadInput, match=r"Expected `str`, got `int` - at `\$.to`"):
        send_email.put(to=1)  # type: ignore[attr-defined]


def test_inline_ends_with_its_block() -> None:
    with inline([send_email]):
        pass
    with pytest.raises(raptor.RaptorError, match="no node here"):
        send_email.put(to="a")  # type: ignore[attr-defined]


# One service, once


def test_one_run_gives_its_result() -> None:
    done = raptor.testing.run(send_email, {"to": "a"})
    assert (done.outcome, done.value, done.decision) == (Outcome.OK, "sent to a", None)
    failed = raptor.testing.run(send_email, {"to": "nobody"})
    assert (failed.outcome, failed.info) == (Outcome.FAILED, "ValueError: no such address")
    assert raptor.testing.run(limited, {"n": 1}).value == 2
    assert raptor.testing.run(slow).value == "slept"
    assert raptor.testing.run(add_up, [1, 2]).value == [3, 3]


async def test_one_run_is_awaited_on_an_event_loop() -> None:
    assert (await raptor.testing.run(send_email, {"to": "a"})).value == "sent to a"


def test_one_run_shows_what_a_service_decides() -> None:
    def patient(ctx: raptor.Context) -> object:
        return ctx.give_up("enough") if ctx.attempt >= 3 else ctx.retry(60)

    assert isinstance(raptor.testing.run(patient).decision, Retry)
    assert raptor.testing.run(patient, attempt=3).decision.reason == "enough"


def test_one_run_checks_its_data_and_gets_resources() -> None:
    def reads(ctx: raptor.Context) -> object:
        return ctx.resources["pool"]

    with pytest.raises(BadInput, match="Expected `int`, got `str`"):
        raptor.testing.run(limited, {"n": "one"})
    assert raptor.testing.run(reads, resources={"pool": 7}).value == 7
