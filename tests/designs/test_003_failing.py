"""Design 003, 001 and 000: a failed run is tried again with backoff, a bounded number of times; the dead are kept."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from tenacity import wait_fixed

from raptor.errors import BadInput, NoSuchName, TaskFailed
from raptor.rows import Line
from raptor.runners import Context
from raptor.service import Service
from raptor.task import Again, Retry, State, Task
from tests.designs.queue_world import QueueWorld
from tests.designs.world import HOUR, TEN


def fail(ctx: Context, n: int) -> Any:
    raise ValueError(f"failure {n}")


@pytest.mark.spec("001-34", "001-35", "003-21", "000-39")
async def test_a_failed_task_is_tried_again_after_1_2_4_seconds_up_to_an_hour(queues: QueueWorld) -> None:
    queues.service(does=fail)
    node = await queues.boot()
    await node.put("work", max_attempts=16)
    await queues.until(12 * HOUR)
    gaps = [later - sooner for sooner, later in itertools.pairwise(queues.times())]
    assert len(gaps) == 15
    for gap, full in zip(gaps, [min(2.0**n, HOUR) for n in range(15)], strict=True):
        assert 0.9 * full - 0.001 <= gap <= full + 0.001
    assert len({round(gap % 1, 3) for gap in gaps[:6]}) > 1  # jittered
    assert [one.attempt for one in queues.seen] == list(range(16))


@pytest.mark.spec("000-20", "000-21", "000-22", "000-38", "001-36", "001-37", "003-14", "R0-05", "R0-06")
async def test_three_runs_in_all_then_it_is_dead_with_its_reason_and_error(queues: QueueWorld) -> None:
    queues.service(does=fail)
    node = await queues.boot()
    handle = await node.put("work", "x")
    assert (await queues.task(handle.id)).attempts == 0
    with pytest.raises(TaskFailed, match="failure 2"):
        await handle.result(100)
    task = await queues.task(handle.id)
    assert (task.state, task.reason, task.attempts, task.max_attempts) == (State.DEAD, "failed", 3, 3)
    assert "ValueError: failure 2" in (task.error or "")
    assert [(one.verdict, one.info) for one in task.history] == [
        ("retry", "ValueError: failure 0"), ("retry", "ValueError: failure 1")
    ]  # fmt: skip
    assert [one.attempt for one in queues.seen] == [0, 1, 2]
    states = [event.facts["state"] for event in queues.happened("task_ended")]
    assert states == [State.READY, State.READY, State.DEAD]
    await queues.until(10 * HOUR)
    assert len(queues.seen) == 3


@pytest.mark.spec("003-12")
async def test_an_unlimited_task_is_tried_for_ever(queues: QueueWorld) -> None:
    queues.service(does=lambda ctx, n: fail(ctx, n) if n < 40 else "at last")
    node = await queues.boot()
    handle = await node.put("work", max_attempts="unlimited")
    assert await handle.result() == "at last"
    assert (await queues.task(handle.id)).attempts == 40
    assert len((await queues.task(handle.id)).history) == 20


async def test_the_service_and_the_queue_may_say_how_often(queues: QueueWorld) -> None:
    queues.service("twice", does=fail, max_attempts=2)
    queues.service("plain", does=fail)
    queues.service("endless", does=fail, unlimited=True)
    await queues.saved_line(Line(name="once", max_attempts=1))
    node = await queues.boot()
    handles = [
        await node.put("twice"),
        await node.put("plain", queue="once"),
        await node.put("twice", queue="once"),
        await node.put("twice", max_attempts=4),
        await node.put("endless"),
    ]
    assert [(await queues.task(handle.id)).max_attempts for handle in handles] == [2, 1, 2, 4, None]


@pytest.mark.spec("003-05", "003-16", "003-15", "003-37", "R3-01")
async def test_a_retry_that_was_asked_for_counts_and_is_invisible_until_its_time(queues: QueueWorld) -> None:
    queues.service(does=lambda ctx, n: ctx.retry(30) if n == 0 else "ok")
    node = await queues.boot()
    handle = await node.put("work")
    await queues.until(10)
    task = await queues.task(handle.id)
    assert (task.state, task.due, task.previous, task.attempts) == (State.READY, TEN + 30, TEN, 1)
    assert (await node.call("task", id=handle.id))["state"] == "delayed"
    assert await handle.result() == "ok"
    assert queues.times() == [0, 30]
    assert [(one.attempt, one.task.previous) for one in queues.seen] == [(0, None), (1, TEN)]


@pytest.mark.spec("003-05", "R3-01")
async def test_a_retry_in_the_past_is_available_at_once(queues: QueueWorld) -> None:
    queues.service(does=lambda ctx, n: ctx.retry(at=TEN - 1000) if n == 0 else None)
    node = await queues.boot()
    await node.put("work")
    await queues.until(1)
    assert queues.times() == [0, 0]
    assert queues.seen[1].attempt == 1
    assert queues.seen[1].task.previous == TEN


async def test_the_last_retry_that_is_asked_for_is_the_end(queues: QueueWorld) -> None:
    queues.service(does=lambda ctx, n: ctx.retry(1))
    node = await queues.boot()
    handle = await node.put("work")
    await queues.until(100)
    task = await queues.task(handle.id)
    assert (task.state, task.reason, len(queues.seen)) == (State.DEAD, "failed", 3)


async def test_again_costs_no_attempt(queues: QueueWorld) -> None:
    queues.service(does=lambda ctx, n: ctx.again(10) if n < 20 else None)
    node = await queues.boot()
    handle = await node.put("work")
    await queues.until(1000)
    task = await queues.task(handle.id)
    assert (task.state, task.attempts, len(queues.seen)) == (State.DONE, 0, 21)


@pytest.mark.spec("003-20")
async def test_a_handler_may_give_a_task_up(queues: QueueWorld) -> None:
    queues.service(does=lambda ctx, n: ctx.give_up("no such customer"))
    node = await queues.boot()
    handle = await node.put("work")
    with pytest.raises(TaskFailed, match="no such customer"):
        await handle.result(10)
    task = await queues.task(handle.id)
    assert (task.state, task.reason, len(queues.seen)) == (State.DEAD, "no such customer", 1)


@pytest.mark.parametrize(
    "answer",
    [Retry(float("nan")), Again(float("inf")), Retry("soon"), Retry(None), Retry(1e300)],  # type: ignore[arg-type]
    ids=str,
)
async def test_a_decision_that_makes_no_sense_is_a_failure_and_hurts_nobody_else(
    queues: QueueWorld, answer: Retry | Again
) -> None:
    queues.service("bad", does=lambda ctx, n: answer)
    queues.service("good")
    node = await queues.boot()
    bad, good = await node.put("bad"), await node.put("good")
    await queues.until(100)
    assert (await queues.task(bad.id)).state is State.DEAD
    assert (await queues.task(good.id)).state is State.DONE
    assert not queues.happened("crash")


async def test_what_a_service_returns_or_raises_is_stored_whatever_it_is(queues: QueueWorld) -> None:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError("do not look")

    def odd(ctx: Context, n: int) -> Any:
        if ctx.data == "raises":
            raise ValueError("\ud800 and \0")
        return {"object": Odd(), "text": "\ud800", "large": "x" * 100_000, "reason": ctx.give_up("\ud800")}[ctx.data]

    queues.service(does=odd, max_attempts=1)
    node = await queues.boot()
    handles = [await node.put("work", data) for data in ("raises", "object", "text", "large", "reason")]
    await queues.until(10)
    stored = [await queues.task(handle.id) for handle in handles]
    assert [task.state for task in stored] == [State.DEAD, State.DONE, State.DONE, State.DONE, State.DEAD]
    for task in stored:
        for text in (task.error, task.output, task.reason):
            (text or "").encode()
            assert "\0" not in (text or "")
    assert len(stored[3].output or "") < 70_000
    assert not queues.happened("crash")


async def test_a_backoff_of_the_users_that_fails_is_as_good_as_none(queues: QueueWorld) -> None:
    def broken(state: Any) -> float:
        raise ZeroDivisionError

    def nothing(state: Any) -> float:
        return float("nan")

    queues.service("raises", does=fail, backoff=broken)
    queues.service("nan", does=fail, backoff=nothing)
    queues.service("own", does=fail, backoff=wait_fixed(7))
    node = await queues.boot()
    for name in ("raises", "nan", "own"):
        await node.put(name)
    await queues.until(100)
    assert [len(queues.times(name)) for name in ("raises", "nan", "own")] == [3, 3, 3]
    assert 6.3 <= queues.times("own")[1] <= 7
    assert not queues.happened("crash")


@pytest.mark.spec("003-38", "001-04")
async def test_a_timeout_ends_the_run_and_counts_as_a_failure(queues: QueueWorld) -> None:
    queues.service(takes=lambda data: 1000.0, timeout_s=10.0)
    node = await queues.boot()
    own, shorter = await node.put("work"), await node.put("work", timeout="2s", max_attempts=1)
    await queues.until(5)
    assert (await queues.task(shorter.id)).state is State.DEAD
    await queues.until(100)
    task = await queues.task(own.id)
    assert (task.state, task.reason, task.attempts) == (State.DEAD, "failed", 3)
    assert "timed out after 10 s" in (task.error or "")
    assert all(one.end is None for one in queues.seen)


@pytest.mark.spec("003-20")
async def test_a_task_that_is_too_late_is_dead_of_it_and_never_runs(queues: QueueWorld) -> None:
    queues.service(takes=10.0)
    node = await queues.boot(processors=1)
    await node.put("work", "first")
    late = await node.put("work", "late", active="5s")
    fine = await node.put("work", "fine", active="20s")
    await queues.until(60)
    assert queues.order == ["first", "fine"]
    task = await queues.task(late.id)
    assert (task.state, task.reason, task.attempts, task.started) == (State.DEAD, "expired", 0, None)
    assert (await queues.task(fine.id)).state is State.DONE


@pytest.mark.spec("R3-06", "001-37")
async def test_what_cannot_run_is_parked_alone_and_retry_revives_it(queues: QueueWorld) -> None:
    queues.service(does=lambda ctx, n: "ok")
    node = await queues.boot()
    rows = [
        Task(service="unknown", due=TEN),
        Task(service="work", data="{broken", due=TEN),
        Task(service="work", data=b"\xc1", due=TEN),
        Task(service="work", timing='{"origin":0}', due=TEN),
        Task(service="work", data='"fine"', due=TEN),
    ]
    ids = [placed.id for placed in await queues.image.put(rows, now=TEN)]
    await queues.until(1)
    tasks = [await queues.task(id) for id in ids]
    assert [(task.state, task.reason) for task in tasks] == [
        (State.DEAD, "unknown service"), (State.DEAD, "bad payload"), (State.DEAD, "bad payload"),
        (State.DEAD, "bad payload"), (State.DONE, ""),
    ]  # fmt: skip
    assert "unknown" in (tasks[0].error or "")
    assert [task.attempts for task in tasks] == [0, 0, 0, 0, 0]
    assert queues.order == ["fine"]
    node.replace_services([*queues.services, Service(name="unknown", function=queues.services[0].function)])
    await node.call("retry", ids=[ids[0]])
    await queues.until(2)
    assert (await queues.task(ids[0])).state is State.DONE


@pytest.mark.spec("001-37")
async def test_retry_of_a_dead_task_starts_from_the_first_attempt_and_keeps_its_history(queues: QueueWorld) -> None:
    queues.service(does=lambda ctx, n: fail(ctx, n) if n < 4 else "ok")
    node = await queues.boot()
    handle = await node.put("work")
    await queues.until(20)
    await node.call("retry", ids=[handle.id])
    assert await handle.result(100) == "ok"
    task = await queues.task(handle.id)
    assert (task.attempts, [one.attempt for one in queues.seen]) == (1, [0, 1, 2, 0, 1])
    assert len(task.history) == 3


@pytest.mark.spec("000-26", "000-03")
async def test_a_waiting_task_is_cancelled_at_once_and_never_runs(queues: QueueWorld) -> None:
    queues.service()
    node = await queues.boot()
    handle = await node.put("work", in_=10)
    await node.call("cancel", ids=[handle.id])
    await queues.until(100)
    assert (await queues.task(handle.id)).state is State.CANCELLED
    assert queues.order == []


@pytest.mark.spec("000-26", "003-38")
async def test_a_running_task_is_cancelled_by_ending_its_run(queues: QueueWorld) -> None:
    queues.service(takes=1000.0)
    node = await queues.boot()
    handle, other = await node.put("work"), await node.put("work")
    await queues.until(5)
    await node.call("cancel", ids=[handle.id])
    await queues.until(6)
    task = await queues.task(handle.id)
    assert (task.state, task.reason, task.attempts, task.ended) == (State.CANCELLED, "cancelled", 0, TEN + 5)
    assert queues.seen[0].end is None
    assert (await node.status())["running"] == [other.id]


async def test_a_cancellation_that_comes_before_the_first_step_of_a_run_counts(queues: QueueWorld) -> None:
    queues.service(takes=1000.0)
    node = await queues.boot()
    handle = await node.put("work")
    while handle.id not in node.queue.running:
        await queues.clock.sleep(0)
    node.queue.cancel([handle.id])
    await queues.until(1)
    assert (await queues.task(handle.id)).state is State.CANCELLED


async def test_cancelling_twice_is_harmless(queues: QueueWorld) -> None:
    queues.service(takes=1000.0)
    node = await queues.boot()
    handle = await node.put("work")
    await queues.until(1)
    for _ in range(3):
        await node.call("cancel", ids=[handle.id])
    await queues.until(70)
    assert (await queues.task(handle.id)).state is State.CANCELLED
    assert not queues.happened("crash")


async def test_a_unique_key_is_held_while_a_task_is_pending(queues: QueueWorld) -> None:
    queues.service(takes=10.0)
    node = await queues.boot()
    first = await node.put("work", 1, key="k")
    second = await node.put("work", 2, key="k")
    await queues.until(5)
    third = await node.put("work", 3, key="k")
    other = await node.put("work", 4, key="other")
    await queues.until(11)
    fourth = await node.put("work", 5, key="k", key_for="1h")
    await queues.until(100)
    fifth = await node.put("work", 6, key="k")
    assert [(handle.id, handle.new) for handle in (first, second, third)] == [(1, True), (1, False), (1, False)]
    assert [handle.new for handle in (other, fourth, fifth)] == [True, True, False]
    assert queues.order == [1, 4, 5]


async def test_replace_gives_a_waiting_task_new_data_and_a_new_time(queues: QueueWorld) -> None:
    queues.service()
    node = await queues.boot()
    first = await node.put("work", "old", key="k", in_=1000)
    second = await node.put("work", "new", key="k", in_=10, replace=True)
    await queues.until(20)
    assert (second.id, second.new) == (first.id, False)
    assert (queues.times(), queues.order) == ([10], ["new"])


@pytest.mark.spec("003-37")
async def test_a_handler_may_put_tasks_whose_parent_it_is(queues: QueueWorld) -> None:
    async def fan_out(ctx: Context) -> None:
        for n in range(3):
            await ctx.put("work", n)

    queues.services.append(Service(name="fan_out", function=fan_out))
    queues.service()
    node = await queues.boot()
    handle = await node.put("fan_out")
    await queues.until(1)
    assert sorted(queues.order) == [0, 1, 2]
    assert {one.task.parent for one in queues.seen} == {handle.id}


@pytest.mark.spec("003-40", "003-11")
async def test_a_handler_that_returns_without_deciding_is_done(queues: QueueWorld) -> None:
    queues.service()
    node = await queues.boot()
    assert await (await node.put("work")).result(5) is None
    assert await queues.states() == [State.DONE]


@pytest.mark.spec("R4-04", "000-03")
async def test_while_the_store_cannot_write_results_are_kept_and_nothing_new_starts(queues: QueueWorld) -> None:
    queues.service(takes=5.0)
    node = await queues.boot(processors=2)
    await node.put_many("work", range(4))
    await queues.until(1)
    node.door.failing = True
    await queues.until(300)
    assert len(queues.seen) == 2
    assert queues.happened("store_failing")
    node.door.failing = False
    await queues.until(330)
    assert await queues.states() == [State.DONE] * 4
    assert len(queues.seen) == 4


async def test_bad_orders_are_refused_and_store_nothing(queues: QueueWorld) -> None:
    queues.service()
    node = await queues.boot()
    with pytest.raises(NoSuchName):
        await node.put("nobody")
    with pytest.raises(BadInput):
        await node.put("work", in_="5s", at=TEN + 5)
    with pytest.raises(BadInput):
        await node.put("work", priority=10)
    assert await queues.tasks() == []
