"""Design 001 and 002: tasks that repeat: on a grid, after each end, by a cron line with its time zone."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from raptor.task import State
from tests.designs.queue_world import QueueWorld
from tests.designs.world import DAY, HOUR, TEN


def hours(times: list[float]) -> list[float]:
    return [round(time / HOUR, 3) for time in times]


@pytest.mark.spec("001-03", "001-29")
async def test_a_repetition_keeps_to_the_grid_of_the_first(queues: QueueWorld) -> None:
    queues.service(takes=100.0)
    node = await queues.boot()
    await node.put("work", every="1h", in_="30m")
    await queues.until(5 * HOUR)
    assert hours(queues.times()) == [0.5, 1.5, 2.5, 3.5, 4.5]


async def test_a_repetition_from_the_end_drifts_by_the_length_of_its_runs(queues: QueueWorld) -> None:
    queues.service(takes=100.0)
    node = await queues.boot()
    await node.put("work", every="1h", anchor="end")
    await queues.until(3 * HOUR)
    assert queues.times() == [0, 3700, 7400]


async def test_a_slot_anchor_is_the_grid(queues: QueueWorld) -> None:
    queues.service(does=lambda ctx, n: ctx.again(600) if n == 0 else None)
    node = await queues.boot()
    await node.put("work", every="1h", anchor="slot")
    await queues.until(2.5 * HOUR)
    assert queues.times() == [0, 600, 3600, 7200]


@pytest.mark.spec("001-02", "001-29", "001-30")
async def test_a_cron_line_has_its_time_zone(queues: QueueWorld) -> None:
    queues.service()
    node = await queues.boot()
    await node.put("work", cron="0 2 * * *", timezone="Europe/Berlin")
    queues.clock.step(24 * DAY)
    await queues.clock.sleep_until(TEN + 30 * DAY)
    starts = [
        datetime.fromtimestamp(one.start, UTC) for one in queues.seen[1:]
    ]  # the first is for all that were missed
    assert {(start.hour, start.minute) for start in starts if start.month == 3 and start.day < 29} == {(1, 0)}
    assert {(start.hour, start.minute) for start in starts if (start.month, start.day) > (3, 29)} == {(0, 0)}
    assert len(starts) == 6


@pytest.mark.spec("001-31", "001-32")
async def test_a_cron_line_may_have_seconds(queues: QueueWorld) -> None:
    queues.service()
    node = await queues.boot()
    await node.put("work", cron="*/20 * * * * *", timezone="UTC")
    await queues.until(65)
    assert queues.times() == [0, 20, 40, 60]


async def test_missed_repetitions_are_one(queues: QueueWorld) -> None:
    queues.service()
    node = await queues.boot()
    await node.put("work", every="1m")
    await queues.until(90)
    await queues.crash()
    await queues.until(1000)
    await queues.boot()
    await queues.until(1090)
    assert queues.times() == [0, 60, 1000, 1020, 1080]


async def test_each_repetition_is_a_row_whose_parent_is_the_one_before(queues: QueueWorld) -> None:
    queues.service()
    node = await queues.boot()
    await node.put("work", {"a": 1}, every="1m", priority=2, timeout="5s", max_attempts=7)
    await queues.until(125)
    tasks = await queues.tasks()
    assert [(task.id, task.parent) for task in tasks] == [(1, None), (2, 1), (3, 2), (4, 3)]
    first = tasks[0]
    for task in tasks[1:]:
        assert (task.data, task.priority, task.timeout_s, task.max_attempts, task.timing) == (
            first.data, first.priority, first.timeout_s, first.max_attempts, first.timing
        )  # fmt: skip


async def test_a_repetition_that_fails_for_good_does_not_end_the_series(queues: QueueWorld) -> None:
    queues.service(does=lambda ctx, n: 1 / 0)
    node = await queues.boot()
    await node.put("work", every="1h", max_attempts=1)
    await queues.until(3.5 * HOUR)
    assert hours(queues.times()) == [0, 1, 2, 3]
    assert await queues.states() == [State.DEAD] * 4 + [State.READY]


async def test_an_expired_repetition_still_gets_its_next(queues: QueueWorld) -> None:
    queues.service()
    node = await queues.boot()
    await node.put("work", every="1h", active="5m", in_="1h")
    await queues.until(60)
    await queues.crash()
    await queues.until(1.5 * HOUR)
    await queues.boot()
    await queues.until(3.5 * HOUR)
    tasks = await queues.tasks()
    assert [(task.state, task.reason) for task in tasks[:3]] == [
        (State.DEAD, "expired"), (State.DONE, ""), (State.DONE, "")
    ]  # fmt: skip
    assert hours(queues.times()) == [2, 3]


async def test_a_retry_leaves_the_grid_as_it_is(queues: QueueWorld) -> None:
    queues.service(does=lambda ctx, n: 1 / 0 if n == 0 else None)
    node = await queues.boot()
    await node.put("work", every="1h")
    await queues.until(2.5 * HOUR)
    assert [round(time) for time in queues.times()] == [0, 1, 3600, 7200]


@pytest.mark.parametrize("running", [False, True])
async def test_cancelling_ends_the_series(queues: QueueWorld, running: bool) -> None:
    queues.service(takes=100.0)
    node = await queues.boot()
    await node.put("work", every="1h")
    await queues.until(3650 if running else 200)
    await node.call("cancel", ids=[2])
    await queues.until(10 * HOUR)
    assert len(queues.seen) == (2 if running else 1)
    assert await queues.states() == [State.DONE, State.CANCELLED]


async def test_a_revived_repetition_does_not_double_the_series(queues: QueueWorld) -> None:
    queues.service(does=lambda ctx, n: 1 / 0 if n == 0 else None)
    node = await queues.boot()
    first = await node.put("work", every="1h", max_attempts=1)
    await queues.until(60)
    await node.call("retry", ids=[first.id])
    await queues.until(3.5 * HOUR)
    assert queues.times() == [0, 60, 3600, 7200, 10800]


async def test_a_repetition_that_is_revived_when_its_next_is_forgotten_does_not_double_the_series(
    queues: QueueWorld,
) -> None:
    queues.service()
    node = await queues.boot()
    first = await node.put("work", every="1h")
    await queues.until(1.5 * HOUR)
    for _ in range(2):
        await node.call("retry", ids=[first.id])
        await queues.clock.sleep(60)
    assert await queues.image.drop([first.id + 1]) == 1  # as retention does
    await node.call("retry", ids=[first.id])
    await queues.until(4.5 * HOUR)
    assert queues.times() == [0, 3600, 5400, 5460, 5520, 7200, 10800, 14400]


async def test_a_revived_repetition_that_a_crash_ends_does_not_double_the_series(queues: QueueWorld) -> None:
    queues.service(takes=lambda _: 100.0 if queues.counts["work"] == 2 else 0.0, on_crash="skip")
    node = await queues.boot()
    first = await node.put("work", every="1h")
    await queues.until(60)
    await node.call("retry", ids=[first.id])
    await queues.until(90)
    await queues.crash()
    await queues.boot()
    await queues.until(3.5 * HOUR)
    assert (await queues.task(first.id)).reason == "interrupted"
    assert queues.times() == [0, 60, 3600, 7200, 10800]


async def test_a_revived_repetition_that_expires_does_not_double_the_series(queues: QueueWorld) -> None:
    queues.service()
    node = await queues.boot()
    first = await node.put("work", every="1h", active="5m")
    await queues.until(60)
    await queues.crash()
    await queues.image.revive([first.id], now=queues.clock.now())
    await queues.until(600)
    await queues.boot()
    await queues.until(3.5 * HOUR)
    assert (await queues.task(first.id)).reason == "expired"
    assert queues.times() == [0, 3600, 7200, 10800]


async def test_a_key_goes_along_with_the_series(queues: QueueWorld) -> None:
    queues.service()
    node = await queues.boot()
    await node.put("work", "series", every="1h", key="k")
    await queues.until(1.5 * HOUR)
    assert not (await node.put("work", "another", key="k")).new
    await queues.until(3.5 * HOUR)
    assert queues.order == ["series"] * 4


async def test_a_late_run_is_followed_by_the_next_of_the_grid_alone(queues: QueueWorld) -> None:
    queues.service(takes=lambda data: 3.5 * HOUR if len(queues.seen) == 1 else 0)
    node = await queues.boot()
    await node.put("work", every="1h", timeout="10h")
    await queues.until(5.5 * HOUR)
    assert hours(queues.times()) == [0, 4, 5]


async def test_repetitions_begin_at_a_time_that_is_given(queues: QueueWorld) -> None:
    queues.service()
    node = await queues.boot()
    await node.put("work", every="10m", at=TEN + 1000)
    await queues.until(3000)
    assert queues.times() == [1000, 1600, 2200, 2800]
