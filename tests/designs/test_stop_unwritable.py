"""A node ends within its grace and five seconds though its store cannot write what had ended, and says what that is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from raptor import Node, VirtualClock
from raptor.errors import NotWritten, RefusedState
from raptor.events import Event
from raptor.rows import ServiceTiming
from raptor.service import OnCrash, Service
from raptor.state.base import Record, Right
from raptor.state.memory import MemoryStore
from raptor.task import Move, Outcome, State
from raptor.turning import LAST_S
from raptor.unrecorded import Unrecorded

GRACE_S = 3.0
BOUND_S = 5.0  # beyond the grace


class Store(MemoryStore):
    """It may be away, for results, or answer nothing any more, whatever is asked of it."""

    is_away = is_silent = is_broken = False
    chokes = False  # on the next one

    async def settle(self, moves: Sequence[Move], *, now: float) -> frozenset[int]:
        await self._reach()
        return await super().settle(moves, now=now)

    async def save(self, changes: Sequence[tuple[str, str, Record | None]], *, rights: Sequence[Right] = ()) -> None:
        if any(table == "service_timing" for table, *_ in changes):
            await self._reach()
        await super().save(changes, rights=rights)

    async def release(self, rights: Sequence[Right], *, owner: str) -> None:
        await self._answer()
        await super().release(rights, owner=owner)

    async def vanish(self, owner: str) -> None:
        await self._answer()
        await super().vanish(owner)

    async def amend(self, *args: Any) -> bool:
        if self.is_broken:
            raise RefusedState("broken", "raptor.sqlite", "could not be written", "start again")
        return await super().amend(*args)

    async def _reach(self) -> None:
        if self.chokes:
            self.chokes = False
            raise RuntimeError("this is no outage")
        if self.is_away:
            raise NotWritten("unreachable", "the database", "nobody is there")
        await self._answer()

    async def _answer(self) -> None:
        if self.is_silent:
            await asyncio.Future()


@dataclass
class Day:
    """A node that runs one service, as a task or for a slot, and is told to stop in the middle of that."""

    clock: VirtualClock
    store: Store
    on_crash: OnCrash = "rerun"
    grace_s: float = GRACE_S
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    told: list[Event] = field(default_factory=list[Event])

    async def begin(self, how: str) -> None:
        async def work() -> str:
            self.begun.set()
            await self.gate.wait()
            return "done"

        service = Service(name="work", function=work, every_s=3600.0, on_crash=self.on_crash)
        self.node = Node(store=self.store, services=[service], clock=self.clock, grace_s=self.grace_s)
        await self.node.__aenter__()
        self.node.events.subscribe(self.told.append, "not_recorded")
        if how == "task":
            await self.node.put("work")
        else:
            await self.node.start("main")
            await self.node.schedule("main", ["work"])
        await self.begun.wait()

    async def stop(self, *, back_after_s: float | None = None) -> float:
        """It ends at once, when it was told to stop; -> how long the stop took."""
        at = self.clock.monotonic()
        closing = asyncio.ensure_future(self.node.close())
        self.gate.set()
        if back_after_s is not None:
            await self.clock.sleep(back_after_s)
            self.store.is_away = self.store.is_silent = False
        await closing
        return self.clock.monotonic() - at

    async def is_recorded(self, how: str) -> bool:
        if how == "task":
            (task,) = self.store._tasks.values()
            return task.state is State.DONE
        row = (await self.store.load("service_timing")).get("work")
        return isinstance(row, ServiceTiming) and row.last_outcome == "ok"


HOW = pytest.mark.parametrize("how", ["task", "slot"])
SHARED = pytest.mark.parametrize("exclusive", [True, False], ids=["alone", "shared"])


@HOW
@SHARED
@pytest.mark.parametrize("back_after_s", [1.0, 3.2, GRACE_S + LAST_S - 0.6])
async def test_what_ends_in_a_stop_is_recorded_if_the_store_comes_back_in_time(
    clock: VirtualClock, how: str, exclusive: bool, back_after_s: float
) -> None:
    day = Day(clock, Store(exclusive=exclusive))
    await day.begin(how)
    day.store.is_away = True
    assert await day.stop(back_after_s=back_after_s) <= back_after_s + 0.5
    assert await day.is_recorded(how)
    assert (day.node.unrecorded, day.told) == ([], [])


@HOW
@SHARED
@pytest.mark.parametrize("trouble", ["is_away", "is_silent"])
async def test_what_the_store_does_not_take_in_time_is_said(
    clock: VirtualClock, how: str, exclusive: bool, trouble: str
) -> None:
    day = Day(clock, Store(exclusive=exclusive))
    await day.begin(how)
    setattr(day.store, trouble, True)
    assert GRACE_S + LAST_S <= await day.stop() < GRACE_S + BOUND_S
    assert not await day.is_recorded(how)
    (one,) = day.node.unrecorded
    assert (one.service, one.outcome, one.again) == ("work", Outcome.OK, True)
    assert (one.task, one.scheduler) == ((1, None) if how == "task" else (None, "main"))
    assert one.run == "1.1" or how == "slot"
    assert "nobody is there" in one.why or trouble == "is_silent"
    await asyncio.sleep(0)
    (event,) = day.told
    assert (event.facts["runs"], event.facts["error"]) == ([one.run], one.why)


@HOW
async def test_what_is_not_to_be_repeated_is_said_to_be_given_up(clock: VirtualClock, how: str) -> None:
    day = Day(clock, Store(), on_crash="skip")
    await day.begin(how)
    day.store.is_away = True
    await day.stop()
    assert [one.again for one in day.node.unrecorded] == [False]


async def test_a_task_that_cannot_be_given_back_is_said_too(clock: VirtualClock) -> None:
    """It costs an attempt then."""
    day = Day(clock, Store())
    await day.begin("task")
    day.store.is_away = True
    day.gate = asyncio.Event()  # it does not end by itself
    await day.stop()
    assert [(one.run, one.outcome) for one in day.node.unrecorded] == [("1.1", Outcome.INTERRUPTED)]


@HOW
@SHARED
@pytest.mark.parametrize("trouble", ["is_away", "is_silent"])
async def test_who_ends_it_at_once_is_told_as_well(
    clock: VirtualClock, how: str, exclusive: bool, trouble: str
) -> None:
    day = Day(clock, Store(exclusive=exclusive), grace_s=1000.0)
    await day.begin(how)
    setattr(day.store, trouble, True)
    day.node.force()
    assert await day.stop() < BOUND_S
    assert [one.service for one in day.node.unrecorded] == ["work"]


async def test_where_nobody_hears_of_it_it_is_logged(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    day = Day(clock, Store())
    await day.begin("task")
    day.node.runtime.events._subscriptions = ()  # pyright: ignore[reportPrivateUsage]
    day.store.is_away = True
    with caplog.at_level(logging.ERROR, logger="raptor"):
        await day.stop()
    assert "not recorded: run 1.1 of work: the database" in caplog.text


async def test_a_scheduler_that_is_stopped_by_itself_says_so_and_its_next_start_repeats_it(clock: VirtualClock) -> None:
    day = Day(clock, Store())
    await day.begin("slot")
    day.store.is_away = True
    day.gate.set()
    await day.node.call("stop", name="main", grace_s=1.0)
    assert [event.facts["scheduler"] for event in day.told] == ["main"]
    day.store.is_away = False
    day.begun.clear()
    await day.node.start("main")
    await day.begun.wait()
    await day.stop()
    assert await day.is_recorded("slot")
    assert day.node.unrecorded == []  # of this stop


@HOW
async def test_what_one_that_failed_left_and_its_successor_found_is_not_said(clock: VirtualClock, how: str) -> None:
    day = Day(clock, Store())
    await day.begin(how)
    day.store.chokes = True
    day.begun.clear()
    day.gate.set()
    await day.begun.wait()  # by the next worker, or scheduler
    await day.stop()
    assert not day.store.chokes
    assert await day.is_recorded(how)
    assert day.node.unrecorded == []


async def test_a_node_whose_store_is_broken_ends_all_the_same(clock: VirtualClock) -> None:
    day = Day(clock, Store())
    await day.begin("slot")
    day.store.is_broken = True
    await day.stop()
    assert not day.node.root.alive
    assert day.node.unrecorded == list[Unrecorded]()  # only that it is not to come back


async def test_what_is_said_is_said_once_however_often_it_is_told_to_stop(clock: VirtualClock) -> None:
    day = Day(clock, Store())
    await day.begin("task")
    day.store.is_away = True
    await asyncio.gather(day.stop(), day.node.close())
    await day.node.close()
    assert len(day.node.unrecorded) == len(day.told) == 1
