"""Slots in the corners: shared by two schedulers, passed by on a grid, caught up on and failing, long gone."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from raptor.claiming import Claiming
from raptor.clock import Clock
from raptor.events import Events
from raptor.state.memory import MemoryStore
from raptor.timetable import BY_HAND, Claim, Timetable
from tests.designs.world import DAY, HOUR, MINUTE, TEN, World


@pytest.mark.spec("X4-3")
async def test_a_service_removed_in_mid_cycle_keeps_its_slot_for_a_scheduler_that_shares_it(world: World) -> None:
    world.service("slow", takes=100, every_s=HOUR)
    world.service("shared", every_s=HOUR)
    await world.start("slow", "shared", name="one")
    await world.until(1)
    await world.node.start("two", "10m")
    await world.node.pause("two")
    await world.node.schedule("two", ["shared"])
    await world.node.schedule("one", ["slow"])
    await world.until(150)
    assert ["shared", "error", "removed"] in (await world.status("one"))["results"]
    assert await world.slots("shared") == []
    assert "shared" not in await world.image.load("service_timing")
    await world.node.resume("two")
    await world.until(20 * MINUTE)
    assert [line.scheduler for line in world.runs("shared")] == ["two"]
    assert [verdict for _, verdict, _, _ in await world.verdicts("shared")] == ["done"]


async def test_a_service_that_nobody_lists_any_more_has_its_slot_skipped(world: World) -> None:
    world.service("slow", takes=100, every_s=HOUR)
    world.service("gone", every_s=HOUR)
    await world.start("slow", "gone")
    await world.until(1)
    await world.node.schedule("main", ["slow"])
    await world.until(150)
    assert await world.verdicts("gone") == [(0, "skipped", "removed", 1)]


@pytest.mark.parametrize(
    ("overlap", "verdict", "reason"), [("skip", "skipped", "overlap"), ("queue", "coalesced", "one run for all")]
)
async def test_slots_of_a_grid_that_pass_during_a_run_have_their_line(
    world: World, overlap: str, verdict: str, reason: str
) -> None:
    long = 3 * MINUTE + 30
    world.service("grid", takes=lambda n: long if n == 1 else 1.0, every_s=MINUTE, anchor="grid", overlap=overlap)
    await world.start(interval="auto")
    await world.until(6 * MINUTE + 2)
    assert await world.verdicts("grid") == [
        (0, "done", "", 1),
        (60, "done", "", 1),
        (120, verdict, reason, 3),
        (300, "done", "", 1),
        (360, "done", "", 1),
    ]


@pytest.mark.parametrize("writes", range(3, 12))
async def test_slots_of_a_grid_that_passed_are_not_lost_by_a_crash_after_the_timing_was_written(
    world: World, writes: int
) -> None:
    world.service("grid", takes=200, every_s=MINUTE, anchor="grid")
    process = await world.boot(writes=writes)
    await process.start("main", "auto")
    await process.schedule("main", ["grid"])
    await process.store.cut.wait()
    await world.crash()
    await world.boot()
    await world.clock.sleep(1000)
    await world.node.stop("main")
    slots = await world.slots("grid")
    assert slots[0].planned == TEN
    for before, after in pairwise(slots):
        assert after.planned == before.last + MINUTE, slots


@pytest.mark.spec("004-16")
async def test_a_missed_slot_that_fails_is_tried_again_and_the_others_have_their_own_runs(world: World) -> None:
    world.service("all", every_s=HOUR, missed="all", fails=lambda n: n in (2, 3))
    await world.start(interval="auto")
    await world.until(1)
    await world.crash()
    await world.until(4 * HOUR + 60)
    await world.boot()
    await world.until(4 * HOUR + 120)
    assert [(line.planned - TEN, line.attempt) for line in world.runs("all")] == [
        (0, 1),
        (HOUR, 1),
        (2 * HOUR, 1),
        (2 * HOUR, 2),
        (2 * HOUR, 3),
        (3 * HOUR, 1),
        (4 * HOUR, 1),
    ]
    assert [(at, verdict) for at, verdict, _, _ in await world.verdicts("all")] == [
        (n * HOUR, "done") for n in range(5)
    ]


async def test_a_missed_slot_that_never_succeeds_is_closed_when_the_next_slot_comes(world: World) -> None:
    world.service("all", every_s=HOUR, missed="all", fails=lambda n: n > 0 and world.clock.now() < TEN + 6.5 * HOUR)
    await world.start(interval="auto")
    await world.until(1)
    await world.crash()
    await world.until(4 * HOUR + 60)
    await world.boot()
    await world.until(4 * HOUR + 59 * MINUTE)
    assert {line.planned - TEN for line in world.runs("all")} == {0, HOUR}
    await world.until(9 * HOUR)
    verdicts = await world.verdicts("all")
    assert [at for at, _, _, _ in verdicts] == [n * HOUR for n in range(len(verdicts))]
    failed = [at for at, verdict, _, _ in verdicts if verdict == "failed"]
    assert failed[:2] == [HOUR, 2 * HOUR]
    assert "coalesced" not in {verdict for _, verdict, _, _ in verdicts[:5]}


@pytest.mark.spec("004-09")
async def test_after_a_restart_status_shows_the_results_of_the_last_finished_cycle(world: World) -> None:
    world.service("a", takes=1, every_s=HOUR)
    world.service("b", takes=1, every_s=HOUR, fails=lambda n: True, max_attempts=1)
    await world.start(interval="1h")
    await world.until(2 * HOUR + 3)
    before = (await world.status())["results"]
    assert before == [["a", "ok", "result 2"], ["b", "error", "ValueError: failure 2"]]
    await world.crash()
    await world.boot()
    await world.until(2 * HOUR + 10)
    assert world.times("a")[-1] == 2 * HOUR
    status = await world.status()
    assert (status["results"], status["completed_count"], status["cycles"]) == (before, 0, 0)


async def test_the_results_of_another_scheduler_are_not_shown_after_a_restart(world: World) -> None:
    world.service("a", every_s=DAY)
    world.service("b", every_s=DAY)
    await world.start("a", name="one")
    await world.node.start("two", "1h")
    await world.node.schedule("two", ["b"])
    await world.until(10)
    await world.crash()
    await world.boot()
    await world.until(20)
    assert [line[0] for line in (await world.status("one"))["results"]] == ["a"]
    assert [line[0] for line in (await world.status("two"))["results"]] == ["b"]


async def test_the_slots_of_a_long_downtime_are_counted_off_the_event_loop(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.service("often", cron="* * * * *", timezone="UTC")
    world.service("hourly", every_s=HOUR)
    await world.start(interval="auto")
    await world.until(61)
    await world.crash()
    await world.until(DAY + 0.5)
    offloaded: list[str] = []
    offload = world.clock.offload

    async def spy(work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        offloaded.append(getattr(args[0], "name", "") if args else "")
        return await offload(work, *args, **kwargs)

    monkeypatch.setattr(world.clock, "offload", spy)
    await world.boot()
    await world.until(DAY + 10)
    assert offloaded.count("often") == 1
    assert "hourly" not in offloaded
    lines = await world.verdicts("often")
    assert lines[-2][1:] == ("missed", "node down", 1438)
    await world.until(DAY + 200)
    assert offloaded.count("often") == 1


async def test_nobody_begins_a_service_whose_slot_another_scheduler_is_closing(clock: Clock) -> None:
    timetable = Timetable(MemoryStore(), clock, Events(clock))
    main, second = (Claiming(name, timetable, None, clock) for name in ("main", "second"))
    async with main.changing("a") as is_ours, second.changing("a") as is_theirs:
        assert (is_ours, is_theirs) == (True, False)
        assert timetable.claims["a"].holder == "main"
    assert not timetable.claims


async def test_a_slot_is_not_closed_that_another_scheduler_runs(clock: Clock) -> None:
    timetable = Timetable(MemoryStore(), clock, Events(clock))
    main = Claiming("main", timetable, None, clock)
    for holder, may in (("second", False), (BY_HAND, True)):
        timetable.claims["a"] = Claim(holder, "1", 0.0)
        async with main.changing("a") as is_ours:
            assert is_ours is may
        assert timetable.claims["a"].holder == holder
