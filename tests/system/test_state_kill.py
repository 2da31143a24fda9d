"""kill -9 at any moment: what was acknowledged is there."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from functools import partial
from pathlib import Path

import pytest

from raptor.clock import Clock
from raptor.rows import SchedulerState, ServiceTiming
from tests.system.states import ROOT, STATE, opened, timing

Numbers = dict[str, list[int]]

# Five tasks write and say so: `a` number is acknowledged, `b` is begun.
SCRIBE = """
import asyncio, os, sys
from pathlib import Path
from raptor.clock import SystemClock
from raptor.rows import SchedulerState, ServiceTiming
from tests.system.states import opened, run, slot

async def write(store, name, numbers):
    for number in numbers:
        state = SchedulerState(cycle=str(number), slot=0.0, started=0.0, services_queue=())
        os.write(1, f"b {name} {number}\\n".encode())
        timing = ServiceTiming(next_due=float(number))
        await store.save([("service_timing", name, timing), ("scheduler_state", name, state)])
        await store.record([slot(number)], [run(number)])
        os.write(1, f"a {name} {number}\\n".encode())

async def main():
    async with opened(Path(sys.argv[1]), SystemClock()) as store:
        first = int(sys.argv[2])
        await asyncio.gather(*(write(store, f"s{n}", range(first + n, first + 10**6, 5)) for n in range(5)))

SystemClock().run(main)
"""


@pytest.mark.timeout(240)
@pytest.mark.spec("R4-04")
def test_every_acknowledged_record_survives_kills_at_random(tmp_path: Path, system_clock: Clock) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    recorded = set[str]()
    for kill in range(20):
        begun, acknowledged = killed_at_random(tmp_path, rng, kill * 100_000)
        recorded.update(f"run {number:04}" for numbers in acknowledged.values() for number in numbers)
        system_clock.run(partial(look, tmp_path / "state", system_clock, begun, acknowledged, recorded))
    assert recorded


async def look(home: Path, clock: Clock, begun: Numbers, acknowledged: Numbers, recorded: set[str]) -> None:
    async with opened(home, clock) as store:
        assert not store.home.clean
        timings, states = await store.load("service_timing"), await store.load("scheduler_state")
        for name, numbers in acknowledged.items():
            timing, state = timings[name], states[name]
            assert isinstance(timing, ServiceTiming)
            assert isinstance(state, SchedulerState)
            # The timing is written first: it may be ahead of the state, and never behind it.
            assert begun[name][-1] >= timing.next_due >= float(state.cycle) >= numbers[-1]
        assert recorded <= {run.id for run in await store.history(limit=10**6)}


def killed_at_random(folder: Path, rng: random.Random, first: int) -> tuple[Numbers, Numbers]:
    """Run the scribe and kill it; -> what it began, and what was acknowledged to it, by name."""
    log = folder / "log"
    with log.open("w") as said:
        command = [sys.executable, "-c", SCRIBE, str(folder / "state"), str(first)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=said)
        deadline = time.monotonic() + 30
        while not log.stat().st_size and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(rng.random() * 0.1)  # not to wait: this is the random moment
        process.kill()
        assert process.wait() == -signal.SIGKILL
    begun, acknowledged = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
    for line in log.read_text().splitlines():
        kind, name, number = line.split()
        (begun if kind == "b" else acknowledged)[name].append(int(number))
    return begun, acknowledged


BETWEEN = """
import asyncio, os, sys
from pathlib import Path
from raptor.clock import SystemClock
from tests.system.states import ROOT, STATE, opened, timing

async def main():
    async with opened(Path(sys.argv[1]), SystemClock()) as store:
        await store.save([("service_timing", "a", timing(1)), ("scheduler_state", "main", STATE)])
        table = store._open["scheduler_state.sqlite"]
        table.change = lambda *_, **__: os.kill(os.getpid(), 9)
        await store.save([("service_timing", "a", timing(2)), ("scheduler_state", "main", None)])

SystemClock().run(main)
"""


def test_a_kill_between_the_two_tables_leaves_the_timing_ahead(tmp_path: Path, system_clock: Clock) -> None:
    process = subprocess.run([sys.executable, "-c", BETWEEN, str(tmp_path)], cwd=ROOT, check=False)
    assert process.returncode == -signal.SIGKILL

    async def look() -> None:
        async with opened(tmp_path, system_clock) as store:
            assert await store.load("service_timing") == {"a": timing(2)}
            assert await store.load("scheduler_state") == {"main": STATE}

    system_clock.run(look)


MAKE = """
import os, sys
left = int(sys.argv[2])
def hook(event, args):
    global left
    made = event == "open" and isinstance(args[2], int) and args[2] & os.O_CREAT
    if made or event in ("sqlite3.connect", "os.rename"):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), 9)
from raptor.clock import SystemClock
from raptor.state.files import FileStore
from raptor.state.home import Home
sys.addaudithook(hook)
FileStore(Home.open(sys.argv[1], SystemClock()))
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("point", range(1, 14))
def test_a_kill_while_the_state_is_made_is_harmless(tmp_path: Path, system_clock: Clock, point: int) -> None:
    """At the n-th file that is made, opened by SQLite or renamed."""
    home = tmp_path / "state"
    process = subprocess.run([sys.executable, "-c", MAKE, str(home), str(point)], check=False)
    assert process.returncode == -signal.SIGKILL

    async def look() -> None:
        async with opened(home, system_clock) as store:
            assert await store.load("service_timing") == await store.load("definitions") == {}

    system_clock.run(look)
