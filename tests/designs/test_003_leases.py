"""Design 003, 001 and 000: leases, crashes, results that come too late, and tasks that kill whoever runs them."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from raptor.rows import Line
from raptor.service import Service
from raptor.state.base import Query
from raptor.task import State
from tests.designs.queue_world import Process, QueueWorld, deadly
from tests.designs.world import TEN


@pytest.mark.spec("003-18", "003-10")
async def test_the_lease_of_a_long_run_is_renewed_while_it_lives(queues: QueueWorld) -> None:
    queues.share()
    queues.service(takes=1000.0)
    node = await queues.boot(processors=1)
    await queues.boot(processors=1)  # would take it if it lapsed
    handle = await node.put("work")
    for since in (1, 59, 300, 900):
        await queues.until(since)
        lease = (await queues.task(handle.id)).lease
        assert lease is not None
        assert lease > TEN + since
    await queues.until(1001)
    task = await queues.task(handle.id)
    assert (task.state, task.attempts, len(queues.seen)) == (State.DONE, 0, 1)


@pytest.mark.spec("003-29", "003-18")
async def test_a_lease_that_is_made_shorter_is_renewed_in_time(queues: QueueWorld) -> None:
    queues.share()
    queues.service(takes=100.0)
    other = await queues.boot(processors=1)  # its beat comes first
    await queues.until(5)
    node = await queues.boot(processors=1)
    await other.set_lines(Line(name="default", paused=True))
    for process in (node, other):
        await process.set_lines(Line(name="default", lease_s=3.0, paused=process is other))
    handle = await node.put("work")
    await queues.until(110)
    assert ((await queues.task(handle.id)).attempts, len(queues.seen)) == (0, 1)
    assert not queues.happened("result_refused")


@pytest.mark.spec("003-11", "003-14", "003-15", "003-17", "003-50", "R3-01", "000-40", "000-41", "000-42", "001-49")
async def test_the_tasks_of_a_dead_worker_lapse_and_another_runs_them(queues: QueueWorld) -> None:
    queues.share()
    queues.service(takes=lambda data: 10.0)
    first = await queues.boot(processors=2)
    handles = [await first.put("work", n) for n in range(2)]
    await queues.until(1)
    await queues.boot(processors=2)
    await queues.crash(first)
    await queues.until(59)
    assert len(queues.seen) == 2
    await queues.until(120)
    tasks = [await queues.task(handle.id) for handle in handles]
    assert [(task.state, task.attempts, task.previous) for task in tasks] == [(State.DONE, 1, TEN)] * 2
    assert [one.attempt for one in queues.seen] == [0, 0, 1, 1]
    again = [one.start - TEN for one in queues.seen[2:]]
    assert all(60 <= at <= 95 for at in again)
    assert [one.verdict for task in tasks for one in task.history] == ["retry", "retry"]


async def test_the_lease_of_what_has_ended_is_renewed_until_that_is_written(queues: QueueWorld) -> None:
    """A verdict may have to wait for somebody's lock; done twice is what was not to be."""
    queues.share()
    queues.service(takes=10.0)
    node = await queues.boot(processors=1)
    await queues.boot(processors=1)  # would take it if it lapsed
    handle = await node.put("work")
    await queues.until(1)
    node.door.refused = {"settle"}
    await queues.until(300)
    node.door.refused = set()
    await queues.until(400)
    task = await queues.task(handle.id)
    assert (task.state, task.attempts, len(queues.seen)) == (State.DONE, 0, 1)


async def test_a_worker_that_ends_while_a_lapse_is_written_leaves_it_to_be_written(queues: QueueWorld) -> None:
    """Verdicts that are written together share one future: who waits for it no longer must not cancel it."""
    wrong: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: wrong.append(context))
    queues.share()
    queues.service(takes=500.0)
    first, second = await queues.boot(processors=1), await queues.boot(processors=1)
    await second.set_lines(Line(name="default", paused=True))
    lapsed = await first.put("work")
    await queues.until(1)
    await queues.crash(first)
    second.door.refused = {"settle"}
    await queues.until(120)
    await second.queue.close()
    second.door.refused = set()
    await queues.until(200)
    gc.collect()
    assert wrong == []
    assert (await queues.task(lapsed.id)).attempts == 1


@pytest.mark.spec("003-11", "R0-06")
async def test_a_lapse_in_the_last_run_makes_it_dead(queues: QueueWorld) -> None:
    queues.service(takes=10.0)
    node = await queues.boot()
    handle = await node.put("work", max_attempts=1)
    await queues.until(1)
    await queues.crash()
    await queues.boot()
    await queues.until(20)
    task = await queues.task(handle.id)
    assert (task.state, task.reason, task.attempts, len(queues.seen)) == (State.DEAD, "lapsed", 1, 1)


@pytest.mark.spec("R3-04", "003-10", "001-08")
async def test_a_result_that_comes_too_late_is_refused_recorded_and_told(queues: QueueWorld) -> None:
    queues.share()
    queues.service(takes=lambda data: 200.0, does=lambda ctx, n: f"result {n}")
    hung = await queues.boot(processors=1)
    handle = await hung.put("work")
    await queues.until(1)
    hung.door.failing = True  # it lives, and cannot renew
    await queues.boot(processors=1)
    await queues.until(190)
    assert len(queues.seen) == 2
    hung.door.failing = False
    await queues.until(500)
    task = await queues.task(handle.id)
    assert (task.state, task.output, task.attempts) == (State.DONE, '"result 1"', 1)
    refused = queues.happened("result_refused")
    assert len(refused) == 1
    (line,) = await queues.image.history("work")
    assert (line.id, line.info[:7]) == (f"{handle.id}.1", "refused")


async def test_of_two_who_bring_the_same_task_back_nobody_tells_of_a_refused_result(queues: QueueWorld) -> None:
    queues.share()
    queues.service(takes=10.0)
    first = await queues.boot(processors=1)
    handle = await first.put("work")
    await queues.until(1)
    others = [await queues.boot(processors=1) for _ in range(2)]
    await queues.crash(first)
    await queues.until(120)
    assert all("settle" in other.door.calls for other in others)
    task = await queues.task(handle.id)
    assert (task.state, len(task.history)) == (State.DONE, 1)
    assert not queues.happened("result_refused")
    assert await queues.image.history("work") == []


async def test_what_is_taken_after_an_outage_has_its_whole_lease(queues: QueueWorld) -> None:
    queues.share()
    queues.service(takes=200.0)
    node = await queues.boot(processors=1)
    await queues.boot(processors=1)
    for process in queues.processes:
        process.door.refused = {"take"}
    handle = await node.put("work")
    await queues.until(100)
    node.door.refused.clear()
    await queues.until(110)
    task = await queues.task(handle.id)
    assert task.started is not None
    assert task.lease is not None
    assert (task.state, task.started >= TEN + 100, task.lease >= TEN + 160) == (State.TAKEN, True, True)


async def test_after_a_failed_write_no_more_is_taken_than_the_lanes_hold(queues: QueueWorld) -> None:
    queues.share()
    queues.service(takes=lambda data: 10.0)
    node = await queues.boot(processors=2)
    await node.put_many("work", range(6))
    await queues.until(5)
    node.door.refused = {"settle", "take"}
    await queues.until(11)
    node.door.refused = {"settle"}
    await queues.until(50)
    assert len(await queues.image.find(Query(states=(State.TAKEN,)))) == 2
    node.door.refused.clear()
    await queues.until(100)
    assert len(queues.seen) == 6


async def test_what_was_taken_does_not_start_once_its_lease_is_over(queues: QueueWorld) -> None:
    queues.share()
    queues.service(takes=lambda data: 10.0)
    hung = await queues.boot(processors=1)
    handles = [await hung.put("work", n) for n in range(2)]
    await queues.until(5)
    hung.door.refused = {"settle", "extend"}  # the second is taken, and starts when the first is recorded
    await queues.until(15)
    assert [(await queues.task(handle.id)).state for handle in handles] == [State.TAKEN] * 2
    await queues.boot(processors=1)
    await queues.until(190)
    hung.door.refused.clear()
    await queues.until(300)
    assert [(await queues.task(handle.id)).state for handle in handles] == [State.DONE] * 2
    assert [one.data for one in queues.seen].count(1) == 1


async def test_a_run_whose_lease_is_lost_is_ended(queues: QueueWorld) -> None:
    queues.share()
    queues.service(takes=lambda data: 10_000.0)
    hung = await queues.boot(processors=1)
    handle = await hung.put("work")
    await queues.until(1)
    hung.door.failing = True
    await queues.boot(processors=1)
    await queues.until(120)
    hung.door.failing = False
    await queues.until(150)
    assert (await hung.status())["running"] == []
    assert (await queues.node.status())["running"] == [handle.id]


@pytest.mark.spec("001-27", "001-41", "000-03", "001-08", "003-50")
async def test_what_a_node_left_comes_back_at_once_at_the_next_start(queues: QueueWorld) -> None:
    queues.service(takes=10.0)
    node = await queues.boot(processors=3)
    await node.put_many("work", range(5))
    await node.put("work", "delayed", in_=100)
    await queues.until(1)
    await queues.crash()
    await queues.until(2)
    await queues.boot(processors=3)
    await queues.until(60)
    tasks = await queues.tasks()
    assert [(task.state, task.attempts) for task in tasks[:3]] == [(State.DONE, 1)] * 3
    assert [(task.state, task.attempts) for task in tasks[3:5]] == [(State.DONE, 0)] * 2  # they had not started
    assert queues.times()[3] == 2
    await queues.until(120)
    assert queues.times()[-1] == 100
    assert await queues.states() == [State.DONE] * 6


async def test_after_a_crash_its_tasks_run_one_at_a_time_and_others_beside_them(queues: QueueWorld) -> None:
    queues.service(takes=10.0)
    node = await queues.boot()
    for name in ("a", "b"):
        await node.put_many("work", ["suspect"] * 2, queue=name, force=True)
    await queues.until(1)
    await queues.crash()
    node = await queues.boot()
    await node.put_many("work", ["other"] * 5, queue="a", force=True)
    await queues.until(100)
    suspects = [one.start - TEN for one in queues.seen[4:] if one.data == "suspect"]
    assert suspects == [1, 11, 21, 31]
    assert [one.start - TEN for one in queues.seen if one.data == "other"] == [1] * 5
    assert set(await queues.states()) == {State.DONE}


async def test_a_suspect_takes_no_more_processors_than_its_queue_may_fill(queues: QueueWorld) -> None:
    queues.service(takes=10.0)
    await queues.saved_line(Line(name="default", processors=1))
    node = await queues.boot()
    await node.put("work", "suspect")
    await queues.until(1)
    await queues.crash()
    await queues.saved_line(Line(name="default", paused=True))
    node = await queues.boot()
    await node.put("work", "other", priority=0)
    await node.set_lines(Line(name="default", processors=1))
    await queues.until(60)
    assert sorted(one.start - TEN for one in queues.seen) == [0, 1, 11]


async def test_a_revived_suspect_waits_for_a_processor_of_its_queue(queues: QueueWorld) -> None:
    queues.service(takes=10.0)
    await queues.saved_line(Line(name="default", processors=1))
    node = await queues.boot()
    dead = await node.put("work", "suspect", max_attempts=1)
    await queues.until(1)
    await queues.crash()
    node = await queues.boot()
    await node.put("work", "other")
    await queues.until(2)
    assert (await queues.task(dead.id)).state is State.DEAD
    await node.call("retry", ids=[dead.id])
    await queues.until(60)
    assert [(one.data, one.start - TEN) for one in queues.seen] == [("suspect", 0), ("other", 1), ("suspect", 11)]


async def test_a_task_that_was_cancelled_when_its_node_died_does_not_come_back(queues: QueueWorld) -> None:
    queues.service(takes=100.0)
    node = await queues.boot()
    handle = await node.put("work")
    await queues.until(1)
    await queues.image.cancel([handle.id], now=TEN + 1, reason="cancelled")
    await queues.crash()
    await queues.boot()
    await queues.until(20)
    assert (await queues.task(handle.id)).state is State.CANCELLED
    assert len(queues.seen) == 1


async def test_a_service_that_must_not_be_repeated_is_not(queues: QueueWorld) -> None:
    queues.service(takes=100.0, on_crash="skip")
    node = await queues.boot()
    handle, series = await node.put("work"), await node.put("work", every="1h")
    await queues.until(1)
    await queues.crash()
    await queues.boot()
    await queues.until(20)
    task = await queues.task(handle.id)
    assert (task.state, task.reason, len(queues.seen)) == (State.CANCELLED, "interrupted", 2)
    (following,) = await queues.tasks(parent=series.id)
    assert following.due == TEN + 3600


async def kill(queues: QueueWorld, *, isolate: bool, **order: object) -> tuple[Process, int]:
    queues.services.append(Service(name="deadly", function=deadly, isolate=isolate))
    queues.service()
    node = await queues.boot()
    handle = await node.put("deadly", {"mode": "kill"}, **order)  # type: ignore[arg-type]
    return node, handle.id


@pytest.mark.spec("R3-06")
async def test_three_deaths_of_its_own_process_make_a_task_poison_alone(queues: QueueWorld) -> None:
    node, id = await kill(queues, isolate=True)
    others = await node.put_many("work", range(5))
    fine = await node.put("deadly", {"mode": "live"})
    await queues.until(100)
    task = await queues.task(id)
    assert (task.state, task.reason, task.deaths) == (State.DEAD, "poison", 3)
    assert [(await queues.task(one)).state for one in (*others, fine.id)] == [State.DONE] * 6
    assert not queues.happened("crash")


async def test_an_unlimited_task_is_never_poison(queues: QueueWorld) -> None:
    _, id = await kill(queues, isolate=True, max_attempts="unlimited")
    await queues.until(1000)
    task = await queues.task(id)
    assert task.state is State.READY or task.state is State.TAKEN
    assert task.deaths > 5


async def test_what_killed_its_node_is_run_apart_from_then_on(queues: QueueWorld) -> None:
    node, id = await kill(queues, isolate=False, max_attempts=10)
    waiting = await node.put_many("work", range(3), in_=50)
    await node.died.wait()
    await queues.crash()
    await queues.boot()
    await queues.until(100)
    runs = [apart for run, apart in queues.apart if run.startswith(f"{id}.")]
    assert runs == [False, True, True, True]
    task = await queues.task(id)
    assert (task.state, task.reason, task.deaths) == (State.DEAD, "poison", 3)
    assert [((await queues.task(one)).state, (await queues.task(one)).attempts) for one in waiting] == [
        (State.DONE, 0)
    ] * 3


async def test_a_suspect_that_proves_harmless_is_one_no_more(queues: QueueWorld) -> None:
    queues.service(takes=10.0, does=lambda ctx, n: 1 / 0 if n == 1 else None)
    node = await queues.boot()
    handle = await node.put("work")
    await queues.until(1)
    await queues.crash()
    await queues.boot()
    await queues.until(5)
    assert (await queues.task(handle.id)).suspect
    await queues.until(12)
    assert not (await queues.task(handle.id)).suspect
    await queues.until(40)
    assert (await queues.task(handle.id)).state is State.DONE


async def test_a_worker_that_is_killed_is_restarted_and_loses_nothing(queues: QueueWorld) -> None:
    queues.service(takes=5.0)
    node = await queues.boot(processors=2)
    await node.put_many("work", range(4))
    await queues.until(1)
    node.worker.kill()
    await queues.until(60)
    assert await queues.states() == [State.DONE] * 4
    assert (await node.status())["state"] == "running"
    assert not node.held


async def test_what_a_failed_worker_had_taken_and_lost_comes_back(queues: QueueWorld) -> None:
    """Its process lives on, and so its lease would never lapse."""
    queues.service()
    node = await queues.boot()
    await queues.until(1)
    taken = node.door.image.take
    broken = False

    async def take_and_fail(*args: object, **kwargs: object) -> object:
        nonlocal broken
        found = await taken(*args, **kwargs)  # type: ignore[arg-type]
        if found.tasks and not broken:
            broken = True
            raise RuntimeError("the answer was lost")
        return found

    queues.image.take = take_and_fail  # type: ignore[method-assign, assignment]
    handle = await node.put("work")
    await queues.until(60)
    assert broken
    task = await queues.task(handle.id)
    assert (task.state, task.attempts) == (State.DONE, 1)
