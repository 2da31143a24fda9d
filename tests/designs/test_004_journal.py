"""A long cycle: its state row stays small, the ledger is brought up to date on the way, and a crash costs nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any, cast

import msgspec
import pytest

from raptor import journal
from raptor.clock import VirtualClock
from raptor.events import Event
from raptor.rows import CycleResult, Recorded, SchedulerState
from raptor.task import Outcome, Run, Slot
from tests.designs.world import HOUR, TEN, World

NAMES = [f"s{number}" for number in range(5)]


def many(world: World, count: int) -> list[str]:
    return [world.service(f"s{number}", takes=1).name for number in range(count)]


def told_slots(world: World) -> list[Slot]:
    return [cast("Slot", event.facts["slot"]) for event in world.happened("slot_closed")]


def results_of(event: Event) -> tuple[Recorded, ...]:
    return cast("tuple[Recorded, ...]", event.facts["results"])


@pytest.mark.spec("004-06", "004-08")
async def test_the_state_row_of_a_long_cycle_holds_no_more_whole_results_than_the_ledger_lacks(world: World) -> None:
    names = many(world, 50)
    await world.start()
    for second in range(1, 50):
        await world.until(second + 0.5)
        state = await world.state()
        assert state is not None
        assert len(state.results) <= journal.WHOLE
        assert [result.service for result in state.told] == names[:second]
        lines = [name for name in names if await world.slots(name)]
        assert lines[: len(state.recorded)] == [result.service for result in state.recorded]
    row = msgspec.json.decode(msgspec.json.encode(await world.state()))
    assert row["recorded"][0] == ["s0", "done", "result 0", 1]
    assert (row["services_queue"], row["current_service"], len(row["results"])) == ([], "s49", 9)
    await world.until(51)
    assert await world.state() is None
    assert {len(await world.slots(name)) for name in names} == {1}


async def test_status_and_history_of_a_long_cycle_tell_each_result_once(world: World) -> None:
    names = many(world, 50)
    await world.start()
    await world.until(45.5)
    status = await world.status()
    assert status["completed_count"] == 45
    assert status["results"] == [[name, "ok", "result 0"] for name in names[:45]]
    runs = (await world.node.call("history", limit=100))["runs"]
    assert [run["service"] for run in runs] == names[44::-1]
    assert {run["outcome"] for run in runs} == {"ok"}
    await world.crash()
    await world.boot()
    await world.until(46)
    assert len((await world.node.call("history", limit=100))["runs"]) == 46  # and the one that the crash broke off
    await world.until(60)
    [done] = world.happened("cycle_done")
    assert [result.service for result in results_of(done) if result.verdict == "done"] == names
    assert [line[0] for line in (await world.status())["results"]] == [*names[:45], "s45", *names[45:]]


async def test_a_failure_in_a_long_cycle_is_told_before_the_cycle_ends(world: World) -> None:
    world.service("bad", fails=lambda n: True, max_attempts=1)
    many(world, 50)
    await world.start()
    await world.until(30)
    assert [slot.verdict for slot in told_slots(world)][:2] == ["failed", "done"]
    await world.until(60)
    told = Counter(slot.service for slot in told_slots(world))
    assert len(told) == 51
    assert set(told.values()) == {1}


@pytest.mark.spec("004-08", "004-09", "004-21", "004-22", "004-23", "R4-04", "X4-1", "X4-2", "X4-3")
def test_a_crash_at_any_write_of_a_cycle_that_is_partly_recorded_loses_and_doubles_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journal, "WHOLE", 2)
    deaths = 0
    for writes in range(3, 100):
        clock = VirtualClock(start=TEN)
        if not clock.run(lambda clock=clock, writes=writes: crash_and_resume(clock, writes)):  # type: ignore[misc]
            break
        deaths += 1
    # state and timing of each; the ledger twice on the way and once at the end; the end
    assert deaths == 2 * len(NAMES) + 3 + 1


async def crash_and_resume(clock: VirtualClock, writes: int) -> bool:
    world = World(clock)
    for name in NAMES:
        world.service(name, takes=1, fails=lambda n, name=name: name == "s1", max_attempts=1)  # type: ignore[misc]
    process = await world.boot(writes=writes)
    await process.start("main", "1h")
    await process.schedule("main", NAMES)
    await asyncio.wait({asyncio.ensure_future(process.store.cut.wait())}, timeout=100)
    if not process.store.cut.is_set():
        return False
    last = process.store.written[-1][0]
    await world.crash()
    rows = await world.image.load("service_timing")
    recorded, before = set(rows), len(world.lines)
    await world.boot()
    await clock.sleep(50)
    assert await world.state() is None, writes
    assert not recorded & set(world.order[before:]), (writes, "recorded work ran again")
    assert len(world.lines) <= len(NAMES) + 1, writes
    for name in NAMES:
        assert [slot.verdict for slot in await world.slots(name)] == ["failed" if name == "s1" else "done"], writes
    told = Counter(slot.service for slot in told_slots(world))
    assert set(told.values()) <= {1}, (writes, told)
    assert set(told) == set(NAMES) or last == "scheduler_state", (writes, told)
    for done in world.happened("cycle_done"):
        ends = [result.service for result in results_of(done) if result.verdict in ("done", "failed")]
        assert ends == NAMES, writes
    runs = await world.image.history(limit=100)
    assert Counter(run.service for run in runs if run.outcome != "interrupted") == Counter(NAMES), writes
    return True


@pytest.mark.spec("004-09")
def test_crash_after_crash_in_a_cycle_that_is_partly_recorded_still_gives_one_verdict_a_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journal, "WHOLE", 2)
    for first in range(3, 16, 2):
        for second in range(1, 10):
            clock = VirtualClock(start=TEN)
            clock.run(lambda clock=clock, first=first, second=second: crash_twice(clock, first, second))  # type: ignore[misc]


async def crash_twice(clock: VirtualClock, first: int, second: int) -> None:
    world = World(clock)
    for name in NAMES:
        world.service(name, takes=1)
    process = await world.boot(writes=first)
    await process.start("main", "1h")
    await process.schedule("main", NAMES)
    await process.store.cut.wait()
    await world.crash()
    process = await world.boot(writes=second)
    await asyncio.wait({asyncio.ensure_future(process.store.cut.wait())}, timeout=50)
    if process.store.cut.is_set():
        await world.crash()
        await world.boot()
        await clock.sleep(50)
    assert await world.state() is None
    for name in NAMES:
        assert [slot.verdict for slot in await world.slots(name)] == ["done"], (first, second)
    told = Counter(slot.service for slot in told_slots(world))
    assert set(told.values()) <= {1}, (first, second, told)


async def test_a_cycle_of_the_version_before_is_taken_up_with_all_of_its_results(world: World) -> None:
    names = many(world, 30)
    await world.start()
    await world.until(1)
    await world.node.stop("main")
    await world.crash()
    state = await world.state()
    assert state is not None
    runs = {
        name: Run(
            id=name, service=name, scheduler="main", planned=TEN, attempt=1, start=TEN, end=TEN + 1, outcome=Outcome.OK
        )
        for name in names[:25]
    }
    old = msgspec.to_builtins(
        msgspec.structs.replace(
            state,
            results=tuple(CycleResult(run=run, verdict="done") for run in runs.values()),
            services_queue=tuple(names[25:]),
            current_service=None,
            current_run=None,
        )
    )
    del old["recorded"]
    await world.image.save([("scheduler_state", "main", msgspec.convert(old, SchedulerState))])
    rows = {name: msgspec.structs.replace(await world.row("s0"), last_run_id=name) for name in runs}
    await world.image.save([("service_timing", name, row) for name, row in rows.items()])
    before = len(world.lines)
    await world.boot()
    await world.node.start("main")
    await world.clock.sleep(20)
    assert world.order[before:] == names[25:]
    assert {name: [slot.run for slot in await world.slots(name)] for name in runs} == {name: [name] for name in runs}
    assert [line[0] for line in (await world.status())["results"]] == names


@dataclass
class Refusal:
    """Fails the ledger's writes, and no others."""

    on: bool = True
    count: int = 0


async def test_while_the_ledger_cannot_be_written_the_cycle_goes_on_and_the_row_holds_its_results(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = many(world, 30)
    process = await world.start()
    refusal = Refusal()
    write = process.store._write  # pyright: ignore[reportPrivateUsage]

    async def refuse(what: tuple[str, str], do: Any) -> None:
        if what[0] == "ledger" and refusal.on:
            refusal.count += 1
            process.store.failing = True
            try:
                await write(what, do)
            finally:
                process.store.failing = False
        await write(what, do)

    monkeypatch.setattr(process.store, "_write", refuse)
    await world.until(28.5)
    state = await world.state()
    assert state is not None
    assert (len(state.results), state.recorded) == (28, ())
    assert refusal.count > 1
    await world.until(60)
    assert await world.state() is not None
    refusal.on = False
    await world.until(70)
    assert await world.state() is None
    assert [len(await world.slots(name)) for name in names] == [1] * 30


@pytest.mark.spec("004-24")
async def test_a_stop_in_a_long_cycle_keeps_what_is_left_of_it(world: World) -> None:
    names = many(world, 50)
    await world.start()
    await world.until(30.5)
    await world.node.stop("main")
    state = await world.state()
    assert state is not None
    assert [result.service for result in state.told] == names[:31]
    assert state.services_queue == tuple(names[31:])
    await world.node.start("main")
    await world.clock.sleep(30)
    assert world.order == names
    assert {len(await world.slots(name)) for name in names} == {1}
    assert (await world.status())["next_check"] > TEN + HOUR
