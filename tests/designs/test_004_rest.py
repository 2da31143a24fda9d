"""Design 004: what the original's other modules offer (state_utils, service FSM, scripts), in Raptor's own verbs."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
from pathlib import Path
from typing import Any

import pytest
from tenacity import wait_fixed

import raptor
from raptor.childspec import ChildSpec
from raptor.clock import Clock
from raptor.config import Config
from raptor.errors import RefusedState
from raptor.ref import Ref
from raptor.scheduler import Scheduler
from raptor.schedulers import spec_of
from raptor.service import Service
from tests.designs.world import DAY, HOUR, MINUTE, TEN, World
from tests.system.states import change, opened, timing

DEADLINE_S = 30.0

# state_utils


@pytest.mark.spec("R4-03")
async def test_every_function_of_the_state_api_has_its_counterpart(world: World) -> None:
    for name in ("a", "b"):
        world.service(name, every_s=DAY, takes=10)

    async def rows(table: str) -> dict[str, Any]:
        found: dict[str, Any] = (await world.node.call("dump", table=table))["tables"][table]
        return found

    await world.start("a")  # init_tables
    assert set((await world.node.call("dump"))["tables"]) >= {"service_timing", "scheduler_state", "definitions"}
    assert await rows("service_timing") == {}  # get_service_timing: none yet
    await world.until(5)
    # save_scheduler_state, scheduler_state_exists
    assert (await rows("scheduler_state"))["main"]["current_service"] == "a"
    await world.crash()
    await world.boot()  # restore_scheduler_state
    await world.until(10)
    assert (await world.status())["resumed"] == 1
    await world.until(20)
    assert await rows("scheduler_state") == {}  # clear_scheduler_state
    # update_service_timing, get_service_timing
    found = await world.node.call("dump", table="service_timing", key="a")
    assert found["tables"]["service_timing"]["a"]["last_run_timestamp"] == int(TEN + 15)
    assert found["tables"]["service_timing"]["a"]["interval_seconds"] == DAY
    # filter_services_by_timing: the check itself, and asked for
    answer = await world.node.schedule("main", ["a", "b"])
    assert [line["name"] for line in answer["services"] if line["due"]] == ["b"]
    await world.until(40)
    checked = world.happened("checked")[-1].facts
    assert (checked["due"], checked["waiting"]) == (["b"], {"a": "runs in 23h59m40s"})
    assert world.order == ["a", "a", "b"]
    # should_service_run: when, and what became of it
    (due,) = (await world.node.call("next", target="a", n=1))["times"]
    assert due == TEN + DAY
    assert (await world.node.call("why", service="a", at=TEN))["verdict"] == "done"
    await world.node.call("reset", service="a")  # clear_service_timing: it is due, and its record stays
    line = (await world.node.schedule("main", ["a"]))["services"][0]
    assert (line["due"], line["next_due"]) == (True, TEN + 40)
    await world.node.close()  # close_tables
    assert (await world.row("a")).last_run_timestamp is not None


@pytest.mark.spec("R4-03")
async def test_the_state_of_a_stopped_scheduler_is_told_and_can_be_cleared(world: World) -> None:
    for name in ("a", "b"):
        world.service(name, takes=10)
    await world.start()
    await world.until(5)
    await world.node.stop("main")
    status = await world.status()
    assert (status["state"], status["remaining_services"]) == ("interrupted", ["b"])  # scheduler_state_exists
    await world.node.call("reset", scheduler="main")  # clear_scheduler_state
    assert (await world.status())["state"] == "stopped"


# The due rule


@pytest.mark.spec("R4-05")
async def test_every_reason_for_running_and_for_waiting_is_told(world: World) -> None:
    world.service("good", every_s=HOUR)
    world.service("bad", every_s=HOUR, fails=lambda n: True, backoff=wait_fixed(600))
    world.service("late", cron="0 12 * * *", timezone="UTC")

    async def outlook() -> dict[str, tuple[bool, str]]:
        answer = await world.node.call("schedule", name="main", services=["good", "bad", "late", "gone"], force=True)
        return {line["name"]: (line["due"], line["reason"]) for line in answer["services"]}

    await world.boot()
    await world.node.start("main", "1d")
    assert await outlook() == {
        "good": (True, "first run"),
        "bad": (True, "first run"),
        "late": (False, "first run in 2h"),
        "gone": (False, "unknown service"),
    }
    await world.until(5 * MINUTE)
    waiting = await outlook()
    assert re.fullmatch(r"retries in (4m\d+s|4m|5m)", waiting.pop("bad")[1])
    assert waiting == {
        "good": (False, "runs in 55m"),
        "late": (False, "first run in 1h55m"),
        "gone": (False, "unknown service"),
    }
    await world.node.call("pause", name="main")
    await world.until(11 * MINUTE)
    assert (await outlook())["bad"] == (True, "attempt 2")
    await world.until(HOUR - 0.001)
    assert (await outlook())["good"] == (False, "runs in 1ms")
    await world.until(HOUR)  # now >= last run + interval
    assert (await outlook())["good"] == (True, "last run 1h ago, every 1h")
    await world.until(HOUR + 90)
    assert (await outlook())["good"] == (True, "last run 1h1m30s ago, every 1h")


@pytest.mark.spec("R4-05")
async def test_a_row_that_cannot_be_read_is_refused_and_nothing_runs_anyway(
    tmp_path: Path, system_clock: Clock
) -> None:
    """The original runs a service whose timing it cannot read. That repeats recorded work: here nothing runs."""
    home, ran = tmp_path / "home", list[str]()
    async with opened(home, system_clock) as store:
        await store.save([("service_timing", name, timing(1)) for name in ("broken", "whole")])
    change(home / "service_timing.sqlite", "UPDATE service_timing SET value = 'x' || value WHERE key = 'broken'")

    async def work() -> None:
        ran.append("anyway")

    services = [Service(name=name, function=work) for name in ("broken", "whole")]
    with pytest.raises(RefusedState, match=r"checksum of service_timing 'broken'.*raptor state repair") as refused:
        async with raptor.Node(home, services=services, listen=False):
            pass
    assert refused.value.kind == "damaged"
    assert ran == []


# One FSM per service


async def fsm(world: World, name: str) -> dict[str, Any]:
    """The original's get_status of a service, out of what `status` says."""
    answer = await world.node.status("main")
    (line,) = [line for line in answer["services"] if line["name"] == name]
    scheduler = answer["schedulers"][0]
    runs = line["running"] is not None
    assert not runs or scheduler["current_service"] == name
    started = scheduler["current_since"] if runs else line["last_start"]
    return {
        "service_name": line["name"],
        "state": "running" if runs else "retrying" if line["retry_at"] is not None else line["last_result"],
        "started_at": None if started is None else started - TEN,
        "uptime_s": answer["now"] - started if runs else None,
        "retry_count": line["attempts"],
        "max_retries": line["max_attempts"],
        "last_error": line["last_info"] if line["failures"] else "",
    }


@pytest.mark.spec("R4-08")
async def test_the_status_of_a_service_follows_it_through_failures_to_success(world: World) -> None:
    world.service("a", takes=5, fails=lambda n: n < 2, max_attempts=3, backoff=wait_fixed(30))
    await world.start()
    told = list[tuple[Any, ...]]()
    for at in (2, 10, 36, 50, 80):
        await world.until(at)
        found = await fsm(world, "a")
        assert (found["service_name"], found["max_retries"]) == ("a", 3)
        assert found["started_at"] == world.runs("a")[-1].start - TEN
        assert found["uptime_s"] == (pytest.approx(at - found["started_at"]) if found["state"] == "running" else None)
        told.append((at, found["state"], found["retry_count"], found["last_error"]))
    assert told == [
        (2, "running", 0, ""),
        (10, "retrying", 1, "ValueError: failure 0"),
        (36, "running", 1, "ValueError: failure 0"),
        (50, "retrying", 2, "ValueError: failure 1"),
        (80, "ok", 0, ""),
    ]
    for before, after in itertools.pairwise(world.runs("a")):
        assert before.end is not None
        assert 27 <= after.start - before.end <= 30  # the delay that was asked for, and up to a tenth less
    assert [(line.attempt, line.planned) for line in world.runs("a")] == [(1, TEN), (2, TEN), (3, TEN)]


@pytest.mark.spec("R4-08")
async def test_a_service_that_hangs_is_ended_recorded_and_tried_again(world: World) -> None:
    world.service("a", takes=lambda n: 0 if n else DAY, timeout_s=10, backoff=wait_fixed(30))
    await world.start()
    await world.until(11)
    assert await fsm(world, "a") == {
        "service_name": "a",
        "state": "retrying",
        "started_at": 0,
        "uptime_s": None,
        "retry_count": 1,
        "max_retries": None,
        "last_error": "timed out after 10 s",
    }
    await world.until(41)
    assert (await fsm(world, "a"))["state"] == "ok"
    assert len(world.times("a")) == 2


# The supervisor of the schedulers


async def kill(world: World, name: str) -> Ref:
    """Kill a scheduler, and wait for its successor."""
    before = world.node.scheduler(name)
    assert before is not None
    before.kill()
    while (after := world.node.scheduler(name)) in (None, before):
        await world.clock.sleep(0.01)
    assert after is not None
    return after


@pytest.mark.spec("R4-10")
async def test_five_crashes_in_ten_seconds_are_borne_one_for_one_and_the_sixth_is_not(world: World) -> None:
    world.service("a")
    world.service("b")
    await world.start("a")
    await world.node.start("second", "1h")
    await world.node.schedule("second", ["b"])
    supervisor, second = world.node.runtime.whereis("schedulers"), world.node.scheduler("second")
    began = world.clock.monotonic()
    for _ in range(5):
        await kill(world, "main")
    assert world.clock.monotonic() - began < 10
    assert world.node.runtime.whereis("schedulers") is supervisor
    assert world.node.scheduler("second") is second
    await kill(world, "main")
    assert world.clock.monotonic() - began < 10
    assert world.node.runtime.whereis("schedulers") is not supervisor
    assert world.node.scheduler("second") is not second  # it was ended with its supervisor, and came back with the next
    assert world.node.root.alive


@pytest.mark.spec("R4-10")
async def test_crashes_that_are_far_enough_apart_are_borne_for_ever(world: World) -> None:
    world.service("a")
    await world.start()
    supervisor = world.node.runtime.whereis("schedulers")
    for number in range(1, 31):
        await kill(world, "main")
        await world.until(number * 60)
    assert world.node.runtime.whereis("schedulers") is supervisor


@pytest.mark.spec("R4-10")
def test_a_child_is_permanent_with_five_seconds_to_end_unless_it_is_a_scheduler(world: World) -> None:
    child = ChildSpec(id="a", start=Scheduler)
    assert (child.restart, child.shutdown) == ("permanent", 5.0)
    scheduler = spec_of("main", None)  # type: ignore[arg-type]
    # One that was asked to stop stays so, and may need a moment to write down how far it is.
    assert (scheduler.restart, scheduler.shutdown) == ("transient", 10.0)


# Services that are commands

TOML = """
[services.long]
command = ["${SHELL_TO_USE}", "-c", "echo $$$$ > ${PIPE}; sleep 600"]
every = "1h"

[services.short]
command = ["${SHELL_TO_USE}", "-c", "echo went to $PLACE"]
env = {PLACE = "${TARGET}"}
every = "1h"
"""


def is_running(status: dict[str, Any]) -> dict[str, bool]:
    return {line["name"]: line["running"] is not None for line in status["services"]}


def command_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    except FileNotFoundError:
        return []


@pytest.mark.spec("R4-13")
async def test_commands_are_listed_started_seen_running_and_stopped(tmp_path: Path, system_clock: Clock) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "raptor.toml").write_text(TOML)
    environ = {"SHELL_TO_USE": "/bin/sh", "PIPE": str(pipe), "TARGET": "the moon"}
    config = Config.load({"home": str(tmp_path / "home")}, environ=environ, cwd=tmp_path)
    async with raptor.Node(config=config, clock=system_clock, listen=False, grace_s=0.1) as node:
        assert is_running(await node.status()) == {"long": False, "short": False}  # list_services
        run = await node.call("run", service="short")
        assert (run["outcome"], run["info"]) == ("ok", "went to the moon")
        await node.start("main", "1h")  # start_service
        await node.schedule("main", ["long"])
        pid = int(await asyncio.wait_for(system_clock.offload(pipe.read_text), DEADLINE_S))
        assert is_running(await node.status()) == {"long": True, "short": False}  # is_service_running
        assert command_of(pid)[:2] == ["/bin/sh", "-c"]
        await node.stop("main")  # stop_service
        assert is_running(await node.status()) == {"long": False, "short": False}
        assert command_of(pid) == []
