"""Issue 5: one owner of a scheduler among many nodes, and others that stand by and take over."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from raptor.errors import NotWritten
from raptor.events import Events
from raptor.rows import LEASE_S, Definition, SchedulerState, ServiceTiming
from raptor.scheduler import Scheduler
from raptor.state.base import BEAT_S, Presence, Record
from raptor.tenure import Tenure
from raptor.timetable import Timetable
from tests.designs.many_world import ManyWorld, One
from tests.designs.world import HOUR


async def test_of_two_nodes_one_owns_the_scheduler_and_the_other_stands_by(many: ManyWorld) -> None:
    many.service("work")
    one = await many.start("one", "work")
    two = await many.start("two")
    await many.until(3 * HOUR + 1)
    assert many.runs("work") == [("one", 0.0), ("one", HOUR), ("one", 2 * HOUR), ("one", 3 * HOUR)]
    assert (await one.state(), await two.state()) == ("running", "standby")
    (standby,) = (await two.status("main"))["schedulers"]
    assert standby["owner"] == (await one.status("main"))["schedulers"][0]["owner"]
    assert len(two.happened("standing_by")) == 1


async def test_when_the_owner_dies_a_standby_takes_over_within_two_heartbeats(many: ManyWorld) -> None:
    many.service("work")
    one = await many.start("one", "work", interval="1m")
    two = await many.start("two")
    await many.until(62)
    await many.crash(one)
    await many.until(62 + 2 * BEAT_S + 1)
    assert await two.state() == "running"
    assert two.happened("taken_over")
    await many.until(600)
    slots = many.slots("work")
    assert slots == sorted(set(slots))
    assert {node for node, start in many.runs("work") if start > 62} == {"two"}


@pytest.mark.parametrize("later", range(0, 24, 2))
async def test_two_nodes_that_define_and_start_it_at_once_both_stay(many: ManyWorld, later: int) -> None:
    """Neither of them undoes what the other wrote, nor takes its own news for an order to end."""
    many.service("work")

    async def set_up(node: One, turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        await node.schedule("main", ["work=1m"])
        await node.start("main")

    nodes = [await many.boot("one"), await many.boot("two")]
    await asyncio.gather(set_up(nodes[0], 0), set_up(nodes[1], later))
    await many.until(5)
    assert sorted([await node.state() for node in nodes]) == ["running", "standby"]
    (owner,) = [node for node in nodes if await node.state() == "running"]
    await many.crash(owner)
    await many.until(5 + 2 * BEAT_S + 1)
    assert await many.nodes[0].state() == "running"


async def test_changes_of_a_scheduler_at_the_same_time_are_all_kept(many: ManyWorld) -> None:
    for name in "abc":
        many.service(name)
    one = await many.start("one", "a", interval="1h")
    two = await many.start("two")
    await asyncio.gather(
        many.elsewhere("schedule", name="main", services=["b"], add=True),
        many.elsewhere("schedule", name="main", services=["c"], add=True),
        one.pause("main"),
        two.pause("a"),
    )
    await many.until(5)
    kept = (await many.image.load("definitions"))["main"]
    assert isinstance(kept, Definition)
    assert {entry.name for entry in kept.services} == {"a", "b", "c"}
    assert (kept.paused, kept.paused_services, kept.should_run) == (True, ("a",), True)


async def test_a_cycle_goes_on_where_the_dead_owner_left_it(many: ManyWorld) -> None:
    for name in ("a", "b", "c"):
        many.service(name, takes=10.0)
    one = await many.start("one", "a", "b", "c")
    two = await many.start("two")
    await many.until(15)  # in the middle of b
    await many.crash(one)
    await many.until(60)
    assert await two.state() == "running"
    assert [(line.name, line.node) for line in many.lines] == [("a", "one"), ("b", "one"), ("b", "two"), ("c", "two")]
    assert two.happened("cycle_resumed")


async def test_a_service_that_must_not_run_twice_is_skipped_at_the_take_over(many: ManyWorld) -> None:
    many.service("once", takes=10.0, on_crash="skip")
    many.service("then")
    one = await many.start("one", "once", "then")
    await many.start("two")
    await many.until(5)
    await many.crash(one)
    await many.until(60)
    assert [(line.name, line.node) for line in many.lines] == [("once", "one"), ("then", "two")]


async def test_a_first_run_that_was_broken_off_is_repeated_though_its_right_was_just_seen_elsewhere(
    many: ManyWorld,
) -> None:
    many.service("work", takes=200.0)
    one = await many.start("one", "work")
    await many.until(3)  # so that their heartbeats do not meet
    two = await many.start("two")
    await many.until(7)
    one.door.torn = True
    one.root.kill()  # and nobody says so: its lease ends at 65
    many.nodes.remove(one)
    await many.until(64)
    await two.schedule("main", ["work"])  # which looks who has what
    await many.until(66)
    assert [(line.node, line.planned) for line in many.lines] == [("one", 0.0), ("two", 0.0)]


async def test_one_that_must_not_run_twice_is_not_run_by_a_scheduler_that_waited_for_its_dead_owner(
    many: ManyWorld,
) -> None:
    many.service("work", takes=100.0, on_crash="skip", overlap="queue")
    one = await many.start("one", "work")
    two = await many.boot("two")
    await two.start("beat", "1h")
    await two.schedule("beat", ["work"])
    await many.until(10)
    await many.crash(one)
    await many.until(200)
    assert [line.node for line in many.lines] == ["one"]
    (slot,) = await many.image.slots("work", since=0, until=1e12)
    assert (slot.verdict, slot.reason) == ("skipped", "interrupted")


async def test_one_that_must_not_run_twice_is_skipped_even_if_its_right_is_held_for_a_while(many: ManyWorld) -> None:
    many.service("once", takes=10.0, on_crash="skip")
    many.service("then")
    one = await many.start("one", "once", "then")
    two = await many.start("two")
    await many.until(4)
    await many.crash(one)
    # As if the heartbeat of one that was cut off had come just after its scheduler was taken over.
    now = many.clock.now() + BEAT_S + 0.001
    taken = await many.image.claim(["service:once"], owner="late", now=now, lease_s=30.0)
    assert taken["service:once"].owner == "late"
    await many.until(30)
    assert [(line.name, line.node) for line in many.lines] == [("once", "one")]
    await many.until(60)
    assert [(line.name, line.node) for line in many.lines] == [("once", "one"), ("then", "two")]
    assert [slot.reason for slot in await many.image.slots("once", since=0, until=now)] == ["interrupted"]
    assert not two.happened("child_ended")


async def test_a_node_that_waits_for_the_right_of_another_ends_within_its_grace(many: ManyWorld) -> None:
    many.service("once", takes=10.0, on_crash="skip")
    one = await many.start("one", "once")
    two = await many.start("two")
    await many.until(4)
    await many.crash(one)
    now = many.clock.now() + BEAT_S + 0.001
    await many.image.claim(["service:once"], owner="late", now=now, lease_s=3000.0)
    await many.until(30)
    began = many.clock.now()
    await many.stop(two)
    assert many.clock.now() - began <= 6.0
    assert await many.image.slots("once", since=0, until=now) == []  # left to whoever comes next


async def test_an_orderly_end_hands_over_within_a_heartbeat(many: ManyWorld) -> None:
    many.service("work", takes=2.0)
    one = await many.start("one", "work", interval="10s")
    two = await many.start("two")
    await many.until(31)
    await many.stop(one)
    await many.until(31 + 5 + BEAT_S + 0.1)
    assert await two.state() == "running"
    assert (await many.image.load("definitions"))["main"].should_run  # type: ignore[union-attr]
    await many.until(100)
    slots = many.slots("work")
    assert slots == sorted(set(slots))


async def test_the_late_result_of_a_paused_owner_is_refused(many: ManyWorld) -> None:
    many.service("work", takes=100.0)
    one = await many.start("one", "work")
    two = await many.start("two")
    await many.until(10)
    one.door.open.clear()  # it stands still as far as others can see
    await many.until(90)
    assert await two.state() == "running"
    assert [node for node, _ in many.runs("work")] == ["one", "two"]
    one.door.open.set()
    await many.until(99)
    assert await one.state() == "standby"
    assert one.happened("ownership_lost")
    await many.until(300)
    assert [line.end is not None for line in many.lines] == [False, True]  # what it ran was broken off
    (run,) = [run for run in await many.image.history("work") if run.outcome == "ok"]
    assert "two" in run.info
    assert one.root.alive


async def test_one_that_stands_by_after_it_lost_its_scheduler_is_not_stalled(many: ManyWorld) -> None:
    many.service("work")
    one = await many.start("one", "work", interval="5m")
    two = await many.start("two")
    await many.until(10)
    one.door.open.clear()
    await many.until(90)
    one.door.open.set()
    await many.until(310)  # the check that it had armed before is long past
    assert (await one.state(), await two.state()) == ("standby", "running")
    ref = one.runtime.whereis("scheduler:main")
    assert ref is not None
    assert isinstance(ref.actor, Scheduler)
    assert ref.actor.overdue is None


async def test_a_write_that_comes_before_the_loss_is_noticed_is_refused_too(many: ManyWorld) -> None:
    many.service("work", takes=85.0)
    one = await many.start("one", "work")
    two = await many.start("two")
    await many.until(10)
    one.door.open.clear()
    await many.until(85.5)  # its run has ended, and its result waits at the door
    assert await two.state() == "running"
    one.door.open.set()
    await many.until(86)
    assert one.happened("write_refused")
    assert "work" not in await many.image.load("service_timing")
    await many.until(300)
    assert [slot.verdict for slot in await many.image.slots("work", since=0, until=1e12)] == ["done"]


async def test_whoever_is_refused_a_write_stands_back_at_once(many: ManyWorld) -> None:
    many.service("work", takes=7.0)
    one = await many.start("one", "work")
    await many.until(6)  # between two heartbeats
    now = many.clock.now() + 10 * LEASE_S
    taken = await many.image.claim(["service:work"], owner="late", now=now, lease_s=1.0)
    assert taken["service:work"].owner == "late"
    await many.until(7.1)
    assert one.happened("write_refused")
    assert one.happened("ownership_lost")


@pytest.mark.parametrize("later", [False, True], ids=["before it is given out", "before it begins"])
async def test_a_node_that_stood_still_does_not_begin_what_another_took_over(
    many: ManyWorld, monkeypatch: pytest.MonkeyPatch, later: bool
) -> None:
    many.service("work")
    one = await many.start("one", "work", interval="1m")
    two = await many.start("two")
    await many.until(57)
    save = many.image.save

    async def save_and_stand_still(changes: Any, *, rights: Any = ()) -> Any:
        answer = await save(changes, rights=rights)
        one.door.open.clear()  # nothing of it is heard any more
        await one.door.open.wait()
        return answer

    async def let_pass(tenure: Tenure) -> None:
        pass

    one.door.save = save_and_stand_still
    if later:
        monkeypatch.setattr(Tenure, "confirm", let_pass)
    await many.until(150)
    assert await two.state() == "running"
    del one.door.save
    one.door.open.set()
    await many.until(200)
    assert [node for node, _ in many.runs("work")] == ["one", "two", "two"]
    assert len(many.slots("work")) == len(set(many.slots("work")))
    assert (await one.state(), await two.state()) == ("standby", "running")


async def test_what_waited_for_a_store_begins_once_its_node_has_shown_itself(many: ManyWorld) -> None:
    """Nobody else was there: its slot is not given up, though it must not be repeated."""
    many.service("work", on_crash="skip")
    one = await many.start("one", "work", interval="1m")

    async def fail(*args: object, **kwargs: object) -> None:
        raise NotWritten("unreachable", "the image", "nobody answers")

    await many.until(59)
    one.door.save = fail  # what begins at 60
    await many.until(61)
    one.door.appear = fail
    await many.until(300)
    del one.door.save, one.door.appear
    await many.until(330)
    assert many.slots("work") == [0.0, 60.0]
    assert not one.happened("ownership_lost")


async def test_a_node_that_could_not_show_itself_starts_nothing_before_it_has(many: ManyWorld) -> None:
    many.service("work")
    one = await many.start("one", "work", interval="1m")
    await many.until(57)
    appear = many.image.appear

    async def fail(*args: object, **kwargs: object) -> list[Presence]:
        raise NotWritten("unreachable", "the image", "nobody answers")

    many.image.appear = fail  # type: ignore[method-assign]
    await many.until(62)
    assert many.runs("work") == [("one", 0.0)]
    many.image.appear = appear  # type: ignore[method-assign]
    await many.until(70)
    assert many.runs("work") == [("one", 0.0), ("one", 65.0)]
    assert await one.state() == "running"


async def test_there_are_never_two_owners(many: ManyWorld) -> None:
    """Whoever writes the state of a cycle holds the right at its fence."""
    many.service("work", takes=3.0)
    nodes = [await many.start(label, *(["work"] if label == "0" else []), interval="10s") for label in "012"]
    fences: list[tuple[str, int]] = []
    save = many.image.save

    async def noting(changes: object, *, rights: object = ()) -> None:
        await save(changes, rights=rights)  # type: ignore[arg-type]
        for table, key, record in changes:  # type: ignore[attr-defined]
            if table == "scheduler_state":
                fences.extend((right.key, right.fence) for right in rights if right.key == f"scheduler:{key}")  # type: ignore[attr-defined]
                assert record is None or isinstance(record, SchedulerState)

    many.image.save = noting  # type: ignore[method-assign]
    for turn in range(12):
        node = nodes[turn % 3]
        await many.until(100 + turn * 100)
        node.door.open.clear()
        await many.until(100 + turn * 100 + 80)
        node.door.open.set()
    await many.until(1500)
    assert fences == sorted(fences)
    assert len({fence for _, fence in fences}) > 3
    slots = [slot.planned for slot in await many.image.slots("work", since=0, until=1e12)]
    assert slots == sorted(set(slots))
    assert all(node.root.alive for node in nodes)


@pytest.mark.parametrize("deaf", [False, True])
async def test_a_service_on_the_lists_of_two_nodes_runs_once_for_each_slot(many: ManyWorld, deaf: bool) -> None:
    many.deaf = deaf
    many.service("shared", takes=1.0, every_s=10.0)
    await many.start("one", "shared", interval="auto", name="first")
    await many.start("two", "shared", interval="auto", name="second")
    await many.until(605)
    slots = many.slots("shared")
    assert slots == [float(slot) for slot in range(0, 601, 10)]


@pytest.mark.parametrize("overlap", ["skip", "queue"])
async def test_a_long_service_never_runs_on_two_nodes_at_a_time(many: ManyWorld, overlap: str) -> None:
    many.service("long", takes=25.0, every_s=10.0, overlap=overlap)
    await many.start("one", "long", interval="10s", name="first")
    await many.start("two", "long", interval="7s", name="second")
    await many.until(600)
    spans = sorted((line.start, line.end) for line in many.lines if line.end is not None)
    assert len(spans) > 10
    for (_, end), (start, _) in pairwise(spans):
        assert end is not None
        assert start >= end


async def test_a_scheduler_that_waits_for_its_restart_can_be_stopped_from_another_node(many: ManyWorld) -> None:
    many.service("work")
    one, two = await many.start("one", "work", interval="1m"), await many.boot("two")
    for _ in range(4):
        while (running := one.scheduler("main")) is None:
            await many.clock.sleep(0.01)
        running.kill()
        await running.wait()
    assert one.scheduler("main") is None
    await two.stop("main")
    await many.until(600)
    assert one.scheduler("main") is None
    assert many.runs("work") == [("one", 0.0)]


async def test_a_node_starts_only_what_it_was_asked_to_start(many: ManyWorld) -> None:
    many.service("work")
    await many.start("one", "work")
    two = await many.boot("two")
    await many.until(10)
    assert two.scheduler("main") is None


async def test_rows_that_are_read_do_not_hide_what_was_written_meanwhile(many: ManyWorld) -> None:
    timetable = Timetable(many.image, many.clock, Events(many.clock))
    old, new = ServiceTiming(next_due=1.0), ServiceTiming(next_due=2.0)
    await timetable.save("a", old)
    load, read, go_on = many.image.load, asyncio.Event(), asyncio.Event()

    async def slowly(table: str) -> dict[str, Record]:
        rows = await load(table)
        read.set()
        await go_on.wait()
        return rows

    many.image.load = slowly  # type: ignore[method-assign]
    loading = asyncio.ensure_future(timetable.load())
    await read.wait()
    await timetable.save("a", new)
    go_on.set()
    await loading
    assert timetable.row("a") == new


async def test_of_two_who_read_rows_the_first_to_end_leaves_the_other_its_notes(many: ManyWorld) -> None:
    timetable = Timetable(many.image, many.clock, Events(many.clock))
    old, new = ServiceTiming(next_due=1.0), ServiceTiming(next_due=2.0)
    await timetable.save("a", old)
    load, doors = many.image.load, [asyncio.Event(), asyncio.Event()]
    waiting = iter(doors)

    async def slowly(table: str) -> dict[str, Record]:
        rows, door = await load(table), next(waiting)
        await door.wait()
        return rows

    many.image.load = slowly  # type: ignore[method-assign]
    first, second = (asyncio.ensure_future(timetable.load()) for _ in doors)
    await asyncio.sleep(0)
    doors[1].set()
    await second
    await timetable.save("a", new)
    doors[0].set()
    await first
    assert timetable.row("a") == new
