"""A process that takes many runs, and functions that do their worst in it: neither the next run nor others suffer."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest

from raptor.clock import Clock, SystemClock
from raptor.node import Node
from raptor.runners import family, pool
from raptor.service import Service
from raptor.task import Outcome
from tests.system.hostile import kept
from tests.unit.runs import gone, left_behind
from tests.unit.series import Series, children

ROOT = Path(__file__).resolve().parents[2]

WORST = [
    "print_from_thread_for_ever",
    "close_output",
    "close_files",
    "leave_daemon",
    "forge",
    "flood",
    "set_alarm",
    "leak",
    "die",
]


@pytest.mark.parametrize("does", WORST)
async def test_neither_the_next_run_nor_a_neighbour_suffers(system_clock: Clock, does: str) -> None:
    async with Series(system_clock) as series, Series(system_clock, function=kept.work_async) as neighbour:
        await series.one()
        await neighbour.one()
        for round in range(3):
            await asyncio.gather(series.run(does), neighbour.one())
            before = await series.run()
            assert before.outcome is Outcome.OK, before
            assert (await neighbour.one())[1] == 2 * round + 3


async def test_a_process_that_takes_no_request_is_replaced(
    system_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "BEGIN_S", 0.5)
    async with Series(system_clock) as series:
        await series.one("steal_requests")
        for _ in range(3):
            await series.one()  # whoever gets the request, it is run
        stopped, _ = await series.one()
        os.kill(stopped, signal.SIGSTOP)
        other, _ = await series.one()
        assert other != stopped
        assert gone(stopped)


async def test_one_that_takes_its_time_is_not_replaced(system_clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "BEGIN_S", 0.5)
    async with Series(system_clock, timeout_s=2) as series:
        pid, _ = await series.one()
        trial = series.trial("hang")
        result = await trial.run()
        assert (result.outcome, result.info) == (Outcome.TIMED_OUT, "timed out after 2 s")
        assert result.tail == f"hanging {pid}\n"


async def test_what_a_run_prints_never_stands_in_the_output_of_another(system_clock: Clock) -> None:
    async with Series(system_clock) as series:

        async def some(lane: int) -> None:
            for number in range(50):
                result = await series.run("print_run_id", run_id=f"{lane}-{number}-{uuid.uuid4().hex}")
                assert result.tail == f"{series_id(result.tail)}\n" * 100

        def series_id(tail: str) -> str:
            (only,) = set(tail.split())
            return only

        await asyncio.gather(*(some(lane) for lane in range(4)))


def held() -> tuple[int, int, int]:
    """Files, threads and children of this process."""
    return len(os.listdir("/proc/self/fd")), threading.active_count(), len(children())


@pytest.mark.parametrize("does", [None, "raise_error", "leak"])
async def test_nothing_piles_up_over_many_runs(does: str | None, tmp_path: Path, small_clock: Clock) -> None:
    async with Series(small_clock, count=25) as series:

        async def some(count: int) -> None:
            for _ in range(count):
                await asyncio.gather(*(series.run(does, tmp_path / "runs.log") for _ in range(4)))

        await some(5)
        files, _, children = held()
        await some(40)
        assert (files, children) == held()[::2]


@pytest.fixture
def small_clock() -> Clock:
    return SystemClock(threads=4)


async def test_a_node_that_is_out_of_files_fails_the_run_and_goes_on(system_clock: Clock) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with Series(system_clock) as series:
        await series.one()
        before = held()[0]
        spare = os.open(os.devnull, os.O_RDONLY)  # the lowest free number: from here on there are none
        for room in range(8):
            resource.setrlimit(resource.RLIMIT_NOFILE, (spare + room, hard))
            try:
                result = await series.run()
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            if room < 4:
                assert "Too many open files" in (result.error or "")
            assert (result.outcome, result.died) in ((Outcome.FAILED, False), (Outcome.OK, False))
        os.close(spare)
        await series.one()
        assert held()[0] == before


@pytest.mark.spec("002-32")
async def test_the_tasks_of_a_node_share_processes_that_end_with_it(system_clock: Clock) -> None:
    service = Service(name="kept", function=kept.work, isolate=True, count=1000)
    async with Node(store="memory:", services=[service], clock=system_clock) as node:
        ran: list[list[int]] = []
        for _ in range(10):
            handle = await node.put("kept")
            ran.append((await node.call("wait", id=handle.id))["output"])
    assert [number for _, number in ran] == list(range(1, 11))
    assert ran[0][0] not in children()


def test_a_kept_process_dies_with_its_node_and_its_daemon_is_found() -> None:
    ids = [uuid.uuid4().hex, uuid.uuid4().hex]
    node = subprocess.Popen(
        [sys.executable, "-m", "tests.system.hostile.keeping_node", *ids], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    with node:
        assert node.stdout is not None
        said = dict(node.stdout.readline().split() for _ in range(2))
        node.send_signal(signal.SIGKILL)
        assert gone(int(said["hanging"]))
        # The fork has lost its parents, has no file open and runs no program of its own.
        assert family.sweep_after_crash(ids[0]) == 0
        assert family.sweep_after_crash(ids[1]) == 1
        assert gone(int(said["daemon"]))
    assert left_behind(ids[1]) == {}


def test_an_idle_process_dies_with_its_node() -> None:
    script = (
        "import sys, asyncio; from tests.unit.series import Series; from raptor.clock import SystemClock\n"
        "clock = SystemClock()\n"
        "async def main():\n"
        "    print(*(await Series(clock).one()), flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "clock.run(main)"
    )
    node = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with node:
        assert node.stdout is not None
        pid = int(node.stdout.readline().split()[0])
        node.send_signal(signal.SIGKILL)
        assert gone(pid)
