"""Services that do their worst: each has its result, the others run on beside it, and no process is left behind."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raptor.clock import Clock, SystemClock
from raptor.runners.output import PER_RUN, TAIL
from raptor.service import Service
from raptor.task import Outcome, Result
from tests.system.hostile import functions
from tests.unit.runs import Trial, gone, left_behind, run, shell

ROOT = Path(__file__).resolve().parents[2]

BOOK_DAEMON = """
import os, sys, signal
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("daemon up", flush=True)
        while True: signal.pause()
    os._exit(0)
os.wait()
"""


def isolated(function: Callable[..., Any], **options: Any) -> Service:
    return Service(name=function.__name__, function=function, isolate=True, **options)


def python(script: str, **options: Any) -> Service:
    return Service(name="python", kind="command", argv=(sys.executable, "-c", script), **options)


async def on_the_loop() -> str:
    await asyncio.sleep(0.001)
    return "fine"


NEIGHBOURS = (
    Service(name="on_the_loop", function=on_the_loop),
    Service(name="in_a_thread", function=lambda: "fine"),
    Service(name="a_command", kind="command", argv=("echo", "fine")),
)


async def hostile(clock: Clock, service: Service, path: Path | None = None, **context: Any) -> Result:
    """Run it while its neighbours run again and again; -> its result."""
    trial = Trial(clock, service, path, **context)
    task = asyncio.ensure_future(trial.run())
    rounds = 0
    while not task.done() or rounds < 1:
        for result in await asyncio.gather(*(run(clock, each) for each in NEIGHBOURS)):
            assert (result.outcome, result.info) == (Outcome.OK, "fine")
        rounds += 1
    assert left_behind(trial.context.run_id) == {}
    return task.result()


DEATHS = [
    (isolated(functions.segfault), "killed by SIGSEGV"),
    (isolated(functions.abort), "killed by SIGABRT"),
    (isolated(functions.kill_own_group), "killed by signal 9 (not by raptor)"),
    (isolated(functions.kill_parent_politely), "killed by SIGTERM"),
    (isolated(functions.leave), "its process ended before the function did: exit status 7"),
]


@pytest.mark.parametrize(("service", "said"), DEATHS, ids=[service.name for service, _ in DEATHS])
async def test_a_process_that_dies_is_told_from_work_that_fails(
    system_clock: Clock, service: Service, said: str
) -> None:
    result = await hostile(system_clock, service)
    assert (result.outcome, result.died, result.error) == (Outcome.FAILED, True, said)


async def test_a_segmentation_fault_leaves_a_traceback(system_clock: Clock) -> None:
    assert "in segfault" in (await hostile(system_clock, isolated(functions.segfault))).tail


@pytest.mark.parametrize(
    "name",
    [
        "SystemExit",
        "KeyboardInterrupt",
        "GeneratorExit",
        "StopIteration",
        "RecursionError",
        "MemoryError",
        "Unprintable",
        "Odd",
        "CancelledError",
    ],
)
async def test_whatever_an_isolated_function_raises_is_a_failure(system_clock: Clock, name: str) -> None:
    result = await hostile(system_clock, isolated(functions.raise_named), data=name)
    assert (result.outcome, result.died) == (Outcome.FAILED, False)
    assert result.info.startswith(name)


@pytest.mark.parametrize("function", [functions.hang, functions.hang_async, functions.hang_deaf])
async def test_a_function_that_hangs_is_ended(system_clock: Clock, function: Callable[..., Any]) -> None:
    result = await hostile(system_clock, isolated(function, timeout_s=3))
    assert result.outcome is Outcome.TIMED_OUT
    assert ("ignored SIGTERM" in result.info) == (function is functions.hang_deaf)


async def test_a_command_that_ignores_sigterm_is_ended(system_clock: Clock) -> None:
    result = await hostile(system_clock, shell("trap '' TERM HUP INT; while :; do sleep 0.1; done", timeout_s=2))
    assert result.info == "timed out after 2 s; it ignored SIGTERM and was killed"


async def test_a_stopped_command_is_ended(system_clock: Clock) -> None:
    result = await hostile(system_clock, shell("kill -STOP $$", timeout_s=0.5))
    assert result.outcome is Outcome.TIMED_OUT


async def test_forks_end_with_their_run(system_clock: Clock) -> None:
    assert (await hostile(system_clock, isolated(functions.fork_many))).outcome is Outcome.OK


async def test_a_daemon_of_a_function_ends_with_its_run(system_clock: Clock) -> None:
    result = await hostile(system_clock, isolated(functions.daemonise))
    assert (result.outcome, result.info) == (Outcome.OK, "left a daemon")


async def test_a_daemon_of_a_command_ends_with_its_run(system_clock: Clock) -> None:
    result = await hostile(system_clock, python(BOOK_DAEMON))
    assert (result.outcome, result.tail) == (Outcome.OK, "daemon up\n")


async def test_a_daemon_of_a_command_that_hangs_is_ended_with_it(system_clock: Clock) -> None:
    result = await hostile(system_clock, python(f"{BOOK_DAEMON}\nsignal.pause()", timeout_s=2))
    assert (result.outcome, result.tail) == (Outcome.TIMED_OUT, "daemon up\n")


async def test_a_crowd_that_keeps_forking_is_ended(system_clock: Clock) -> None:
    # Each lives for a moment and starts the next in a session of its own, so that no group ever holds it.
    script = 'export HOP=$((${HOP:-0} + 1)); sleep 0.02; [ $HOP -gt 400 ] || setsid sh -c "$SCRIPT" & wait'
    service = shell(script, env={"SCRIPT": script}, timeout_s=1)
    assert (await hostile(system_clock, service)).outcome is Outcome.TIMED_OUT


@pytest.mark.parametrize("kind", ["function", "command"])
async def test_output_without_end_neither_fills_memory_nor_starves_the_loop(
    system_clock: Clock, tmp_path: Path, kind: str
) -> None:
    path, turns = tmp_path / "much.log", 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    ticker = asyncio.ensure_future(turn())
    much = "head -c 200000000 /dev/zero | tr '\\0' y; echo; echo the end"
    service = isolated(functions.print_much) if kind == "function" else shell(much)
    trial = Trial(system_clock, service, path)
    result = await trial.run()
    ticker.cancel()
    assert result.outcome is Outcome.OK
    assert trial.log.total > 199_000_000
    assert result.tail.endswith("the end\n")
    assert len(result.tail) <= TAIL
    assert path.stat().st_size <= PER_RUN
    assert b"\n... 198." in path.read_bytes() or b"\n... 199." in path.read_bytes()
    assert turns > trial.log.total / 65536  # at least one between any two chunks
    assert left_behind(trial.context.run_id) == {}


async def test_neighbours_run_beside_output_without_end(system_clock: Clock) -> None:
    result = await hostile(system_clock, shell("yes", timeout_s=1))
    assert (result.outcome, result.tail[-4:]) == (Outcome.TIMED_OUT, "y\ny\n")


async def test_rubbish_in_the_output_is_harmless(system_clock: Clock) -> None:
    result = await hostile(system_clock, isolated(functions.print_rubbish))
    assert result.outcome is Outcome.OK
    assert result.tail.endswith("\\x00\\x1b[2J\ufffd\nend")
    assert len(result.tail.encode()) <= TAIL


@pytest.mark.parametrize("function", [functions.flood_answers, functions.flood_progress])
async def test_a_flood_through_the_private_pipe_is_survived(system_clock: Clock, function: Callable[..., Any]) -> None:
    assert (await hostile(system_clock, isolated(function))).outcome is Outcome.OK


async def test_a_function_that_closes_every_file_has_died(system_clock: Clock) -> None:
    result = await hostile(system_clock, isolated(functions.close_everything))
    assert (result.outcome, result.died) == (Outcome.FAILED, True)


async def test_a_function_that_eats_all_memory_fails_alone(system_clock: Clock) -> None:
    assert (await hostile(system_clock, isolated(functions.eat_memory))).info.startswith("MemoryError")


def held() -> tuple[int, int, int]:
    """Files, threads and children of this process."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    return len(os.listdir("/proc/self/fd")), threading.active_count(), len(children.read_text().split())


@pytest.mark.parametrize(
    ("service", "runs"),
    [
        (isolated(functions.leak), 200),
        (shell("sleep 1000 >/dev/null 2>&1 & true & exit 3"), 200),
        (Service(name="nowhere", kind="command", argv=("no-such-program",)), 200),
        (Service(name="on_the_loop", function=on_the_loop), 2000),
        (Service(name="in_a_thread", function=lambda: 1 / 0), 2000),
    ],
    ids=["isolated", "command", "not found", "async", "thread"],
)
@pytest.mark.timeout(180)
async def test_nothing_piles_up_over_many_runs(
    system_clock: Clock, tmp_path: Path, service: Service, runs: int
) -> None:
    at_once = 4
    clock = SystemClock(threads=at_once)

    async def some(count: int) -> None:
        for _ in range(count // at_once):
            await asyncio.gather(*(run(clock, service, tmp_path / "runs.log") for _ in range(at_once)))

    _, threads, _ = held()
    await some(4 * at_once)
    files, _, children = held()
    await some(runs)
    assert (files, children) == held()[::2]
    assert held()[1] <= threads + at_once


async def test_interrupts_pile_nothing_up_either(system_clock: Clock) -> None:
    async def one() -> None:
        trial = Trial(system_clock, shell("sleep 1000 & setsid sleep 1000 & echo begun; wait"))
        task = trial.start()
        await trial.log.hears("begun")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert left_behind(trial.context.run_id) == {}

    await one()
    before = held()
    for _ in range(10):
        await asyncio.gather(one(), one())
    assert held()[::2] == before[::2]


@pytest.mark.parametrize("service", [isolated(functions.hello), NEIGHBOURS[2]], ids=["isolated", "command"])
async def test_a_node_that_is_out_of_files_fails_the_run_and_goes_on(system_clock: Clock, service: Service) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    first, second = Trial(system_clock, service), Trial(system_clock, service)
    spare = os.open(os.devnull, os.O_RDONLY)  # the lowest free number: from here on there are none
    for room in range(4):
        resource.setrlimit(resource.RLIMIT_NOFILE, (spare + room, hard))
        try:
            result = await first.run()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert (result.outcome, result.died) == (Outcome.FAILED, False)
        assert "Too many open files" in (result.error or "")
    os.close(spare)
    assert (await second.run()).outcome is Outcome.OK


async def test_a_loop_that_closes_takes_its_processes_along(system_clock: Clock) -> None:
    run_id = uuid.uuid4().hex

    def inner() -> None:
        async def main() -> None:
            trial = Trial(system_clock, shell("trap '' TERM; echo begun; while :; do sleep 0.1; done"), run_id=run_id)
            main.task = trial.start()  # type: ignore[attr-defined]
            await trial.log.hears("begun")

        asyncio.run(main())

    await asyncio.to_thread(inner)
    assert left_behind(run_id) == {}


def test_an_isolated_function_dies_with_its_node() -> None:
    run_id = uuid.uuid4().hex
    node = subprocess.Popen(
        [sys.executable, "-m", "tests.system.hostile.node", run_id], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    with node:
        assert node.stdout is not None
        word, pid = node.stdout.readline().split()
        node.send_signal(signal.SIGKILL)
        assert word == "hanging"
        assert gone(int(pid))
    assert left_behind(run_id) == {}
