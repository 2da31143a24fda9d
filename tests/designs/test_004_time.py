"""Design 004: slots, anchors, beats and clocks. Nothing is early, nothing drifts, nothing freezes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from raptor.clock import VirtualClock
from raptor.state.base import Record, Right
from tests.designs.world import DAY, HOUR, MINUTE, TEN, World

BERLIN = ZoneInfo("Europe/Berlin")


def world_at(*date: int, zone: ZoneInfo | None = None) -> World:
    return World(VirtualClock(start=datetime(*date, tzinfo=zone or UTC).timestamp()))  # type: ignore[misc,arg-type]


def local(world: World, name: str, zone: ZoneInfo) -> list[str]:
    return [datetime.fromtimestamp(line.start, zone).strftime("%m-%d %H:%M %z") for line in world.runs(name)]


# Anchors


@pytest.mark.spec("X4-10", "R4-05")
async def test_anchors_count_from_the_slot_the_end_or_the_grid(world: World) -> None:
    takes = {0: 90.0}
    for anchor in ("slot", "end", "grid"):
        world.service(anchor, every_s=MINUTE, anchor=anchor, takes=lambda n: takes.get(n, 2.0), overlap="queue")
    await world.boot()
    for anchor in ("slot", "end", "grid"):
        await world.node.start(anchor, "auto")
        await world.node.schedule(anchor, [anchor])
    await world.until(400)
    assert world.times("slot") == [0, 90, 120, 180, 240, 300, 360]
    assert world.times("end") == [0, 150, 212, 274, 336, 398]
    assert world.times("grid") == [0, 120, 180, 240, 300, 360]


@pytest.mark.spec("004-26")
async def test_anchor_end_is_the_letter_of_the_original(world: World) -> None:
    world.service("a", takes=2, anchor="end")
    await world.start()
    await world.until(6 * HOUR + 1)
    # Ends at :02, so 59:58 have passed at the next check.
    assert world.times("a") == [0, 2 * HOUR, 4 * HOUR, 6 * HOUR]


async def test_a_new_interval_begins_a_new_grid(world: World) -> None:
    world.service("a", anchor="grid")
    await world.start("a=10m", interval="auto")
    await world.until(25 * MINUTE)
    await world.node.schedule("main", ["a=7m"])
    await world.until(60 * MINUTE)
    assert world.times("a") == [0, 600, 1200, *(1200 + n * 420 for n in range(1, 6))]


# Checks


async def test_auto_wakes_exactly_when_the_next_service_is_due(world: World) -> None:
    world.service("a", every_s=7.5)
    world.service("b", every_s=100.0)
    await world.start(interval="auto")
    await world.until(301)
    assert world.times("a") == [n * 7.5 for n in range(41)]
    assert world.times("b") == [0, 100, 200, 300]
    assert len(world.happened("checked")) < 60


@pytest.mark.spec("004-19")
async def test_a_cycle_that_overruns_takes_the_next_multiple_after_its_end(world: World) -> None:
    world.service("a", takes=lambda n: 2.5 * HOUR if n == 1 else 1.0, timeout_s=0, overlap="queue")
    world.service("b")
    await world.start()
    await world.until(6 * HOUR + 10)
    assert world.times("a") == [0, HOUR, 4 * HOUR, 5 * HOUR, 6 * HOUR]
    assert world.times("b") == [1, 3.5 * HOUR, 4 * HOUR + 1, 5 * HOUR + 1, 6 * HOUR + 1]
    assert (await world.verdicts("a"))[2] == (2 * HOUR, "coalesced", "one run for all", 2)


async def test_slots_between_two_checks_are_one_run_and_one_line(world: World) -> None:
    world.service("a", every_s=MINUTE)
    await world.start(interval="10m")
    await world.until(20 * MINUTE + 1)
    assert world.times("a") == [0, 600, 1200]
    assert await world.verdicts("a") == [
        (0, "done", "", 1),
        (60, "coalesced", "one run for all", 9),
        (600, "done", "", 1),
        (660, "coalesced", "one run for all", 9),
        (1200, "done", "", 1),
    ]


# Missed while down


async def down(world: World, hours: float, interval: str, **options: object) -> None:
    """Run once at ten, be away for hours, and come back."""
    world.service("a", every_s=HOUR, **options)
    await world.start(interval=interval)
    await world.until(1)
    await world.crash()
    await world.until(hours * HOUR)
    await world.boot()


@pytest.mark.parametrize("interval", ["1h", "auto"])
async def test_missed_once_is_one_run_for_all_that_was_missed(world: World, interval: str) -> None:
    await down(world, 5.5, interval)
    await world.until(5.9 * HOUR)
    assert world.times("a") == [0, 5.5 * HOUR]
    assert (await world.verdicts("a"))[1:] == [(HOUR, "missed", "node down", 4), (5 * HOUR, "done", "", 1)]


@pytest.mark.parametrize("interval", ["1h", "auto"])
async def test_missed_skip_makes_up_for_nothing(world: World, interval: str) -> None:
    await down(world, 5.5, interval, missed="skip")
    await world.until(5.9 * HOUR)
    assert world.times("a") == [0]
    assert (await world.verdicts("a"))[1:] == [(HOUR, "missed", "node down", 5)]
    await world.until(7.6 * HOUR)
    assert world.times("a")[1] in (6 * HOUR, 6.5 * HOUR)


@pytest.mark.parametrize("interval", ["1h", "auto"])
async def test_missed_all_runs_each_slot_spread_out_up_to_the_limit(world: World, interval: str) -> None:
    await down(world, 20.5, interval, missed="all", missed_limit=4)
    await world.until(20.9 * HOUR)
    times = world.times("a")[1:]
    assert [line.planned - TEN for line in world.lines[1:]] == [17 * HOUR, 18 * HOUR, 19 * HOUR, 20 * HOUR]
    assert all(later - sooner >= 1 for sooner, later in itertools.pairwise(times))
    verdicts = await world.verdicts("a")
    assert verdicts[1] == (HOUR, "missed", "more than missed_limit", 16)
    assert [verdict[1] for verdict in verdicts[2:]] == ["done"] * 4
    await world.until(23 * HOUR)
    assert (await world.status())["next_check"] in (TEN + 23.5 * HOUR, TEN + 24 * HOUR)


async def test_missed_all_holds_although_new_slots_come_meanwhile(world: World) -> None:
    world.service("a", every_s=1.0, missed="all", missed_limit=10)
    await world.start(interval="auto")
    await world.until(1.5)
    await world.crash()
    await world.until(8.5)
    await world.boot()
    await world.until(40)
    planned = [line.planned - TEN for line in world.lines]
    assert planned[:9] == [0, 1, 2, 3, 4, 5, 6, 7, 8]


async def test_catching_up_does_not_move_the_beat(world: World) -> None:
    world.service("a", cron="0 * * * *", timezone="UTC", missed="all")
    world.service("b", every_s=HOUR)
    await world.start(interval="1h")
    await world.until(1)
    await world.crash()
    await world.until(5.5 * HOUR)
    await world.boot()
    await world.until(9 * HOUR)
    assert world.times("b") == [0, 5.5 * HOUR, 6.5 * HOUR, 7.5 * HOUR, 8.5 * HOUR]


async def test_a_failing_catch_up_is_not_looked_at_every_second(world: World) -> None:
    world.service("a", every_s=DAY, fails=lambda n: n > 0)
    await world.start(interval="1h")
    await world.until(1)
    await world.crash()
    await world.until(2.5 * DAY)
    await world.boot()
    await world.until(3 * DAY)
    assert len(world.happened("checked")) < 60


# Clocks


@pytest.mark.spec("R4-05")
@pytest.mark.parametrize("interval", ["10m", "auto"])
@pytest.mark.parametrize("step", [HOUR, -HOUR, 365 * DAY, -365 * DAY, 90.0, -90.0])
async def test_a_clock_that_is_set_does_not_disturb_intervals(world: World, interval: str, step: float) -> None:
    world.service("a", every_s=10 * MINUTE)
    world.service("b", every_s=10 * MINUTE)
    await world.start("a", interval=interval)
    await world.node.start("second", interval)
    await world.node.schedule("second", ["b"])
    monotonic = world.clock.monotonic
    await world.clock.sleep(25 * MINUTE)
    world.clock.step(step)
    before = len(world.runs("a")), monotonic()
    await world.clock.sleep(60 * MINUTE)
    for name in ("a", "b"):
        gaps = [
            (later.start - sooner.start) - (step if index == before[0] - 1 else 0)
            for index, (sooner, later) in enumerate(zip(world.runs(name), world.runs(name)[1:], strict=False))
        ]
        assert len(gaps) == 8
        assert all(gap == pytest.approx(10 * MINUTE, abs=1e-3) for gap in gaps), (name, gaps)


@pytest.mark.parametrize("step", [2 * HOUR, -2 * HOUR])
async def test_a_clock_that_is_set_while_a_service_runs_does_not_disturb_it_or_those_behind_it(
    world: World, step: float
) -> None:
    world.service("a", takes=100)
    world.service("b")
    await world.start(interval="30m")
    await world.clock.sleep(50)
    world.clock.step(step)
    await world.clock.sleep(100)
    assert world.order == ["a", "b"]
    await world.clock.sleep(30 * MINUTE)
    assert world.order == ["a", "b", "a", "b"]
    assert world.runs("a")[1].start - step == pytest.approx(TEN + 30 * MINUTE)


async def test_a_clock_that_is_set_forward_while_a_service_runs_invents_no_slots_behind_it(world: World) -> None:
    for name, takes in (("a", 100), ("b", 0)):
        world.service(name, takes=takes, every_s=10 * MINUTE, anchor="grid")
    await world.start(interval="auto")
    await world.clock.sleep(10 * MINUTE + 50)  # in the second cycle, while a runs
    world.clock.step(HOUR)
    await world.clock.sleep(20 * MINUTE)
    assert {verdict for _, verdict, _, _ in await world.verdicts("b")} == {"done"}


async def test_a_cycle_that_is_resumed_after_the_clock_was_set_back_gives_out_no_slot_to_come(world: World) -> None:
    world.service("a", takes=100, every_s=10 * MINUTE)
    world.service("b", every_s=10 * MINUTE)
    await world.start(interval="auto")
    await world.until(50)
    await world.crash()
    world.clock.step(-HOUR)  # while nobody watched
    await world.boot()
    await world.clock.sleep(30 * MINUTE)
    assert len(world.runs("b")) == 3
    assert all(line.planned <= line.start for line in world.lines)


async def test_what_is_not_repeated_after_a_crash_is_not_if_the_clock_was_set_in_its_cycle_either(world: World) -> None:
    world.service("a", takes=10, every_s=10 * MINUTE)
    world.service("b", takes=100, every_s=10 * MINUTE, on_crash="skip")
    await world.start(interval="auto")
    await world.clock.sleep(10 * MINUTE + 5)  # in the second cycle, while a runs
    world.clock.step(2)
    await world.clock.sleep(10)  # b runs
    await world.crash()
    await world.boot()
    await world.clock.sleep(MINUTE)
    assert len(world.runs("b")) == 2
    assert (await world.verdicts("b"))[-1][1:3] == ("skipped", "interrupted")


async def test_a_service_is_not_begun_while_its_row_is_moved_along_with_the_clock(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.service("once", takes=100, every_s=10 * MINUTE, on_crash="skip")
    await world.start("once", interval="auto")
    await world.node.schedule("second", ["once=10m"])  # it is shared, and nobody else runs it
    await world.until(9 * MINUTE)
    store, timetable = world.node.store, world.node.site.workshop.timetable
    load, save, moving = store.load, store.save, list[asyncio.Task[None]]()

    async def step_meanwhile(table: str) -> dict[str, Record]:
        if table == "scheduler_state" and not moving:
            world.clock.step(HOUR)
            monkeypatch.setattr(store, "save", slowly)
            moving.append(asyncio.ensure_future(timetable.follow_clock()))
            await asyncio.sleep(0)
        return await load(table)

    async def slowly(changes: Sequence[tuple[str, str, Record | None]], *, rights: Sequence[Right] = ()) -> None:
        monkeypatch.setattr(store, "save", save)
        await world.clock.sleep(1.0)
        await save(changes, rights=rights)

    monkeypatch.setattr(store, "load", step_meanwhile)
    await world.clock.sleep(MINUTE + 10)
    assert [(line.start, line.planned) for line in world.lines[1:]] == [(TEN + HOUR + 601, TEN + HOUR + 600)]
    await world.crash()
    await world.boot()
    await world.clock.sleep(MINUTE)
    assert len(world.lines) == 2
    assert (await world.verdicts("once"))[-1][1:3] == ("skipped", "interrupted")


@pytest.mark.parametrize(
    "timing",
    [
        {"cron": "0 * * * *", "timezone": "UTC"},
        {"every_s": HOUR},
        {"every_s": HOUR, "anchor": "end"},
        {"every_s": HOUR, "anchor": "grid"},
    ],
    ids=["cron", "slot", "end", "grid"],
)
@pytest.mark.parametrize("interval", ["10m", "auto"])
async def test_a_stored_time_in_the_future_freezes_nothing(
    world: World, timing: dict[str, object], interval: str
) -> None:
    world.service("a", **timing)
    await world.start(interval=interval)
    await world.clock.sleep(HOUR + 1)
    await world.crash()
    world.clock.step(-365 * DAY)  # while nobody watched
    before = len(world.lines)
    await world.boot()
    await world.clock.sleep(5 * HOUR)
    assert 4 <= len(world.lines) - before <= 6
    assert world.happened("clock_behind")


def test_a_calendar_service_runs_once_for_a_slot_though_the_clock_goes_over_it_twice() -> None:
    world = world_at(2026, 3, 2, 2)

    async def main() -> None:
        world.service("nightly", cron="30 2 * * *", timezone="UTC")
        await world.start(interval="auto")
        await world.clock.sleep(35 * MINUTE)
        world.clock.step(-HOUR)
        await world.clock.sleep(3 * DAY)
        assert [line.planned for line in world.lines] == sorted({line.planned for line in world.lines})
        assert len(world.lines) == 3

    world.clock.run(main)


@pytest.mark.parametrize("interval", ["10m", "auto"])
async def test_a_slot_that_is_tried_again_after_the_clock_was_set_back_freezes_nothing(
    world: World, interval: str
) -> None:
    world.service("a", cron="0 * * * *", timezone="UTC", fails=lambda n: n == 0)
    await world.start(interval=interval)
    await world.clock.sleep(0.5)  # it has failed
    world.clock.step(-365 * DAY)
    await world.clock.sleep(5 * HOUR)
    assert [line.attempt for line in world.lines] == [1, 2, 1, 1, 1, 1]


@pytest.mark.parametrize("interval", ["10m", "auto"])
async def test_a_slot_that_is_given_up_after_the_clock_was_set_back_freezes_nothing(
    world: World, interval: str
) -> None:
    world.service("a", cron="0 * * * *", timezone="UTC", fails=lambda n: n in (1, 2), max_attempts=2)
    await world.start(interval=interval)
    await world.clock.sleep(MINUTE)
    world.clock.step(365 * DAY)
    await world.event("service_ended", 2)
    world.clock.step(-365 * DAY)
    await world.clock.sleep(5 * HOUR)
    assert [line.attempt for line in world.lines] == [1, 1, 2, 1, 1, 1, 1]  # the second try waits an hour at most


async def test_a_clock_set_forward_over_a_calendar_slot_runs_it_once(world: World) -> None:
    world.service("a", cron="0 12 * * *", timezone="UTC")
    await world.start(interval="auto")
    await world.clock.sleep(60)
    world.clock.step(3 * HOUR)
    await world.clock.sleep(2 * DAY)
    assert len(world.lines) == 3


async def test_a_never_run_calendar_service_is_not_left_in_a_wrong_year(world: World) -> None:
    world.service("a", cron="0 12 * * *", timezone="UTC")
    await world.start(interval="auto")
    await world.clock.sleep(60)
    world.clock.step(-4 * 365 * DAY)
    await world.clock.sleep(3 * DAY)
    assert len(world.lines) == 3


def test_spring_forward_runs_a_time_that_does_not_exist_after_the_gap() -> None:
    world = world_at(2026, 3, 28, 0, zone=BERLIN)

    async def main() -> None:
        world.service("nightly", cron="30 2 * * *", timezone="Europe/Berlin")
        world.service("hourly", every_s=HOUR)
        await world.start(interval="auto")
        await world.clock.sleep(3 * DAY)
        assert local(world, "nightly", BERLIN) == ["03-28 02:30 +0100", "03-29 03:00 +0200", "03-30 02:30 +0200"]
        gaps = {b.start - a.start for a, b in zip(world.runs("hourly"), world.runs("hourly")[1:], strict=False)}
        assert gaps == {HOUR}

    world.clock.run(main)


def test_autumn_runs_a_time_that_exists_twice_once() -> None:
    world = world_at(2026, 10, 24, 0, zone=BERLIN)

    async def main() -> None:
        world.service("nightly", cron="30 2 * * *", timezone="Europe/Berlin")
        await world.start(interval="10m")
        await world.clock.sleep(3 * DAY)
        assert local(world, "nightly", BERLIN) == ["10-24 02:30 +0200", "10-25 02:30 +0200", "10-26 02:30 +0100"]
        assert {slot.verdict for slot in await world.slots("nightly")} == {"done"}

    world.clock.run(main)


def test_a_leap_day_comes_every_four_years() -> None:
    world = world_at(2026, 1, 1)

    async def main() -> None:
        world.clock.slice_s = 1000 * DAY
        world.service("leap", cron="0 0 29 2 *", timezone="UTC")
        await world.start(interval="auto")
        await world.clock.sleep(9 * 365 * DAY)
        assert local(world, "leap", ZoneInfo("UTC")) == ["02-29 00:00 +0000", "02-29 00:00 +0000"]

    world.clock.run(main)


async def test_jitter_delays_a_run_and_moves_no_slot(world: World) -> None:
    world.service("a", every_s=HOUR, jitter_s=300.0)
    await world.start(interval="auto")
    await world.until(100 * HOUR)
    late = [line.start - line.planned for line in world.lines]
    assert all(0 <= seconds <= 300 for seconds in late)
    assert max(late) - min(late) > 150
    assert [line.planned - TEN for line in world.lines] == [n * HOUR for n in range(len(late))]
