"""Lanes: room for so many runs at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import pytest

from raptor import turn
from raptor.source import Room
from raptor.turn import Lanes

MARK: ContextVar[str] = ContextVar("mark", default="none")


class Job:
    """A lane with work of its own, whose verdict is durable when the test says so."""

    def __init__(self, lanes: Lanes, recorded: asyncio.Future[None], do: Callable[[], Awaitable[Any]]) -> None:
        self._lanes = lanes
        self._recorded = recorded
        self._do = do
        self.task: asyncio.Task[None] | None = None

    async def work(self, task: asyncio.Task[None]) -> None:
        self.task = task
        await self._do()
        self._lanes.record(self._recorded)


async def nothing() -> None:
    pass


def start(
    lanes: Lanes, do: Callable[[], Awaitable[Any]] = nothing, recorded: asyncio.Future[None] | None = None
) -> Job:
    job = Job(lanes, recorded or done(), do)
    lanes.start([job])  # type: ignore[list-item]
    return job


def done() -> asyncio.Future[None]:
    future = asyncio.get_running_loop().create_future()
    future.set_result(None)
    return future


async def soon(wait: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(wait, 5)


async def test_there_is_room_again_as_soon_as_one_of_them_ends() -> None:
    lanes, ends = Lanes(2), [asyncio.Event() for _ in range(3)]
    assert await lanes.soon() == Room(2)
    for end in ends[:2]:
        start(lanes, end.wait)
    waiting = asyncio.ensure_future(lanes.free(1))
    await asyncio.sleep(0)
    assert not waiting.done()
    ends[1].set()
    await soon(waiting)
    start(lanes, ends[2].wait)
    finishing = asyncio.ensure_future(lanes.finish())
    ends[0].set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not finishing.done()
    ends[2].set()
    await soon(finishing)


async def test_room_is_promised_while_a_verdict_is_written_and_there_when_it_is_durable() -> None:
    lanes, written = Lanes(2), asyncio.get_running_loop().create_future()
    for _ in range(2):
        start(lanes, recorded=written)
    assert await soon(lanes.soon()) == Room(2)
    waiting = asyncio.ensure_future(lanes.free(1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    written.set_result(None)
    await soon(waiting)
    await soon(lanes.finish())


async def test_whoever_waits_for_room_is_told_as_soon_as_a_verdict_is_being_written() -> None:
    lanes, end, written = Lanes(1), asyncio.Event(), asyncio.get_running_loop().create_future()
    start(lanes, end.wait, recorded=written)
    waiting = asyncio.ensure_future(lanes.soon())
    await asyncio.sleep(0)
    end.set()
    assert await soon(waiting) == Room(1)
    written.set_result(None)
    await soon(lanes.finish())


async def test_runs_that_do_not_wait_share_a_task_and_one_that_waits_has_its_own() -> None:
    lanes, end = Lanes(9), asyncio.Event()
    jobs = [start(lanes), start(lanes), start(lanes, end.wait), start(lanes, end.wait), start(lanes)]
    for _ in range(3):  # each that waits has the next task begun
        await asyncio.sleep(0)
    end.set()
    await soon(lanes.finish())
    tasks = [job.task for job in jobs]
    assert tasks[0] is tasks[1] is tasks[2]
    assert len(set(tasks[2:])) == 3


async def test_what_a_run_sets_in_its_context_is_its_own() -> None:
    lanes, seen, end = Lanes(9), list[str](), asyncio.Event()

    async def mark() -> None:
        seen.append(MARK.get())
        MARK.set("mine")
        seen.append(MARK.get())

    async def mark_and_wait() -> None:
        await mark()
        await end.wait()
        seen.append(MARK.get())

    start(lanes, mark)
    start(lanes, mark_and_wait)
    start(lanes, mark)
    for _ in range(3):
        await asyncio.sleep(0)
    end.set()
    await soon(lanes.finish())
    assert seen == ["none", "mine", "none", "mine", "none", "mine", "mine"]


async def test_a_run_that_cancels_the_task_it_runs_in_harms_no_other() -> None:
    lanes, end, ended = Lanes(9), asyncio.Event(), list[str]()

    async def cancel() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    async def wait() -> None:
        await end.wait()
        ended.append("well")

    start(lanes, cancel)
    start(lanes, wait)
    await asyncio.sleep(0)
    end.set()
    await soon(lanes.finish())
    assert ended == ["well"]


async def test_a_lane_that_fails_makes_whoever_waits_fail_though_others_run() -> None:
    lanes, end, begun = Lanes(4), asyncio.Event(), asyncio.Event()

    async def fail() -> None:
        raise ValueError("a broken lane")

    async def begin() -> None:
        begun.set()

    start(lanes, end.wait)
    start(lanes, fail)
    start(lanes, begin)
    with pytest.raises(ValueError, match="a broken lane"):
        await soon(lanes.finish())
    with pytest.raises(ValueError, match="a broken lane"):
        await lanes.soon()
    await soon(begun.wait())
    end.set()


async def test_a_verdict_that_cannot_be_written_makes_whoever_waits_fail() -> None:
    lanes, written = Lanes(2), asyncio.get_running_loop().create_future()
    start(lanes, recorded=written)
    waiting = asyncio.ensure_future(lanes.finish())
    await asyncio.sleep(0)
    written.set_exception(ValueError("the disk"))
    with pytest.raises(ValueError, match="the disk"):
        await soon(waiting)


async def lot(lanes: Lanes, *what: Callable[[], Awaitable[Any]]) -> Room:
    """Start some; -> the room that is foreseen before they begin."""
    for do in what:
        start(lanes, do)
    return await lanes.soon()


async def test_while_a_lot_begins_the_room_that_it_leaves_is_foreseen() -> None:
    lanes = Lanes(3, lambda: True)
    units, sure = await lot(lanes, nothing, nothing)
    assert units == 3
    assert sure is not None
    assert not sure.done()
    assert await soon(sure)
    assert await soon(lanes.soon()) == Room(3)


async def test_where_nothing_is_foreseen_room_is_what_there_is() -> None:
    assert await lot(Lanes(3), nothing, nothing) == Room(1)


async def test_one_that_waits_takes_the_room_that_was_foreseen() -> None:
    lanes, end = Lanes(3, lambda: True), asyncio.Event()
    _, sure = await lot(lanes, nothing, end.wait)
    assert sure is not None
    assert not await soon(sure)
    end.set()
    await soon(lanes.finish())


async def test_after_one_that_waited_lots_are_let_pass_before_another_is_trusted() -> None:
    lanes, end = Lanes(3, lambda: True), asyncio.Event()
    end.set()

    async def wait() -> None:
        await asyncio.sleep(0)

    foreseen: list[bool] = []
    for do in (wait, nothing, wait, nothing, nothing, nothing, nothing, nothing):
        foreseen.append((await lot(lanes, do)).sure is not None)
        await soon(lanes.finish())
    assert foreseen == [True, False, True, False, False, False, True, False]


async def test_whoever_waits_to_be_sure_hears_of_a_lot_that_begins_slowly_before_all_of_it_has_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turn, "TRUST_S", -1.0)
    lanes, heard = Lanes(3, lambda: True), list[str]()

    async def begin() -> None:
        heard.append("begun")

    _, sure = await lot(lanes, begin, begin)
    assert sure is not None
    sure.add_done_callback(lambda told: heard.append(f"sure: {told.result()}"))
    await soon(lanes.finish())
    assert heard == ["sure: False", "begun", "begun"]


async def test_whoever_waits_to_be_sure_is_told_when_a_lane_fails() -> None:
    lanes = Lanes(3, lambda: True)

    async def fail() -> None:
        raise ValueError("a broken lane")

    _, sure = await lot(lanes, nothing, fail)
    assert sure is not None
    assert not await soon(sure)
    with pytest.raises(ValueError, match="a broken lane"):
        await lanes.soon()
