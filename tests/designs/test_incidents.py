"""What a scheduler leaves behind when it stands still or dies: a line of the ledger, and no second copy of its work."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from raptor.clock import Clock
from raptor.config import Retention
from raptor.exits import Exit
from raptor.janitor import Janitor
from raptor.rows import Definition, Scheduled, SchedulerState
from raptor.runners import RUNNERS
from raptor.runtime import Runtime
from raptor.scheduler import Scheduler
from raptor.service import Service
from raptor.state.memory import MemoryStore
from raptor.task import Run
from raptor.timetable import Timetable
from raptor.turn import Logs
from raptor.workshop import Workshop


class Stuck(Scheduler):
    """A scheduler whose check is long past."""

    def init(self) -> None:  # type: ignore[override]
        pass

    @property
    def overdue(self) -> float | None:
        return 1.0


async def test_a_scheduler_that_stands_still_is_killed_and_the_incident_is_in_the_ledger(clock: Clock) -> None:
    runtime, store = Runtime(clock, log=False), MemoryStore()
    stuck = await runtime.start(Stuck, name="scheduler:main")
    assert stuck is not None
    await runtime.start(Janitor, lambda: store, Retention(age_s=3600.0, keep=10), lambda: [stuck])
    assert await stuck.wait() == Exit.KILLED
    await clock.sleep(0)
    (line,) = await store.slots("scheduler:main", since=0, until=clock.now() + 1)
    assert (line.verdict, line.reason) == ("failed", "stalled")


class Waking(Stuck):
    """One whose whole node stands still again and again: it has had no turn yet when somebody looks."""

    looks = 0

    @property
    def overdue(self) -> float | None:
        self.looks += 1
        return float(self.looks)


async def test_a_scheduler_whose_whole_node_stood_still_has_a_turn_before_it_counts_as_stalled(clock: Clock) -> None:
    runtime, store = Runtime(clock, log=False), MemoryStore()
    waking = await runtime.start(Waking, name="scheduler:main")
    assert waking is not None
    await runtime.start(Janitor, lambda: store, Retention(age_s=3600.0, keep=10), lambda: [waking])
    await clock.sleep(5.0)
    assert isinstance(waking.actor, Waking)
    assert waking.actor.looks > 2
    assert await store.slots("scheduler:main", since=0, until=clock.now() + 1) == []


@pytest.mark.skipif(sys.platform != "linux", reason="found by /proc")
async def test_what_a_killed_node_left_running_is_ended_before_its_service_runs_again(system_clock: Clock) -> None:
    """A command outlives a node that is killed with -9: there must never be two copies of it."""
    left = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE, env={**os.environ, "RAPTOR_RUN_ID": "f00d" * 4}
    )
    seen: list[int | None] = []

    async def work() -> None:
        seen.append(left.returncode if left.returncode is not None else await left.wait())

    runtime, store, now = Runtime(system_clock, log=False), MemoryStore(), round(system_clock.now(), 6)
    run = Run(id="f00d" * 4, service="work", scheduler="main", planned=now, attempt=1, start=now)
    state = SchedulerState(cycle="c", slot=now, started=now, services_queue=(), current_service="work", current_run=run)
    await store.save([("scheduler_state", "main", state)])
    timetable = Timetable(store, system_clock, runtime.events)
    await timetable.load()
    workshop = Workshop(
        timetable=timetable,
        runners={kind: make(system_clock) for kind, make in RUNNERS.items()},
        logs=Logs(),
        catalogue={"work": Service(name="work", function=work)},
        definitions={"main": Definition(name="main", interval_s=3600.0, services=(Scheduled(name="work"),))},
    )
    done = asyncio.Event()
    runtime.events.subscribe(lambda _: done.set(), "cycle_done")
    scheduler = await runtime.start(Scheduler, "main", workshop)
    assert scheduler is not None
    await done.wait()
    assert seen == [-9]
    await scheduler.stop()
