"""Design 004, scenarios 1 and 3: a cycle runs what is due, one after another, and the timer is always set again."""

from __future__ import annotations

import pytest

from raptor.service import Service
from raptor.task import Outcome
from tests.designs.world import DAY, HOUR, MINUTE, TEN, World


@pytest.mark.spec("004-12", "004-15", "004-16", "004-17", "004-19", "004-20")
async def test_scenario_1_a_cycle_runs_all_in_list_order_and_comes_again_after_the_interval(world: World) -> None:
    for name in ("a", "b", "c"):
        world.service(name, takes=20)
    await world.start("a", "c", "b")
    await world.until(59)
    assert [(line.name, line.start - TEN) for line in world.lines] == [("a", 0), ("c", 20), ("b", 40)]
    assert (await world.state()) is not None
    await world.until(60)
    assert (await world.state()) is None
    assert (await world.status())["next_check"] == TEN + HOUR
    await world.until(2 * HOUR + MINUTE)
    assert world.order == ["a", "c", "b"] * 3
    assert world.times("a") == [0, HOUR, 2 * HOUR]
    for told in ("service_started", "service_ended"):
        assert [event.facts["run"].service for event in world.happened(told)] == world.order


@pytest.mark.spec("004-15", "R4-05")
async def test_a_service_without_a_timing_row_is_a_first_run(world: World) -> None:
    world.service("a")
    await world.start()
    await world.until(1)
    [check] = [event for event in world.happened("checked") if event.facts["due"]]
    assert check.facts["due"] == ["a"]
    answer = await world.node.schedule("main", ["a"])
    assert answer["services"][0]["reason"] == "runs in 59m59s"


@pytest.mark.spec("004-01", "004-02", "004-04", "004-18", "004-27")
async def test_success_writes_now_and_the_interval_into_the_one_row_of_the_service(world: World) -> None:
    world.service("own", takes=2.5, every_s=DAY)
    world.service("given", takes=2.5)
    world.service("bare", takes=2.5)
    await world.start("own", "given=12h", "bare")
    await world.until(10)
    rows = await world.image.load("service_timing")
    assert list(rows) == ["own", "given", "bare"]
    own, given, bare = [await world.row(name) for name in rows]
    assert (own.last_run_timestamp, own.interval_seconds, own.next_due) == (int(TEN + 2), DAY, TEN + DAY)
    assert (given.last_run_timestamp, given.interval_seconds) == (int(TEN + 5), 12 * HOUR)
    assert (bare.last_run_timestamp, bare.interval_seconds, bare.slot) == (int(TEN + 7), HOUR, TEN)
    assert isinstance(own.last_run_timestamp, int)


@pytest.mark.spec("004-05", "004-25", "004-26", "X4-5", "X4-9")
async def test_scenario_3_hourly_and_daily_in_one_scheduler(world: World) -> None:
    world.service("hourly", takes=2)
    world.service("daily", takes=2, every_s=DAY)
    await world.start("hourly", "daily")
    await world.until(30 * HOUR)
    assert world.times("hourly") == [n * HOUR for n in range(31)]
    # By `>=` the daily one runs again at ten the next day: the 25th hourly run.
    assert world.times("daily") == [2, 24 * HOUR + 2]
    assert world.order[:6] == ["hourly", "daily", "hourly", "hourly", "hourly", "hourly"]
    assert [event.facts["due"] for event in world.happened("checked")][24] == ["hourly", "daily"]


@pytest.mark.spec("004-20", "X4-4")
async def test_when_nothing_is_due_the_next_check_is_set_all_the_same(world: World) -> None:
    world.service("daily", every_s=DAY)
    await world.start()
    for hour in range(1, 24):
        await world.until(hour * HOUR + 1)
        assert (await world.status())["next_check"] == TEN + (hour + 1) * HOUR
    await world.until(3 * DAY + 1)
    assert world.times("daily") == [0, DAY, 2 * DAY, 3 * DAY]


@pytest.mark.spec("X4-10")
async def test_a_service_that_ends_after_its_check_is_not_skipped_every_second_hour(world: World) -> None:
    world.clock.slice_s = HOUR
    world.service("a", takes=2)
    await world.start()
    await world.until(1000 * HOUR + 1)
    assert world.times("a") == [n * HOUR for n in range(1001)]


@pytest.mark.spec("X4-7")
async def test_intervals_under_a_second_work(world: World) -> None:
    world.service("a")
    world.service("b", every_s=0.3)
    await world.start(interval="100ms")
    await world.until(3.05)
    assert world.times("a") == [round(n * 0.1, 6) for n in range(31)]
    assert world.times("b") == [round(n * 0.3, 6) for n in range(11)]
    assert (await world.row("a")).interval_seconds == 0.1


@pytest.mark.spec("R4-06", "R4-07", "004-08", "004-14")
async def test_a_failure_never_stops_the_cycle_and_leaves_the_timing_alone(world: World) -> None:
    world.service("good")
    world.service("bad", fails=lambda n: n in (1, 2), max_attempts=1)
    world.service("last")
    await world.start()
    await world.until(10)
    before = await world.row("bad")
    await world.until(HOUR + 10)
    after = await world.row("bad")
    assert world.order == ["good", "bad", "last"] * 2
    assert (after.last_run_timestamp, after.slot, after.interval_seconds) == (
        before.last_run_timestamp,
        before.slot,
        before.interval_seconds,
    )
    assert (after.failures, after.last_outcome, after.last_run_id) == (1, Outcome.FAILED, world.runs("bad")[1].run)
    results = (await world.status())["results"]
    assert results == [
        ["good", "ok", "result 1"],
        ["bad", "error", "ValueError: failure 1"],
        ["last", "ok", "result 1"],
    ]
    assert await world.state() is None


@pytest.mark.spec("R4-09", "R4-07")
async def test_results_are_ok_or_error_whatever_a_service_does(world: World) -> None:
    async def leaves() -> None:
        raise SystemExit(3)

    async def hangs() -> None:
        await world.clock.sleep(DAY)

    world.service("fine")
    world.services += [
        Service(name="leaves", function=leaves, max_attempts=1),
        Service(name="hangs", function=hangs, timeout_s=5, max_attempts=1),
    ]
    await world.start()
    await world.until(MINUTE)
    results = (await world.status())["results"]
    assert [line[:2] for line in results] == [["fine", "ok"], ["leaves", "error"], ["hangs", "error"]]
    assert (await world.row("hangs")).last_outcome == "timed_out"


@pytest.mark.spec("004-13", "004-14", "R4-01", "R4-02")
async def test_status_has_the_keys_of_the_original_while_a_cycle_runs_and_between_cycles(world: World) -> None:
    for name in ("a", "b", "c"):
        world.service(name, takes=10)
    await world.start()
    await world.until(15)
    status = await world.status()
    asked = [
        "current_service",
        "remaining_services",
        "completed_count",
        "results",
        "periodic_enabled",
        "periodic_services",
        "periodic_interval_ms",
    ]
    assert {key: status[key] for key in asked} == {
        "current_service": "b",
        "remaining_services": ["c"],
        "completed_count": 1,
        "results": [["a", "ok", "result 0"]],
        "periodic_enabled": True,
        "periodic_services": ["a", "b", "c"],
        "periodic_interval_ms": 3600000,
    }
    await world.until(40)
    status = await world.status()
    assert (status["current_service"], status["remaining_services"]) == (None, [])
    assert [line[0] for line in status["results"]] == ["a", "b", "c"]


@pytest.mark.spec("004-06", "004-07", "004-08", "X4-3")
async def test_the_state_row_holds_queue_current_and_results_until_the_cycle_ends(world: World) -> None:
    for name in ("a", "b", "c"):
        world.service(name, takes=10)
    await world.start()
    await world.until(15)
    assert list(await world.image.load("scheduler_state")) == ["main"]
    state = await world.state()
    assert state is not None
    assert (state.services_queue, state.current_service, state.slot) == (("c",), "b", TEN)
    assert state.current_run is not None
    assert state.current_run.id == world.runs("b")[0].run
    assert [(result.run.service, result.verdict) for result in state.results] == [("a", "done")]
    await world.until(31)
    assert await world.image.load("scheduler_state") == {}


@pytest.mark.spec("004-03", "004-29")
async def test_timing_and_history_stay_though_a_service_is_unused_for_months(world: World) -> None:
    world.clock.slice_s = DAY
    world.service("seasonal", every_s=HOUR)
    world.service("other", every_s=DAY)
    await world.start(interval="1d")
    await world.until(1)
    await world.node.schedule("main", ["other"])
    await world.until(200 * DAY)
    assert (await world.row("seasonal")).last_run_timestamp == int(TEN)
    [old] = await world.image.history("seasonal")
    assert old.info == "result 0"
    await world.node.schedule("main", ["seasonal", "other"])
    await world.until(200 * DAY + 1)
    assert world.times("seasonal") == [0, 200 * DAY]


@pytest.mark.spec("004-11", "004-32", "R4-01")
async def test_a_scheduler_is_registered_under_its_name_and_its_services_are_strings(world: World) -> None:
    world.service("a")
    await world.start(interval="1h")
    ref = world.node.runtime.whereis("scheduler:main")
    assert ref is not None
    assert (await ref.call("status"))["periodic_interval_ms"] == 3600000
    await world.node.stop("main")
    assert world.node.runtime.whereis("scheduler:main") is None


@pytest.mark.spec("R4-04")
async def test_each_step_is_durable_before_the_next_in_the_order_of_the_design(world: World) -> None:
    world.service("a")
    world.service("b")
    await world.start()
    await world.until(1)
    written = [what for what in world.node.store.written if what[0] != "definitions"]
    state, deleted = ("scheduler_state", "main"), ("scheduler_state", "main")
    assert written == [
        state, ("service_timing", "a"), state, ("service_timing", "b"), ("ledger", ""), deleted,
    ]  # fmt: skip


@pytest.mark.spec("R4-15")
async def test_every_check_runs_the_whole_cycle_not_one_service_of_it(world: World) -> None:
    for n in range(7):
        world.service(f"s{n}")
    await world.start()
    await world.until(1)
    assert len(world.lines) == 7
