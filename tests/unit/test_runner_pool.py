"""Interpreters that take many runs: how long each is kept, and after which runs."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from raptor.clock import Clock
from raptor.declared import services
from raptor.errors import BadInput
from raptor.runners import group, pool
from raptor.service import Service, command_service, service
from raptor.task import Outcome
from tests.system.hostile import kept
from tests.unit.series import Series, Shifted, children, has_gone


@pytest.fixture
def shifted() -> Shifted:
    return Shifted()


@pytest.mark.spec("002-32")
async def test_one_process_takes_as_many_runs_as_it_may(system_clock: Clock) -> None:
    async with Series(system_clock, count=2) as series:
        (first, one), (second, two), (third, three) = [await series.one() for _ in range(3)]
        assert (first, one, two, three) == (second, 1, 2, 1)
        assert third != first
        assert await has_gone(first)


@pytest.mark.spec("002-32")
@pytest.mark.parametrize(
    "options", [{"count": 0}, {"count": 1}, {"count": 0, "live_s": 0.0}, {"count": 1, "live_s": 9}]
)
async def test_a_count_of_zero_or_one_means_a_fresh_process_each(system_clock: Clock, options: dict[str, Any]) -> None:
    async with Series(system_clock, **options) as series:
        assert [(await series.one())[1] for _ in range(2)] == [1, 1]


@pytest.mark.spec("002-32")
async def test_one_process_takes_runs_while_it_may_live(shifted: Shifted) -> None:
    async with Series(shifted, count=0, live_s=60.0) as series:
        first = [(await series.one()) for _ in range(3)]
        shifted.ahead = 61.0
        assert [number for _, number in first] == [1, 2, 3]
        assert (await series.one())[1] == 1
        assert await has_gone(first[0][0])


async def test_one_that_outlives_its_time_during_a_run_ends_with_it(shifted: Shifted) -> None:
    async with Series(shifted, live_s=60.0) as series:
        trial = series.trial("wait_for_signal")
        task = trial.start()
        pid = int((await trial.log.hears("waiting")).split()[1])
        shifted.ahead = 61.0
        os.kill(pid, signal.SIGUSR1)
        assert (await task).outcome is Outcome.OK
        assert pid not in children()


async def test_an_idle_one_is_ended_after_a_while(system_clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "IDLE_S", 0.0)
    async with Series(system_clock) as series:
        pid, _ = await series.one()
        assert await has_gone(pid)
        assert (await series.one())[1] == 1


async def test_the_end_of_its_time_ends_an_idle_one(system_clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "IDLE_S", 1000.0)
    async with Series(system_clock, live_s=2.0) as series:
        pid, _ = await series.one()
        assert await has_gone(pid)


async def test_the_end_of_the_node_ends_the_idle_ones(system_clock: Clock) -> None:
    series = Series(system_clock)
    pid, _ = await series.one()
    assert pid in children()
    await series.close()
    assert pid not in children()  # not even as a zombie
    other, _ = await series.one()
    assert await has_gone(other)  # what comes later is not kept


async def test_a_service_that_is_defined_anew_has_a_new_process(system_clock: Clock) -> None:
    async with Series(system_clock) as series:
        trial = series.trial("hang")
        task = trial.start()
        await trial.log.hears("hanging")
        old, _ = await series.one()
        series.service = Service(name="kept", function=kept.work, isolate=True, count=1000)
        assert (await series.one())[0] != old
        assert await has_gone(old)
        task.cancel()
        await asyncio.wait({task})


async def test_a_run_of_the_old_definition_leaves_no_process_to_the_new(system_clock: Clock) -> None:
    async with Series(system_clock) as series:
        old = asyncio.ensure_future(series.one())
        await asyncio.sleep(0)
        series.service = Service(name="kept", function=kept.work, isolate=True, count=1000)
        new, _ = await series.one()
        pid, _ = await old
        assert await has_gone(pid)
        assert await series.one() == [new, 2]


async def test_runs_at_a_time_have_a_process_each(system_clock: Clock) -> None:
    async with Series(system_clock) as series:
        first = await asyncio.gather(*(series.one() for _ in range(3)))
        again = await asyncio.gather(*(series.one() for _ in range(3)))
        assert len({pid for pid, _ in first}) == 3
        assert sorted(again) == sorted([pid, 2] for pid, _ in first)


async def test_services_do_not_share_processes(system_clock: Clock) -> None:
    async with Series(system_clock) as series:
        first = await series.one()
        series.service = Service(name="other", function=kept.work, isolate=True, count=1000)
        assert (await series.one())[0] != first[0]


async def test_an_async_function_is_kept_too(system_clock: Clock) -> None:
    async with Series(system_clock, function=kept.work_async) as series:
        assert [(await series.one())[1] for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize("does", ["raise_error", "leave_zombie", "leak", "fork_and_come_back", "set_alarm"])
async def test_an_ordinary_end_leaves_the_process_to_the_next_run(system_clock: Clock, does: str) -> None:
    async with Series(system_clock) as series:
        assert await series.stays_after(does)


@pytest.mark.parametrize(
    "does",
    [
        "leave_by_exception",
        "interrupt",
        "run_out_of_memory",
        "leave_daemon",
        "close_output",
        "close_files",
        "exit_at_once",
        "die",
        "forge",
        "flood",
    ],
)
async def test_an_end_that_leaves_doubt_ends_the_process(system_clock: Clock, does: str) -> None:
    async with Series(system_clock) as series:
        assert not await series.stays_after(does)


async def test_a_timeout_ends_the_process_and_what_it_started(system_clock: Clock) -> None:
    async with Series(system_clock, timeout_s=3) as series:
        pid, _ = await series.one()
        trial = series.trial("leave_daemon_and_hang")
        result = await trial.run()
        assert (result.outcome, result.info, result.died) == (Outcome.TIMED_OUT, "timed out after 3 s", False)
        daemon = int(result.tail.split()[1])
        assert await has_gone(daemon)
        assert await has_gone(pid)
        assert (await series.one())[1] == 1


async def test_a_cancelled_run_ends_the_process(system_clock: Clock) -> None:
    async with Series(system_clock) as series:
        pid, _ = await series.one()
        trial = series.trial("hang")
        task = trial.start()
        await trial.log.hears("hanging")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await has_gone(pid)
        assert (await series.one())[1] == 1


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("die", "killed by signal 9 (not by raptor)"),
        ("exit_at_once", "its process ended before the function did: exit status 3"),
    ],
)
async def test_a_process_that_dies_in_a_later_run_is_told(system_clock: Clock, does: str, said: str) -> None:
    async with Series(system_clock) as series:
        await series.one()
        result = await series.run(does)
        assert (result.outcome, result.died, result.error) == (Outcome.FAILED, True, said)


@pytest.mark.parametrize(("during", "said"), [(0, "killed by signal 9 (not by raptor)"), (1, group.OUT_OF_MEMORY)])
async def test_what_the_kernel_killed_between_runs_is_not_the_next_ones_death(
    system_clock: Clock, monkeypatch: pytest.MonkeyPatch, during: int, said: str
) -> None:
    counts = iter([0, 1, 1 + during])  # at the first run's beginning, the second's, and its end
    monkeypatch.setattr(group.oom, "kills", lambda: next(counts))
    async with Series(system_clock) as series:
        await series.one()
        assert (await series.run("die")).error == said


async def test_one_that_died_while_it_was_idle_is_no_death_of_the_next_run(system_clock: Clock) -> None:
    async with Series(system_clock) as series:
        pid, _ = await series.one()
        os.kill(pid, signal.SIGKILL)
        other, number = await series.one()
        assert (other != pid, number) == (True, 1)


async def test_one_that_is_seen_to_have_died_is_not_asked(system_clock: Clock) -> None:
    async with Series(system_clock) as series:
        pid, _ = await series.one()
        os.kill(pid, signal.SIGKILL)
        assert await has_gone(pid)
        await asyncio.sleep(0)
        assert (await series.one())[1] == 1


@pytest.mark.parametrize("options", [{"cwd": "/no/such/folder"}, {"env": {"a=b": ""}}])
async def test_a_process_that_cannot_be_started_is_refused(system_clock: Clock, options: Any) -> None:
    async with Series(system_clock, **options) as series:
        before = os.listdir("/proc/self/fd")
        result = await series.run()
        assert (result.outcome, result.died) == (Outcome.FAILED, False)
        assert result.info.startswith("its process could not be started")
        assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"count": -1, "isolate": True}, "count: a whole number from 0, not -1"),
        ({"count": True, "isolate": True}, "count: a whole number from 0, not True"),
        ({"live": "soon", "isolate": True}, "live: "),
        ({"count": 10}, "count: goes with isolate, or with the timeout of a sync function"),
        ({"live": "1h"}, "live: goes with isolate, or with the timeout of a sync function"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: Any, said: str) -> None:
    with pytest.raises(BadInput, match=f"service 'kept': {said}"):
        service(name="kept", **options)(kept.much)


def test_a_file_may_give_the_options_too() -> None:
    table = {"python": "work:kept", "isolate": True, "count": 10, "live": "1h"}
    (declared,) = services({"services": {"kept": table}}, Path("raptor.toml"), {})
    assert declared.fields == {"isolate": True, "count": 10, "live_s": 3600.0}


def test_the_options_are_those_of_a_service() -> None:
    service(name="a", count=10, live="1h", isolate=True)(kept.much)
    made: Service = kept.much.service  # type: ignore[attr-defined]
    assert (made.count, made.live_s, made.takes_many) == (10, 3600.0, True)
    service(name="a", count=2, timeout="1m")(kept.much)
    with pytest.raises(BadInput, match="count: goes with a function"):
        command_service("c", ["true"], count=2)
