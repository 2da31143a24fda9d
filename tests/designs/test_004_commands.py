"""Design 004: what people do to a running scheduler, and services that two schedulers share."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raptor.clock import VirtualClock
from raptor.commands import COMMANDS, exit_code
from raptor.commands.holding import held
from raptor.errors import AlreadyRunning, BadInput, NoSuchName, NotRunning
from raptor.glance import finish
from raptor.state.base import Right
from raptor.supervisor import Supervisor
from raptor.task import Run, Slot
from tests.designs.world import DAY, HOUR, MINUTE, TEN, World

# schedule


@pytest.mark.spec("004-12")
async def test_schedule_starts_a_cycle_at_once_when_the_scheduler_is_idle(world: World) -> None:
    world.service("a")
    world.service("b")
    await world.start("a")
    await world.until(10 * MINUTE)
    await world.node.schedule("main", ["a", "b"])
    await world.until(10 * MINUTE + 1)
    assert (world.times("a"), world.times("b")) == ([0], [600])
    assert (await world.status())["next_check"] == TEN + 600 + HOUR


@pytest.mark.spec("004-12")
async def test_scheduling_in_mid_cycle_takes_effect_at_the_next_and_a_removed_service_is_skipped(world: World) -> None:
    for name in ("a", "b", "c", "d"):
        world.service(name, takes=10)
    await world.start("a", "b", "c")
    await world.until(15)
    await world.node.schedule("main", ["d", "a", "b"])
    await world.until(100)
    assert world.order == ["a", "b"]
    assert await world.verdicts("c") == [(0, "skipped", "removed", 1)]
    assert ["c", "error", "removed"] in (await world.status())["results"]
    [done] = world.happened("cycle_done")
    assert ("c", "skipped") in [(result.service, result.verdict) for result in done.facts["results"]]
    await world.until(HOUR + 100)
    assert world.order == ["a", "b", "d", "a", "b"]


@pytest.mark.spec("004-34")
async def test_schedule_adds_removes_and_refuses_what_it_does_not_know(world: World) -> None:
    world.service("report")
    world.service("sync")
    await world.start("report")
    node = world.node
    await node.call("schedule", name="main", services=["sync=2h"], add=True)
    assert [(entry.name, entry.every_s) for entry in (await world.definition()).services] == [
        ("report", None),
        ("sync", 7200.0),
    ]
    await node.call("schedule", name="main", services=["report"], remove=True)
    assert [entry.name for entry in (await world.definition()).services] == ["sync"]
    with pytest.raises(NoSuchName, match="report") as unknown:
        await node.schedule("main", ["reprot"])
    assert exit_code(unknown.value) == 4
    with pytest.raises(BadInput):
        await node.schedule("main", ["sync=3600"])
    with pytest.raises(BadInput, match="twice"):
        await node.schedule("main", ["sync", "sync"])
    assert [entry.name for entry in (await world.definition()).services] == ["sync"]


async def removed_over_slots(world: World, *others: str) -> None:
    """The slot of 11:00 came while its scheduler was stopped, that of 12:00 while nobody there listed it."""
    world.service("report", cron="0 * * * *")
    await world.start("report", interval="auto")
    await world.until(1)
    for name in others:
        await world.node.start(name, "4h")
        await world.node.schedule(name, ["report"])
    await world.node.stop("main")
    await world.until(HOUR + 1)
    await world.node.call("schedule", name="main", services=["report"], remove=True)
    await world.until(2 * HOUR + 1)


@pytest.mark.parametrize("again", ["report", "report=cron 30 * * * *"])
async def test_slots_of_a_calendar_that_came_before_it_was_listed_again_have_their_line(
    world: World, again: str
) -> None:
    await removed_over_slots(world)
    await world.node.call("schedule", name="main", services=[again], add=True)
    first, passed = await world.verdicts("report")
    assert first == (0, "done", "", 1)
    assert passed[:3] == (HOUR, "skipped", "rescheduled")
    await world.node.start("main")
    await world.until(3 * HOUR + 1)
    assert world.times("report") == [0, 3 * HOUR if again == "report" else 2.5 * HOUR]


async def test_a_slot_that_another_scheduler_will_come_to_is_not_skipped_by_listing_its_service(world: World) -> None:
    await removed_over_slots(world, "other")
    await world.node.call("schedule", name="main", services=["report"], add=True)
    assert [verdict for _, verdict, _, _ in await world.verdicts("report")] == ["done"]
    await world.until(4 * HOUR + 10)
    assert [line.scheduler for line in world.runs("report")] == ["main", "other"]
    assert (await world.verdicts("report"))[1] == (HOUR, "coalesced", "one run for all", 3)


async def test_slots_of_an_interval_that_came_before_it_was_changed_have_their_line(world: World) -> None:
    world.service("sync")
    await world.start("sync=10m", interval="auto")
    await world.until(1)
    await world.node.stop("main")
    await world.until(35 * MINUTE)
    await world.node.schedule("main", ["sync=1h"])
    await world.node.start("main")
    await world.until(2 * HOUR)
    assert await world.verdicts("sync") == [
        (0, "done", "", 1),
        (10 * MINUTE, "skipped", "rescheduled", 2),
        (30 * MINUTE, "done", "", 1),
        (90 * MINUTE, "done", "", 1),
    ]


async def test_the_first_slot_of_a_calendar_is_not_lost_with_a_crash_before_the_first_look(world: World) -> None:
    world.service("report", cron="0 * * * *")
    await world.boot()
    await world.node.start("main")
    await world.until(HOUR - 1)
    await world.node.schedule("main", ["report"])
    await world.crash()
    await world.until(HOUR + 60)
    await world.boot()
    await world.until(HOUR + 120)
    assert await world.verdicts("report") == [(HOUR, "done", "", 1)]


async def test_a_calendar_that_is_listed_before_its_scheduler_is_started_has_missed_nothing(world: World) -> None:
    world.service("report", cron="0 * * * *")
    await world.boot()
    await world.node.schedule("main", ["report"])
    await world.until(3 * HOUR + 60)
    await world.node.start("main")
    await world.until(4 * HOUR + 1)
    assert await world.verdicts("report") == [(4 * HOUR, "done", "", 1)]


async def test_listing_a_calendar_service_at_the_moment_of_its_slot_skips_nothing(world: World) -> None:
    world.service("report", cron="0 * * * *")
    await world.start("report", interval="auto")
    await world.until(1)
    await world.node.stop("main")
    await world.node.call("schedule", name="main", services=["report"], remove=True)
    await world.until(HOUR)
    await world.node.call("schedule", name="main", services=["report"], add=True)
    await world.node.start("main")
    await world.until(HOUR + 1)
    assert await world.verdicts("report") == [(0, "done", "", 1), (HOUR, "done", "", 1)]


@pytest.mark.spec("004-33")
async def test_a_scheduler_that_runs_is_not_started_twice_and_an_unknown_one_not_stopped(world: World) -> None:
    world.service("a")
    await world.start()
    with pytest.raises(AlreadyRunning, match=r"^scheduler main runs already: `raptor stop main` stops it") as twice:
        await world.node.start("main", "1h")
    assert exit_code(twice.value) == 5
    with pytest.raises(NoSuchName):
        await world.node.stop("nobody")
    await world.node.stop("main")
    with pytest.raises(NotRunning):
        await world.node.stop("main")
    await world.node.start("main")
    assert (await world.status())["interval_s"] == HOUR


# stop


async def test_a_scheduler_that_waits_for_its_restart_can_be_stopped_and_stays_so(world: World) -> None:
    """What fails again and again waits longer each time: just then somebody wants to stop it."""
    world.service("a", every_s=MINUTE)
    await world.start(interval="auto")
    await world.until(1)
    for _ in range(4):
        while (running := world.node.scheduler("main")) is None:
            await world.clock.sleep(0.01)
        running.kill()
        await running.wait()
    assert world.node.scheduler("main") is None
    await world.node.stop("main")
    with pytest.raises(NotRunning):
        await world.node.stop("main")
    await world.until(10 * MINUTE)
    assert world.times("a") == [0]
    assert (await world.node.status("main"))["schedulers"][0]["state"] == "stopped"
    await world.node.start("main")
    await world.until(10 * MINUTE + 1)
    assert world.times("a") == [0, 10 * MINUTE]


@pytest.mark.spec("R4-01")
async def test_stop_lets_the_current_service_finish_within_the_grace(world: World) -> None:
    for name in ("a", "b"):
        world.service(name, takes=10)
    await world.start()
    await world.until(5)
    await world.node.stop("main")
    assert world.clock.now() - TEN == pytest.approx(10)
    assert world.order == ["a"]
    state = await world.state()
    assert state is not None
    assert (state.services_queue, state.current_service) == (("b",), None)
    assert (await world.node.status("main"))["schedulers"][0]["state"] == "interrupted"
    assert (await world.status())["results"] == [["a", "ok", "result 0"]]
    await world.until(50)
    assert world.order == ["a"]
    await world.node.start("main")
    await world.until(70)
    assert world.order == ["a", "b"]
    assert (await world.status())["next_check"] == TEN + 60 + HOUR


@pytest.mark.parametrize("policy", ["rerun", "skip"])
async def test_stop_breaks_the_current_service_off_once_the_grace_is_over(world: World, policy: str) -> None:
    world.grace_s = 20
    world.service("a", takes=100, on_crash=policy)
    world.service("b")
    await world.start()
    await world.until(5)
    await world.node.stop("main")
    assert world.clock.now() - TEN == pytest.approx(25, abs=2)
    [line] = world.lines
    assert line.end is None
    await world.node.start("main")
    await world.until(200)
    assert world.order == (["a", "a", "b"] if policy == "rerun" else ["a", "b"])
    assert await world.verdicts("a") == [(0, "done", "", 1) if policy == "rerun" else (0, "skipped", "interrupted", 1)]
    outcomes = Counter(run.outcome for run in await world.image.history("a"))
    assert outcomes["interrupted"] == 1


# pause and resume


@pytest.mark.spec("004-13")
@pytest.mark.parametrize("interval", ["1h", "auto"])
async def test_the_slots_of_a_paused_scheduler_are_skipped_and_not_made_up_for(world: World, interval: str) -> None:
    world.service("a", every_s=HOUR)
    await world.start(interval=interval)
    await world.until(1)
    await world.node.pause("main")
    assert (await world.status())["periodic_enabled"] is False
    await world.until(3.5 * HOUR)
    await world.node.resume("main")
    await world.until(5 * HOUR + 1)
    assert world.times("a") == [0, 4 * HOUR, 5 * HOUR]
    assert (await world.verdicts("a"))[1] == (HOUR, "skipped", "paused", 3)


@pytest.mark.parametrize("interval", ["1h", "auto"])
async def test_a_paused_service_is_skipped_while_the_others_run(world: World, interval: str) -> None:
    world.service("a", every_s=HOUR)
    world.service("b", every_s=HOUR)
    await world.start(interval=interval)
    await world.until(1)
    await world.node.pause("a", "maintenance")
    await world.until(2.5 * HOUR)
    await world.crash()
    await world.boot()
    await world.until(3.5 * HOUR)
    await world.node.resume("a")
    await world.until(6 * HOUR)
    assert len(world.runs("b")) in (6, 7)
    assert world.times("a")[1] >= 4 * HOUR
    slots = await world.slots("a")
    assert sum(slot.count for slot in slots if slot.verdict == "skipped") == 3
    assert {slot.reason for slot in slots} == {"", "paused"}


async def test_a_service_that_is_paused_while_it_waits_in_a_cycle_is_skipped(world: World) -> None:
    world.service("a", takes=10)
    world.service("b")
    await world.start()
    await world.until(5)
    await world.node.pause("b")
    await world.until(20)
    assert world.order == ["a"]
    assert await world.verdicts("b") == [(0, "skipped", "paused", 1)]


async def test_nobody_begins_a_service_whose_slots_a_resume_is_closing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.service("a", every_s=HOUR)
    await world.start(interval="auto")
    await world.until(1)
    await world.node.pause("main")
    await world.until(1.5 * HOUR)
    timetable, holders = world.node.site.workshop.timetable, list[str]()
    record = timetable.store.record

    async def noting(slots: Iterable[Slot], runs: Iterable[Run], *, rights: Sequence[Right]) -> None:
        holders.append(timetable.claims["a"].holder)
        await record(slots, runs, rights=rights)

    monkeypatch.setattr(timetable.store, "record", noting)
    await world.node.resume("main")
    assert holders == ["a command"]  # and not the scheduler's own, which it would not mind
    assert not timetable.claims


async def test_nobody_begins_a_service_whose_slots_another_timing_closes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.service("long", every_s=HOUR, takes=100.0)
    world.service("a", every_s=HOUR)
    await world.start("long", "a", interval="auto")
    await world.until(HOUR + 99)
    store = world.node.site.workshop.timetable.store
    record = store.record

    async def slowly(slots: Iterable[Slot], runs: Iterable[Run], *, rights: Sequence[Right] = ()) -> None:
        slots = list(slots)
        await record(slots, runs, rights=rights)
        if any(slot.reason == "rescheduled" for slot in slots):
            await world.clock.sleep(10.0)  # in which the long one ends, and it would be its turn

    monkeypatch.setattr(store, "record", slowly)
    await world.node.schedule("main", ["long", "a=cron 0 * * * *"])
    await world.until(3 * HOUR - 1)
    assert world.times("a") == [100, 2 * HOUR + 100]
    assert [line[1:3] for line in await world.verdicts("a")] == [("done", ""), ("skipped", "rescheduled"), ("done", "")]


async def test_a_cycle_waits_for_a_command_that_holds_its_service(world: World) -> None:
    world.service("a")
    await world.start("a", interval="1h")
    await world.until(HOUR - 1)
    site = world.node.site
    async with held(site, "a") as rights:
        assert rights == ()
        await world.until(HOUR + 1)
        assert world.times("a") == [0]
        async with held(site, "a") as others:
            assert others is None
    await world.until(HOUR + 2)
    assert world.times("a") == [0, HOUR + 1]


@pytest.mark.parametrize("name", ["main", "a"])
async def test_resuming_what_is_not_paused_skips_no_slot(world: World, name: str) -> None:
    world.service("a", every_s=HOUR)
    await world.start(interval="40m")
    await world.until(HOUR + 1)  # a slot has come, and the next check is at 80 minutes
    await world.node.resume(name)
    await world.until(2 * HOUR)
    assert world.times("a") == [0, 80 * MINUTE]
    assert {slot.verdict for slot in await world.slots("a")} == {"done"}


# run


@pytest.mark.spec("R4-12")
async def test_a_run_by_hand_takes_the_claim_and_leaves_the_timing_alone(world: World) -> None:
    world.service("a", takes=10)
    await world.start()
    await world.until(HOUR / 2)
    before = await world.row("a")
    by_hand = asyncio.ensure_future(world.node.run("a"))
    await world.until(HOUR / 2 + 5)
    with pytest.raises(AlreadyRunning, match=r"^service a runs already: a run by hand has it; wait") as held:
        await world.node.run("a")
    assert exit_code(held.value) == 5
    answer = await by_hand
    assert (answer["outcome"], answer["scheduler"], answer["info"]) == ("ok", None, "result 1")
    assert await world.row("a") == before
    await world.until(HOUR + 1)
    assert world.times("a") == [0, HOUR / 2, HOUR]
    assert len(await world.image.history("a")) == 2


@pytest.mark.parametrize("interval", ["1h", "auto"])
async def test_a_slot_of_a_service_that_runs_by_hand_is_skipped(world: World, interval: str) -> None:
    world.service("a", every_s=HOUR, takes=lambda n: 20 * MINUTE if n == 1 else 1.0)
    await world.start(interval=interval)
    await world.until(HOUR - 60)
    await world.node.run("a")
    await world.until(2 * HOUR + 1)
    assert world.times("a") == [0, HOUR - 60, 2 * HOUR]
    assert (await world.verdicts("a"))[1] == (HOUR, "skipped", "overlap", 1)


@pytest.mark.parametrize("interval", ["1h", "auto"])
async def test_a_slot_waits_for_a_run_by_hand_if_it_queues(world: World, interval: str) -> None:
    world.service("a", every_s=HOUR, takes=lambda n: 20 * MINUTE if n == 1 else 1.0, overlap="queue")
    await world.start(interval=interval)
    await world.until(HOUR - 60)
    await world.node.run("a")
    await world.until(2 * HOUR + 1)
    assert world.times("a") == [0, HOUR - 60, HOUR + 19 * MINUTE, 2 * HOUR]


async def test_a_retry_waits_for_a_run_by_hand_and_nothing_spins_meanwhile(world: World) -> None:
    world.service("a", every_s=DAY, takes=lambda n: 100.0 if n == 1 else 1.0, fails=lambda n: n == 0)
    await world.start(interval="1h")
    await world.until(1.5)
    await world.node.run("a")
    await world.until(200)
    assert world.times("a") == [0, 1.5, 101.5]
    assert len(world.happened("checked")) < 6
    assert await world.verdicts("a") == [(0, "done", "", 1)]


# overlap


@pytest.mark.parametrize(("overlap", "times"), [("skip", [0, 2, 4, 6, 8]), ("queue", [0, 1.5, 3, 4.5, 6, 7.5, 9])])
async def test_a_service_slower_than_its_interval_skips_slots_or_queues_one(
    world: World, overlap: str, times: list[float]
) -> None:
    world.service("a", every_s=1.0, takes=1.5, overlap=overlap)
    await world.start(interval="auto")
    await world.until(9.2)
    assert world.times("a") == times
    verdicts = [verdict for _, verdict, _, _ in await world.verdicts("a")]
    assert ("skipped" in verdicts) == (overlap == "skip")


# Shared services


@pytest.mark.spec("004-01", "004-28")
async def test_a_service_of_two_schedulers_has_one_row_and_runs_once_for_a_slot(world: World) -> None:
    world.service("shared", takes=5)
    await world.start("shared", name="one")
    await world.node.start("two", "1h")
    await world.node.schedule("two", ["shared"])
    await world.until(5 * HOUR + 10)
    assert world.times("shared") == [n * HOUR for n in range(6)]
    assert list(await world.image.load("service_timing")) == ["shared"]


@pytest.mark.spec("004-28")
async def test_an_auto_scheduler_whose_only_service_was_held_elsewhere_wakes_when_it_is_free(world: World) -> None:
    world.service("a", every_s=HOUR, takes=10)
    await world.start(interval="auto")
    await world.until(100)
    by_hand = asyncio.ensure_future(world.node.run("a"))
    await world.until(101)
    await world.node.schedule("main", ["a"])  # it plans while the service is held
    await by_hand
    await world.until(3 * HOUR + 1)
    assert world.times("a") == [0, 100, HOUR, 2 * HOUR, 3 * HOUR]


schedules = st.lists(
    st.tuples(
        st.sampled_from(["auto", "7s", "10s", "30s"]),  # how it checks
        st.floats(0, 60).map(lambda at: round(at, 1)),  # when it starts
        st.permutations(["s0", "s1", "s2"]).flatmap(lambda names: st.integers(1, 3).map(lambda n: names[:n])),
    ),
    min_size=2,
    max_size=4,
)


@pytest.mark.spec("004-28")
@settings(max_examples=60, deadline=None)
@given(schedules, st.lists(st.tuples(st.sampled_from([5.0, 10.0, 20.0]), st.floats(0, 25)), min_size=3, max_size=3))
def test_services_that_schedulers_share_never_run_twice_for_a_slot_nor_at_once(
    plan: list[tuple[str, float, list[str]]], services: list[tuple[float, float]]
) -> None:
    clock = VirtualClock(start=TEN)
    world = World(clock)
    for n, (every_s, takes) in enumerate(services):
        world.service(f"s{n}", every_s=every_s, takes=takes)

    async def main() -> None:
        await world.boot()
        for n, (interval, at, names) in enumerate(sorted(plan, key=lambda entry: entry[1])):
            await world.until(at)
            await world.node.start(f"scheduler{n}", interval)
            await world.node.schedule(f"scheduler{n}", names)
        await world.until(400)

    clock.run(main)
    for name in ("s0", "s1", "s2"):
        lines = world.runs(name)
        planned = [line.planned for line in lines]
        assert len(planned) == len(set(planned))
        ended = [line for line in lines if line.end is not None]
        assert all(a.end <= b.start for a, b in zip(ended, lines[1:], strict=False) if a.end is not None)
        assert all(line.start >= line.planned for line in lines)


# Looking, and putting right


@pytest.mark.spec("004-31", "R4-03", "R4-12")
async def test_rows_can_be_looked_up_and_reset(world: World) -> None:
    world.service("a", every_s=DAY, takes=5)
    world.service("b", every_s=DAY, takes=5)
    await world.start()
    await world.until(7)
    node = world.node
    tables = (await node.call("dump"))["tables"]
    assert list(tables["service_timing"]) == ["a"]
    assert tables["scheduler_state"]["main"]["current_service"] == "b"
    one = await node.call("dump", table="service_timing", key="a")
    assert one["tables"]["service_timing"]["a"]["interval_seconds"] == DAY
    await world.until(100)
    status = {line["name"]: line for line in (await node.status())["services"]}
    assert (status["a"]["next_due"], status["a"]["last_result"]) == (TEN + DAY, "ok")
    await node.call("reset", service="a")
    row = await world.row("a")
    assert row.last_run_timestamp == int(TEN + 5)  # the record stays
    await world.until(HOUR + 10)
    assert world.times("a") == [0, HOUR]
    with pytest.raises(NoSuchName):
        await node.call("reset", service="nobody")


@pytest.mark.spec("R4-12")
async def test_the_rest_of_a_cycle_can_be_dropped_while_the_scheduler_is_stopped(world: World) -> None:
    for name in ("a", "b"):
        world.service(name, takes=10)
    await world.start()
    await world.until(5)
    with pytest.raises(AlreadyRunning, match=r"^scheduler main runs already: `raptor stop main` first$"):
        await world.node.call("reset", scheduler="main")
    await world.node.stop("main")
    assert await world.state() is not None
    await world.node.call("reset", scheduler="main")
    assert await world.state() is None


@pytest.mark.spec("004-35")
async def test_why_answers_for_done_open_and_skipped_slots(world: World) -> None:
    world.service("a", every_s=HOUR, fails=lambda n: n == 1)
    await world.start()
    await world.until(10)
    assert (await world.node.call("why", service="a", at=TEN))["verdict"] == "done"
    await world.until(HOUR + 0.5)
    answer = await world.node.call("why", service="a", at=TEN + HOUR)
    assert (answer["verdict"], answer["planned"]) == ("open", TEN + HOUR)
    assert [run["info"] for run in answer["runs"]] == ["ValueError: failure 1"]
    await world.until(HOUR + 10)
    answer = await world.node.call("why", service="a", at=TEN + HOUR)
    assert (answer["verdict"], len(answer["runs"])) == ("done", 2)


@pytest.mark.spec("004-36")
async def test_schedulers_run_under_a_users_own_supervisor(world: World) -> None:
    from raptor.rows import Definition, Scheduled
    from raptor.runners.python import PythonRunner
    from raptor.runtime import Runtime
    from raptor.schedulers import spec_of
    from raptor.timetable import Timetable
    from raptor.turn import Logs
    from raptor.workshop import Workshop

    world.service("a")
    runtime = Runtime(world.clock)
    timetable = Timetable(world.image, world.clock, runtime.events)
    workshop = Workshop(
        timetable=timetable,
        runners={"python": PythonRunner(world.clock)},
        logs=Logs(),
        catalogue={service.name: service for service in world.services},
        definitions={"mine": Definition(name="mine", interval_s=60.0, services=(Scheduled(name="a"),))},
    )
    mine = await runtime.start(Supervisor, [spec_of("mine", workshop)], name="my own")
    assert mine is not None
    await world.until(5 * MINUTE + 1)
    assert world.times("a") == [n * 60.0 for n in range(6)]


# The table


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_of_the_table_is_where_it_says(name: str) -> None:
    run = COMMANDS[name].load()
    assert inspect.iscoroutinefunction(run)
    assert next(iter(inspect.signature(run).parameters)) == "site"


def test_a_command_that_waits_is_none_that_only_looks() -> None:
    async def wait() -> None:
        await asyncio.sleep(0)

    async def answer() -> str:
        return "at once"

    assert finish(answer()) == "at once"
    with pytest.raises(RuntimeError, match="needs `read`"):
        finish(wait())
