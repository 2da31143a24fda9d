"""Design 003: tasks are taken when they are due, in order, once, and fairly over the queues."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest

from raptor.rows import Line
from raptor.task import State, Task
from tests.designs.queue_world import QueueWorld
from tests.designs.world import TEN


@pytest.mark.spec("003-01", "003-02", "003-06", "003-34", "R3-01", "001-45", "000-28")
async def test_a_task_that_is_put_is_run_with_its_data_and_done(queues: QueueWorld) -> None:
    queues.service(does=lambda ctx, n: {"saw": ctx.data})
    node = await queues.boot()
    handle = await node.put("work", {"order": 7})
    assert await handle.result(10) == {"saw": {"order": 7}}
    task = await queues.task(handle.id)
    assert (task.state, task.attempts, task.started, task.ended) == (State.DONE, 0, TEN, TEN)
    assert queues.order == [{"order": 7}]


@pytest.mark.spec("003-09", "003-13", "003-16", "001-01", "001-05", "000-02", "000-16")
async def test_nothing_runs_early_and_each_runs_at_its_time(queues: QueueWorld) -> None:
    queues.service()
    node = await queues.boot()
    for delay in (1800, 0.5, 7200, 3600, 1, 57600):
        await node.put("work", delay, in_=delay)
    await node.put("work", 30, at=TEN + 30)
    await queues.until(60000)
    assert queues.times() == [0.5, 1, 30, 1800, 3600, 7200, 57600]
    assert all(one.start - TEN == one.data for one in queues.seen)


@pytest.mark.spec("R1-03", "R1-06")
async def test_a_due_time_in_the_past_runs_at_once(queues: QueueWorld) -> None:
    queues.service()
    node = await queues.boot()
    await queues.until(5)
    await node.put("work", "late", at=TEN - 100)
    await queues.until(6)
    assert queues.times() == [5]


async def test_many_due_times_put_at_once_are_each_kept(queues: QueueWorld) -> None:
    """The bell tells only of the earliest."""
    queues.service()
    await queues.boot()
    tasks = [Task(service="work", data=str(n), due=TEN + 10 * n) for n in range(1, 6)]
    await queues.image.put(tasks, now=TEN)
    await queues.until(100)
    assert queues.times() == [10, 20, 30, 40, 50]


@pytest.mark.spec("003-35", "000-29", "001-66", "R3-04")
async def test_the_order_is_priority_then_due_time_then_id(queues: QueueWorld) -> None:
    queues.service()
    await queues.saved_line(Line(name="default", paused=True))
    node = await queues.boot(processors=1)
    puts = [(5, 3), (5, 1), (0, 9), (9, 0), (5, 1), (1, 2)]
    for number, (priority, due) in enumerate(puts):
        await node.put("work", number, priority=priority, at=TEN + due)
    await queues.until(20)
    assert queues.order == []
    await queues.line(paused=False)
    await queues.until(21)
    assert queues.order == [2, 5, 1, 4, 0, 3]


@pytest.mark.spec("003-03", "003-10", "R3-01", "000-43", "001-09")
async def test_ten_takers_over_a_thousand_tasks_take_each_exactly_once(queues: QueueWorld) -> None:
    queues.share()
    queues.service(takes=0.01)
    node = await queues.boot(processors=7)
    for _ in range(9):
        await queues.boot(processors=7)
    await node.put_many("work", range(1000))
    await queues.until(30)
    assert Counter(queues.order) == Counter(range(1000))
    assert set(await queues.states()) == {State.DONE}
    assert {one.task.owner for one in queues.seen} == {process.owner for process in queues.processes}


@pytest.mark.spec("003-26", "003-32", "R3-01")
async def test_queues_take_turns_by_their_batch_size(queues: QueueWorld) -> None:
    queues.service(takes=1.0)
    for name in ("a", "b", "c"):
        await queues.saved_line(Line(name=name, paused=True, batch_size=2))
    node = await queues.boot(processors=2)
    for name in ("a", "b", "c"):
        await node.put_many("work", [f"{name}{n}" for n in range(6)], queue=name)
    await node.set_lines(*(Line(name=name, batch_size=2) for name in ("a", "b", "c")))
    await queues.until(100)
    pairs = zip(queues.order[::2], queues.order[1::2], strict=True)
    turns = ["".join(sorted({name[0] for name in pair})) for pair in pairs]
    assert sorted(turns[:3]) == ["a", "b", "c"]
    assert turns[:3] == turns[3:6] == turns[6:9]


async def test_queues_share_the_room_evenly(queues: QueueWorld) -> None:
    queues.service(takes=1.0)
    names = ("a", "b", "c")
    for name in names:
        await queues.saved_line(Line(name=name, paused=True, batch_size=1))
    node = await queues.boot(processors=12)
    for name in names:
        await node.put_many("work", [name] * 12, queue=name)
    await node.set_lines(*(Line(name=name, batch_size=1) for name in names))
    await queues.until(0.5)
    assert Counter(queues.order) == dict.fromkeys(names, 4)


async def test_a_busy_queue_does_not_starve_another(queues: QueueWorld) -> None:
    queues.service(takes=1.0)
    node = await queues.boot(processors=4)
    await node.put_many("work", ["bulk"] * 400, queue="bulk", force=True)
    await queues.until(5)
    await node.put("work", "urgent", queue="small", force=True)
    await queues.until(9)
    assert "urgent" in queues.order


@pytest.mark.spec("003-26")
async def test_cold_queues_give_nobody_an_extra_turn(queues: QueueWorld) -> None:
    queues.service(takes=1.0)
    node = await queues.boot(processors=1)
    for name in ("a", "b", "c", "d"):
        await node.put("work", name, queue=name, force=True, in_=100_000)
    await node.put_many("work", ["a"] * 20, queue="a", force=True)
    await node.put_many("work", ["d"] * 20, queue="d", force=True)
    await queues.until(20)
    counts = Counter(queues.order)
    assert abs(counts["a"] - counts["d"]) <= 1


@pytest.mark.spec("R0-08", "001-62", "000-34")
async def test_one_slow_task_holds_up_no_other(queues: QueueWorld) -> None:
    queues.service(takes=lambda data: 1000.0 if data == "slow" else 0.0)
    node = await queues.boot(processors=3)
    await node.put("work", "slow")
    for second in range(1, 50):
        await node.put("work", second, in_=second)
    await queues.until(60)
    assert queues.times()[1:] == list(range(1, 50))


@pytest.mark.spec("003-30", "R3-01")
async def test_no_more_run_at_a_time_than_there_are_processors(queues: QueueWorld) -> None:
    queues.service(takes=1.0)
    node = await queues.boot(processors=4)
    await node.put_many("work", range(20))
    await queues.until(100)
    assert (queues.most, len(queues.seen)) == (4, 20)
    assert Counter(queues.times()) == {float(n): 4 for n in range(5)}


@pytest.mark.spec("003-29")
async def test_a_queue_fills_no_more_processors_than_it_may_and_others_go_on(queues: QueueWorld) -> None:
    queues.service(takes=1.0)
    node = await queues.boot(processors=10)
    await queues.line("narrow", processors=2)
    await node.put_many("work", ["narrow"] * 6, queue="narrow", force=True)
    await node.put_many("work", ["wide"] * 8, queue="wide", force=True)
    await queues.until(10)
    narrow = [one.start - TEN for one in queues.seen if one.data == "narrow"]
    assert Counter(narrow) == {0: 2, 1: 2, 2: 2}
    assert [one.start - TEN for one in queues.seen if one.data == "wide"] == [0] * 8


@pytest.mark.spec("003-29")
async def test_concurrency_holds_over_all_workers(queues: QueueWorld) -> None:
    queues.share()
    queues.service(takes=1.0)
    await queues.saved_line(Line(name="default", concurrency=3))
    node = await queues.boot()
    await queues.boot()
    await node.put_many("work", range(12))
    await queues.until(100)
    assert (queues.most, len(queues.seen)) == (3, 12)


@pytest.mark.spec("001-65")
async def test_a_rate_is_never_exceeded_in_any_window(queues: QueueWorld) -> None:
    queues.service()
    node = await queues.boot()
    await queues.line(rate="5/s")
    await node.put_many("work", range(23))
    await queues.until(30)
    times = queues.times()
    assert len(times) == 23
    assert all(later - sooner >= 1.0 for sooner, later in zip(times, times[5:], strict=False))
    assert times[-1] <= 6


@pytest.mark.spec("003-28", "003-29")
async def test_a_paused_queue_runs_nothing_and_costs_nothing_until_it_is_resumed(queues: QueueWorld) -> None:
    queues.service()
    node = await queues.boot()
    await queues.line(paused=True)
    await node.put_many("work", range(3))
    await node.put("work", 3, in_=50)
    await queues.until(1)
    before = len(node.door.calls)
    await queues.until(1000)
    assert queues.order == []
    assert len(node.door.calls) - before <= 3
    await queues.line(paused=False)
    await queues.until(1001)
    assert sorted(queues.order) == [0, 1, 2, 3]


async def test_a_rate_that_is_used_up_does_not_wake_a_queue_that_was_paused_meanwhile(queues: QueueWorld) -> None:
    queues.service()
    node = await queues.boot()
    await queues.line(rate="1/10s")
    await node.put_many("work", range(3))
    await queues.until(1)
    await queues.line(paused=True)
    await queues.until(100)
    assert len(queues.seen) == 1
    await queues.line(paused=False)
    await queues.until(130)
    assert len(queues.seen) == 3


@pytest.mark.spec("003-29")
async def test_settings_change_while_tasks_run(queues: QueueWorld) -> None:
    queues.service(takes=1.0)
    node = await queues.boot()
    await queues.line(processors=1)
    await node.put_many("work", range(10))
    await queues.until(2.5)
    assert len(queues.seen) == 3
    await queues.line(processors="none")
    await queues.until(3.5)
    assert len(queues.seen) == 10


@pytest.mark.spec("003-29")
async def test_a_rate_that_is_lifted_lets_go_at_once(queues: QueueWorld) -> None:
    queues.service()
    node = await queues.boot()
    await queues.line(rate="1/h")
    await node.put_many("work", range(5))
    await queues.until(10)
    assert len(queues.seen) == 1
    await queues.line(rate="none")
    await queues.until(11)
    assert len(queues.seen) == 5


@pytest.mark.spec("003-35", "001-13", "001-15")
async def test_while_nothing_is_due_the_store_is_not_asked(queues: QueueWorld) -> None:
    queues.service()
    node = await queues.boot()
    await node.put("work", "far", in_=9000)
    await queues.until(1)
    before = list(node.door.calls)
    await queues.until(8000)
    assert node.door.calls == before
    await node.put("work", "now")
    await queues.until(8001)
    assert queues.times() == [8000]
    await queues.until(9001)
    assert queues.times() == [8000, 9000]


@pytest.mark.spec("001-06", "001-12", "001-14", "001-27")
async def test_the_wheel_holds_a_bounded_number_of_thousands_of_delayed_tasks(queues: QueueWorld) -> None:
    queues.service()
    node = await queues.boot()
    for n in range(4500, 0, -1):  # each earlier than the last: the worst there is
        await node.put("work", n, in_=n)
    assert node.queue.expected <= 4100
    await queues.until(300)
    assert node.queue.expected <= 4100
    assert queues.times() == [float(n) for n in range(1, 301)]


async def test_a_queue_that_is_not_the_workers_is_left_alone(queues: QueueWorld) -> None:
    queues.service()
    node = await queues.boot(queues=["mine"])
    await node.put("work", "mine", queue="mine", force=True)
    await node.put("work", "other", queue="other", force=True)
    await queues.line("third", paused=False)
    await queues.until(10)
    assert queues.order == ["mine"]
    assert (await node.status())["queues"] == ["mine"]


async def test_a_queue_that_nobody_knew_is_served(queues: QueueWorld) -> None:
    queues.service()
    node = await queues.boot()
    await queues.until(100)
    await node.put("work", "now", queue="new", force=True)
    await node.put("work", "later", queue="newer", force=True, in_=5)
    await queues.until(110)
    assert queues.times() == [100, 105]


async def test_a_clock_that_is_set_back_loses_no_task(queues: QueueWorld) -> None:
    queues.service()
    node = await queues.boot()
    await node.put("work", "a", in_=100)
    await queues.until(10)
    await node.put("work", "b")
    queues.clock.step(-5000)
    await queues.until(200)
    assert sorted(queues.order) == ["a", "b"]


async def test_a_clock_that_is_set_forward_runs_what_is_due_soon(queues: QueueWorld) -> None:
    queues.service()
    node = await queues.boot()
    await node.put("work", "a", in_=5000)
    await queues.until(10)
    queues.clock.step(6000)
    await queues.clock.sleep(60)
    assert queues.order == ["a"]


@pytest.mark.spec("003-07", "003-22", "003-19")
async def test_queues_are_counted_by_state(queues: QueueWorld) -> None:
    queues.service(takes=lambda data: 100.0 if data == "long" else 0.0)
    node = await queues.boot()
    await node.put("work", "long")
    await node.put("work", "delayed", in_=1000)
    await queues.until(1)
    await queues.line(paused=True)
    await node.put("work", "ready")
    await node.put("work", "other", queue="other", force=True, in_=50)
    shown = {row["queue"]: row for row in (await node.call("queues"))["queues"]}
    assert {name: shown["default"][name] for name in ("ready", "taken", "delayed")} == {
        "ready": 1, "taken": 1, "delayed": 1,
    }  # fmt: skip
    assert shown["other"]["delayed"] == 1


@pytest.mark.spec("001-06", "001-07", "001-10", "001-11")
async def test_tasks_put_over_time_are_dispatched_within_a_second(queues: QueueWorld) -> None:
    queues.service()
    node = await queues.boot()
    for n in range(400):
        await node.put("work", n, in_=1800 + (n * 7919 % 2000) * 0.9)
    await queues.until(4000)
    lateness = [one.start - one.task.due for one in queues.seen]
    assert len(lateness) == 400
    assert min(lateness) >= 0
    assert max(lateness) < 1


@pytest.mark.spec("003-39", "003-33", "R3-03")
async def test_the_worker_tallies_what_its_handlers_did(queues: QueueWorld) -> None:
    def does(ctx: Any, n: int) -> Any:
        if ctx.data == "bad":
            raise ValueError("no good")
        return ctx.retry(100) if ctx.data == "later" and ctx.attempt == 0 else None

    queues.service(takes=lambda data: 11.0 if data == "long" else 1.0, does=does)
    node = await queues.boot()
    await node.put_many("work", ["ok", "later", "long"])
    await node.put("work", "bad", max_attempts=1)
    await queues.until(50)
    handled = (await node.status())["handled"]["default"]
    assert {key: handled[key] for key in ("processed", "errors", "retried", "last_error", "long")} == {
        "processed": 4, "errors": 1, "retried": 1, "last_error": "ValueError: no good", "long": 1,
    }  # fmt: skip
    assert handled["duration_s"] == pytest.approx(14)


async def test_queues_tell_how_many_tasks_a_second_were_done_lately(queues: QueueWorld) -> None:
    async def rates() -> dict[str, Any]:
        return {one["queue"]: one["done_per_s"] for one in (await node.call("queues"))["queues"]}

    queues.service()
    node = await queues.boot()
    await node.put_many("work", range(60), in_=10)
    await node.put("work", in_="1h", queue="later", force=True)
    assert await rates() == {"default": 0.0, "later": 0.0}
    await queues.until(40)
    assert await rates() == {"default": 2.0, "later": 0.0}
    await queues.until(69)
    assert (await rates())["default"] == pytest.approx(60 / 59)
    await queues.until(71)
    assert (await rates())["default"] == 0


async def test_tasks_of_one_moment_leave_in_one_take(queues: QueueWorld) -> None:
    queues.service()
    node = await queues.boot()
    await node.put_many("work", range(50), in_=10)
    await queues.until(5)
    before = len(node.door.calls)
    await queues.until(20)
    assert Counter(queues.times()) == {10.0: 50}
    takes = Counter(itertools.islice(node.door.calls, before, None))["take"]
    assert takes <= 4
