"""Design 004, scenario 2: whatever the moment of a crash, a restart finishes the cycle and repeats nothing recorded."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from raptor.clock import VirtualClock
from raptor.exits import Exit
from raptor.turning import Finish
from tests.designs.world import HOUR, TEN, World


def three(world: World, **options: object) -> None:
    for name in ("a", "b", "c"):
        world.service(name, takes=10, **options)


@pytest.mark.spec("004-09", "004-21", "004-22", "004-23", "004-24", "004-30", "X4-1", "X4-2", "X4-3")
async def test_scenario_2_a_new_process_goes_on_where_the_old_one_died(world: World) -> None:
    three(world)
    await world.start()
    await world.until(15)
    await world.crash()
    await world.until(300)
    assert world.order == ["a", "b"]
    await world.boot()  # nobody starts anything: what should run comes back, with its list and interval
    await world.until(305)
    status = await world.status()
    assert (status["current_service"], status["resumed"]) == ("b", 1)
    assert ["a", "ok", "result 0"] in status["results"]
    await world.until(321)
    assert world.order == ["a", "b", "b", "c"]
    assert await world.state() is None
    status = await world.status()
    assert status["periodic_services"] == ["a", "b", "c"]
    assert status["next_check"] == TEN + 320 + HOUR
    [event] = world.happened("cycle_resumed")
    assert (event.facts["done"], event.facts["left"]) == (["a", "b"], ["b", "c"])
    await world.until(320 + HOUR + 31)
    assert world.order == ["a", "b", "b", "c", "a", "b", "c"]
    assert world.times("a")[-1] == 320 + HOUR
    assert [verdict[1] for verdict in await world.verdicts("b")] == ["done", "done"]


async def test_a_run_that_is_not_to_be_repeated_is_told_as_interrupted(world: World) -> None:
    three(world, on_crash="skip")
    await world.start()
    await world.until(15)
    await world.crash()
    await world.boot()
    await world.until(60)
    assert world.order == ["a", "b", "c"]
    results = (await world.status())["results"]
    assert results == [["a", "ok", "result 0"], ["b", "error", "interrupted"], ["c", "ok", "result 0"]]


@pytest.mark.spec("004-21", "004-22", "X4-1", "X4-3")
async def test_a_killed_scheduler_is_restarted_by_its_supervisor_and_finishes_its_cycle(world: World) -> None:
    three(world)
    await world.start()
    await world.until(15)
    old = world.node.scheduler("main")
    assert old is not None
    old.kill()
    await world.until(60)
    new = world.node.scheduler("main")
    assert new is not None
    assert new is not old
    assert world.order == ["a", "b", "b", "c"]
    assert [line.end is None for line in world.lines] == [False, True, False, False]
    assert await world.state() is None
    assert world.node.site.workshop.timetable.claims == {}
    await world.until(2 * HOUR)
    assert Counter(world.order) == {"a": 2, "b": 3, "c": 2}


@pytest.mark.spec("004-21")
async def test_a_killed_scheduler_does_not_go_on_beside_its_successor(world: World) -> None:
    world.service("a", takes=100)
    await world.start(interval="10s")
    for n in range(20):
        await world.until(n * 37 + 5)
        ref = world.node.scheduler("main")
        if ref is not None:
            ref.kill()
    await world.until(2000)
    spans = sorted((line.start, line.end or line.start) for line in world.lines)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


@pytest.mark.spec("X4-6", "004-09")
async def test_a_stop_with_an_empty_queue_and_a_running_service_keeps_the_state(world: World) -> None:
    world.service("only", takes=1000)
    await world.start()
    await world.until(15)
    ref = world.node.scheduler("main")
    assert ref is not None
    ref.exit(Exit.SHUTDOWN)
    await ref.wait()
    state = await world.state()
    assert state is not None
    assert state.services_queue == ("only",)
    assert [(result.run.service, result.verdict) for result in state.results] == [("only", "interrupted")]


async def cycle_with_a_crash(world: World, writes: int) -> bool:
    """One cycle of a, b, c whose process dies after so many writes; -> whether it came to that."""
    process = await world.boot(writes=writes)
    start = asyncio.ensure_future(process.start("main", "1h"))
    await world.clock.sleep(0.001)
    schedule = asyncio.ensure_future(process.schedule("main", ["a", "b", "c"])) if start.done() else None
    waits = {asyncio.ensure_future(process.store.cut.wait()), asyncio.ensure_future(world.clock.sleep(100))}
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for task in (*waits, start, *([schedule] if schedule else [])):
        task.cancel()
    died = process.store.cut.is_set()
    if died:
        await world.crash()
    return died


@pytest.mark.parametrize("policy", ["rerun", "skip"])
@pytest.mark.spec("004-08", "004-09", "004-21", "004-22", "004-23", "004-24", "R4-04", "X4-1", "X4-2", "X4-3")
def test_a_crash_at_any_write_loses_nothing_and_repeats_at_most_the_run_in_flight(policy: str) -> None:
    deaths = 0
    for writes in range(2, 100):
        clock = VirtualClock(start=TEN)
        world = World(clock)
        three(world, on_crash=policy)
        died = clock.run(lambda world=world, writes=writes: check_crash(world, writes, policy))  # type: ignore[misc]
        if not died:
            break
        deaths += 1
    # start, schedule; state, timing of each; ledger, delete
    assert deaths == 1 + 6 + 2


async def check_crash(world: World, writes: int, policy: str) -> bool:
    if not await cycle_with_a_crash(world, writes):
        return False
    before = len(world.lines)
    recorded = {
        name for name in ("a", "b", "c") if getattr((await world.image.load("service_timing")).get(name), "slot", None)
    }
    await world.clock.sleep(60)
    began = world.clock.now()
    await world.boot()
    await world.clock.sleep(200)
    again = world.order[before:]
    assert not recorded & set(again), (writes, "recorded work ran again")
    counts = Counter(world.order)
    assert sum(counts.values()) <= 4, (writes, "more than the run in flight was repeated")
    # The state row that names a service is written before it starts: a crash there is taken for one in mid-run.
    named_only = {4: "a", 6: "b", 8: "c"}.get(writes + 1)
    assert {"a", "b", "c"} - set(counts) == (set() if policy == "rerun" else {named_only} - {None})
    if policy == "skip":
        assert max(counts.values()) == 1
    assert await world.state() is None
    resumed = writes < 10 and writes > 2  # the state row was there
    if resumed:
        ended = max([began, *(line.end or 0 for line in world.lines)])
        assert (await world.status())["next_check"] == pytest.approx(ended + HOUR)
    for name in ("a", "b", "c"):
        [slot] = await world.slots(name)
        given_up = policy == "skip" and any(line.name == name and line.end is None for line in world.lines)
        never_begun = policy == "skip" and name not in counts
        assert slot.verdict == ("skipped" if given_up or never_begun else slot.verdict)
        assert slot.verdict in ("done", "skipped")
    runs = await world.image.history(limit=100)
    assert len({run.id for run in runs}) == len(runs)
    await world.clock.sleep(2 * HOUR)
    for name in ("a", "b", "c"):
        planned = [slot.planned for slot in await world.slots(name)]
        assert len(planned) == len(set(planned)) >= 2
    return True


@pytest.mark.spec("004-09")
def test_crash_after_crash_still_ends_the_cycle_with_one_verdict_for_each_slot() -> None:
    for policy in ("rerun", "skip"):
        for first in range(3, 11):
            for second in range(1, 8):
                clock = VirtualClock(start=TEN)
                world = World(clock)
                three(world, on_crash=policy)
                clock.run(lambda world=world, first=first, second=second: twice(world, first, second))  # type: ignore[misc]


async def twice(world: World, first: int, second: int) -> None:
    assert await cycle_with_a_crash(world, first)
    process = await world.boot(writes=second)
    await asyncio.wait({asyncio.ensure_future(process.store.cut.wait())}, timeout=100)
    if process.store.cut.is_set():
        await world.crash()
        await world.boot()
    await world.clock.sleep(100)
    assert await world.state() is None
    for name in ("a", "b", "c"):
        slots = [slot for slot in await world.slots(name) if slot.planned < TEN + 50]
        assert len(slots) == 1, (first, second, name, slots)
        done = [line for line in world.runs(name) if line.end is not None and line.planned == slots[0].planned]
        assert len(done) <= 2


@pytest.mark.spec("004-23")
async def test_slots_that_a_run_left_behind_are_not_lost_by_a_crash_before_they_are_journalled(
    clock: VirtualClock,
) -> None:
    for writes in range(1, 6):
        world = World(clock)
        world.service("a", every_s=HOUR)
        process = await world.start(interval="6h")
        await clock.sleep(1)
        start = clock.now()
        await world.crash()
        await clock.sleep(8 * HOUR)
        process = await world.boot(writes=writes)
        await asyncio.wait({asyncio.ensure_future(process.store.cut.wait())}, timeout=10)
        if process.store.cut.is_set():
            await world.crash()
            await world.boot()
            await clock.sleep(10)
        slots = await world.slots("a")
        covered = sum(slot.count for slot in slots)
        assert covered == int((clock.now() - start) // HOUR) + 1, (writes, slots)


@pytest.mark.spec("004-21")
async def test_what_remains_is_filtered_again_when_a_cycle_is_resumed(world: World) -> None:
    three(world)
    await world.start()
    await world.until(15)
    await world.crash()
    other = World(world.clock, image=world.image, services=world.services, lines=world.lines)
    definition = await world.definition()
    await other.boot()
    await other.node.start("other", "1h")
    await other.node.schedule("other", ["c"])  # main's rest waits behind b; c runs here meanwhile
    await world.until(60)
    assert definition.services[2].name == "c"
    assert Counter(world.order) == {"a": 1, "b": 2, "c": 1}
    assert [verdict[1] for verdict in await world.verdicts("c")] == ["done"]


@pytest.mark.spec("004-30", "X4-2")
async def test_definitions_survive_and_only_an_unclean_end_brings_schedulers_back(world: World) -> None:
    world.service("a")
    world.service("b")
    node = await world.start("a", name="main")
    await node.start("night", "auto")
    await node.schedule("night", ["b=24h"])
    await world.until(1)
    await world.crash()
    node = await world.boot()
    assert node.scheduler("main") is not None
    assert node.scheduler("night") is not None
    await node.close()
    assert not (await world.definition("main")).should_run
    node = await world.boot()
    assert node.scheduler("main") is None
    assert [entry.name for entry in (await world.definition("night")).services] == ["b"]
    await node.start("night")
    status = await world.status("night")
    assert (status["periodic_services"], status["interval_s"]) == (["b"], None)
    await node.stop("night")
    await world.crash()
    node = await world.boot()
    assert node.scheduler("night") is None


def slow_down(world: World) -> None:
    """From now on a write returns a second after it was made."""
    save = world.node.store.save

    async def slowly(changes: Any, **rights: Any) -> None:
        await save(changes, **rights)
        await world.clock.sleep(1)

    world.node.store.save = slowly  # type: ignore[method-assign]


@pytest.mark.spec("004-22")
async def test_breaking_off_never_breaks_off_the_recording_of_a_result(world: World) -> None:
    world.service("a", takes=10)
    await world.start()
    await world.until(5)
    slow_down(world)
    ref = world.node.scheduler("main")
    assert ref is not None
    ref.cast(Finish(5.5))  # over while the timing row is being written
    await ref.wait()
    row = await world.row("a")
    assert world.node.site.row("a") == row
    await world.node.start("main")
    await world.until(60)
    assert world.order == ["a"]
    assert await world.verdicts("a") == [(0, "done", "", 1)]


async def test_an_orderly_stop_takes_back_a_service_that_was_only_about_to_start(world: World) -> None:
    world.service("a", takes=5, on_crash="skip")
    world.service("b", takes=5, on_crash="skip")
    await world.start()
    await world.until(3)
    slow_down(world)
    await world.until(6.5)  # a has ended, and b is being written down as the current one
    ref = world.node.scheduler("main")
    assert ref is not None
    ref.cast(Finish(30.0))
    await ref.wait()
    assert world.order == ["a"]
    state = await world.state()
    assert state is not None
    assert (state.services_queue, state.current_run) == (("b",), None)


@pytest.mark.parametrize("comes_back", [True, False])
async def test_what_is_not_repeated_after_a_crash_is_not_repeated_by_another_scheduler_either(
    world: World, comes_back: bool
) -> None:
    world.service("once", takes=10.0, every_s=60.0, on_crash="skip")
    await world.start("once", interval="auto")
    await world.until(5)
    await world.node.start("second", "auto")
    await world.node.schedule("second", ["once"])
    await world.crash()
    if not comes_back:
        await world.image.save([("definitions", "main", replace(await world.definition(), should_run=False))])
    await world.boot()
    await world.until(80)
    assert world.times("once") == [0, 60]
    assert await world.verdicts("once") == [(0, "skipped", "interrupted", 1), (60, "done", "", 1)]


async def test_a_recorded_run_has_its_line_though_another_scheduler_ran_the_service_since(world: World) -> None:
    world.service("a", every_s=60.0)
    await world.start("a", interval="auto")
    await world.node.start("second", "auto")
    await world.node.schedule("second", ["a"])
    await world.until(30)
    world.node.store.cut_after(2)  # the state row of the next run, and its timing: nothing tells of its end but that
    await world.until(61)
    await world.crash()
    died = world.lines[-1].scheduler
    assert died is not None
    await world.image.save([("definitions", died, replace(await world.definition(died), should_run=False))])
    await world.boot()
    await world.until(130)
    await world.node.start(died, None)
    await world.until(140)
    assert world.times("a") == [0, 60, 120]
    assert [line.scheduler == died for line in world.lines[1:]] == [True, False]
    assert await world.verdicts("a") == [(0, "done", "", 1), (60, "done", "", 1), (120, "done", "", 1)]
