"""Design 004: failures are tried again with backoff, without holding up anything; the store may fail for a while."""

from __future__ import annotations

import itertools

import pytest

from tests.designs.world import DAY, HOUR, MINUTE, TEN, World


@pytest.mark.spec("R4-06", "R4-07", "R4-08")
@pytest.mark.parametrize("interval", ["auto", "10s", "1h"])
async def test_a_nightly_service_that_fails_is_tried_again_after_1_2_4_seconds(world: World, interval: str) -> None:
    world.service("nightly", every_s=DAY, fails=lambda n: n < 6)
    world.service("other", every_s=10.0)
    await world.start(interval=interval)
    await world.until(HOUR + 1)
    times = world.times("nightly")
    gaps = [later - sooner for sooner, later in itertools.pairwise(times)]
    assert len(times) == 7
    for gap, full in zip(gaps, [1, 2, 4, 8, 16, 32], strict=True):
        assert 0.9 * full <= gap <= full + (10 if False else 1e-3)
    assert [line.attempt for line in world.runs("nightly")] == [1, 2, 3, 4, 5, 6, 7]
    assert {line.planned for line in world.runs("nightly")} == {TEN}
    row = await world.row("nightly")
    assert (row.failures, row.attempts, row.open, row.retry_at) == (0, 0, None, None)
    assert row.next_due == TEN + DAY
    assert await world.verdicts("nightly") == [(0, "done", "", 1)]
    if interval != "1h":
        assert world.times("other") == [n * 10.0 for n in range(361)]


@pytest.mark.spec("R4-06")
async def test_backoff_is_capped_at_an_hour_and_at_the_interval(world: World) -> None:
    world.service("daily", every_s=DAY, fails=lambda n: True)
    world.service("minutely", every_s=MINUTE, fails=lambda n: True)
    await world.start(interval="auto")
    await world.until(20 * HOUR)
    for name, longest in (("daily", HOUR), ("minutely", MINUTE)):
        times = world.times(name)
        gaps = [later - sooner for sooner, later in itertools.pairwise(times)]
        assert max(gaps) <= longest + 1e-3
        assert max(gaps[-5:]) > 0.85 * longest
    # Each slot of the minutely one ends as failed when its successor comes.
    verdicts = await world.verdicts("minutely")
    assert {verdict for _, verdict, _, _ in verdicts} <= {"failed", "coalesced"}
    assert (await world.row("daily")).last_run_timestamp is None


@pytest.mark.spec("R4-08")
async def test_max_attempts_ends_the_tries_for_a_slot_not_the_service(world: World) -> None:
    world.service("a", fails=lambda n: n < 4, max_attempts=3)
    await world.start()
    await world.until(30 * MINUTE)
    assert len(world.lines) == 3
    row = await world.row("a")
    assert (row.last_run_timestamp, row.retry_at, row.open, row.next_due) == (None, None, None, TEN + HOUR)
    assert await world.verdicts("a") == [(0, "failed", "ValueError: failure 2", 1)]
    await world.until(HOUR + MINUTE)
    assert [line.attempt for line in world.lines] == [1, 2, 3, 1, 2]
    assert (await world.verdicts("a"))[1] == (HOUR, "done", "", 1)


async def test_a_retry_does_not_move_the_beat_nor_the_slots(world: World) -> None:
    world.service("a", fails=lambda n: n == 0)
    world.service("b")
    await world.start()
    await world.until(3 * HOUR + 1)
    assert world.times("b") == [0, HOUR, 2 * HOUR, 3 * HOUR]
    assert world.times("a")[2:] == [HOUR, 2 * HOUR, 3 * HOUR]


async def test_a_run_in_which_a_later_slot_is_tried_at_a_retry_keeps_to_the_slots(world: World) -> None:
    world.service("a", every_s=MINUTE, fails=lambda n: n < 12)
    await world.start(interval="1m")
    await world.until(2 * HOUR + 1)
    ok = list(world.runs("a"))[12:]
    assert all((line.planned - TEN) % MINUTE == 0 for line in ok)
    assert all(line.start == line.planned for line in ok[1:])


@pytest.mark.spec("004-09")
async def test_on_crash_skip_gives_the_slot_up_and_runs_at_the_next(world: World) -> None:
    world.service("a", takes=10, on_crash="skip")
    world.service("b", takes=10)
    await world.start()
    await world.until(5)
    await world.crash()
    await world.boot()
    await world.until(20)
    assert world.order == ["a", "b"]
    assert await world.verdicts("a") == [(0, "skipped", "interrupted", 1)]
    assert (await world.row("a")).last_run_timestamp is None
    await world.until(2 * HOUR)
    assert len(world.runs("a")) == 2


@pytest.mark.spec("R4-04")
async def test_while_the_store_fails_the_result_is_kept_and_nothing_new_starts(world: World) -> None:
    for name in ("a", "b"):
        world.service(name, takes=10)
    node = await world.start()
    await world.until(5)
    node.store.failing = True
    await world.until(500)
    assert world.order == ["a"]
    assert (await world.status())["current_service"] == "a"
    assert world.happened("store_failing")
    assert node.store.refused < 200
    node.store.failing = False
    await world.until(530)
    assert world.order == ["a", "b"]
    row = await world.row("a")
    assert (row.last_run_timestamp, row.last_run_id) == (int(TEN + 10), world.runs("a")[0].run)
    assert await world.state() is None
    assert [verdict[1] for name in ("a", "b") for verdict in await world.verdicts(name)] == ["done", "done"]


async def test_a_stop_while_the_store_fails_ends_within_the_grace_and_loses_nothing(world: World) -> None:
    world.grace_s = 20
    world.service("a", takes=10)
    node = await world.start()
    await world.until(5)
    node.store.failing = True
    await world.until(30)
    before = world.clock.now()
    await node.close()
    assert world.clock.now() - before <= world.grace_s + 15
    await world.boot()
    await world.until(200)
    assert world.order == ["a", "a"]  # its result never reached the disk
    assert await world.state() is None


@pytest.mark.spec("R4-10")
async def test_a_scheduler_that_keeps_crashing_ends_alone_after_5_restarts_in_10_seconds(world: World) -> None:
    world.service("a", takes=1000)
    await world.start()
    kills = 0
    while world.happened("gave_up") == [] and kills < 20:
        ref = world.node.scheduler("main")
        if ref is not None:
            ref.kill()
            kills += 1
        await world.clock.sleep(0.05)
    await world.until(100)
    assert kills > 5
    ref = world.node.scheduler("main")
    assert ref is not None  # its supervisor was restarted, and started again what should run
