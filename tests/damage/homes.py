"""State directories to harm: small ones with a record of every kind, as a clean end and as a kill left them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from raptor.clock import SystemClock
from raptor.rows import Definition, Line, SchedulerState, ServiceTiming
from raptor.state.base import Want
from raptor.state.files import FileStore
from raptor.task import Move, Outcome, Run, Slot, State, Task, Try
from tests.powercut.records import Records, everything
from tests.system.states import ROOT, opened

NAMES = ("one", "two", "three")
KILLED = "import sys; from tests.damage.homes import die; die(sys.argv[1])"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A whole directory, what it holds, what it was at an earlier end, and somebody else's."""

    name: str
    path: Path
    older: Path
    other: Path
    records: Records
    once: frozenset[str]  # keys of records that were there, and are gone
    last_id: int  # of a task, and that task is gone


def prepare(folder: Path) -> list[Case]:
    """The cases, made once and copied for every harm."""
    clock = SystemClock()

    async def begin(path: Path) -> None:
        async with opened(path, clock) as store:
            await first(store)

    async def go_on(path: Path) -> None:
        async with opened(path, clock) as store:
            await second(store)

    async def look(path: Path) -> Records:
        async with opened(path, clock) as store:
            return await everything(store)

    for name in ("older", "other"):
        clock.run(lambda: begin(folder / name))  # noqa: B023
    closed = shutil.copytree(folder / "older", folder / "closed")
    clock.run(lambda: go_on(closed))
    killed = shutil.copytree(folder / "older", folder / "killed")
    done = subprocess.run([sys.executable, "-c", KILLED, str(killed)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    # A look changes what a kill left.
    seen = shutil.copytree(killed, folder / "seen")
    cases = []
    for path, looked in ((closed, shutil.copytree(closed, folder / "looked")), (killed, seen)):
        records = clock.run(lambda: look(looked))  # noqa: B023
        cases.append(
            Case(
                name=path.name,
                path=path,
                older=folder / "older",
                other=folder / "other",
                records=records,
                once=ONCE,
                last_id=LAST_ID,
            )
        )
    return cases


LAST_ID = 16
ONCE = frozenset({"task/t17", "scheduler_state/gone"})


def die(path: str) -> None:
    async def main() -> None:
        async with opened(Path(path), SystemClock()) as store:
            await second(store)
            os.kill(os.getpid(), signal.SIGKILL)

    SystemClock().run(main)


async def first(store: FileStore) -> None:
    await store.save([("service_timing", name, ServiceTiming(next_due=1.5, last_info="before")) for name in NAMES])
    await store.save([("scheduler_state", "main", _state("1")), ("definitions", "main", Definition(name="main"))])
    await store.record(*_ledger(2))
    await store.put([Task(service="work", due=float(n), data=f"t{n} early") for n in range(8)], now=0.5)


async def second(store: FileStore) -> None:
    """Every kind of record, and every state of a task; the newest task is gone."""
    await store.save([("service_timing", name, ServiceTiming(next_due=2.5, last_info="after")) for name in NAMES])
    await store.save([("scheduler_state", "main", _state("2")), ("definitions", "main", Definition(name="main"))])
    await store.save(
        [("lines", "default", Line(name="default", note="slow")), ("scheduler_state", "gone", _state("3"))]
    )
    await store.save([("scheduler_state", "gone", None)])
    await store.record(*_ledger(5))
    taken = (await store.take([Want(queue="default", room=5, rate=100)], owner="a" * 32, now=100.25)).tasks
    tries = (Try(start=1.5, end=2.5, verdict="retry", info="x"),)
    common = [{"id": task.id, "fence": task.fence, "queue": "default"} for task in taken]
    await store.settle(
        [
            Move(**common[0], state=State.DONE, attempts=0, ended=101.5, output="7"),
            Move(**common[1], state=State.DEAD, attempts=2, ended=101.5, error="no", reason="failed"),
            Move(**common[2], state=State.READY, due=1e6, attempts=1, previous=2.0, history=tries, deaths=1),
        ],
        now=101.5,
    )
    await store.put(
        [
            Task(service="keyed", due=0.25, key="k", key_until=9.5, parent=1, timing="{}", data="t10 keyed"),
            Task(service="slow", due=1e5, queue="other", timeout_s=3.5, active_s=7.5, max_attempts=None, data="t11 x"),
            *[Task(service="work", due=7.75, queue="other", priority=n, data=f"t{12 + n} more") for n in range(4)],
            Task(service="long", due=7.75, queue="other", data="t16 " + "long " * 1500),
            Task(service="work", due=0.0, queue="other", data="t17 gone"),
        ],
        now=102.0,
    )  # fmt: skip
    await store.cancel([LAST_ID - 4, LAST_ID], now=103.0, reason="unwanted")
    assert await store.drop([LAST_ID]) == 1


def _state(cycle: str) -> SchedulerState:
    return SchedulerState(cycle=cycle, slot=1.0, started=1.0, services_queue=("b", "c"), current_service="a")


def _ledger(count: int) -> tuple[list[Slot], list[Run]]:
    times = [float(n) for n in range(count)]
    slots = [Slot(service="a", planned=at, last=at, verdict="done", recorded=at) for at in times]
    runs = [
        Run(id=f"run {at}", service="a", scheduler="main", planned=at, attempt=1, start=at, outcome=Outcome.OK)
        for at in times
    ]
    return slots, runs
