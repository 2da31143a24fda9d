"""How late tasks start: thousands that were planned ahead, and some that another process puts a moment before.

Each carries its due time, and its first line tells by how much it is later. None may be early. A task is taken by a
commit before it starts, so what commits of SQLite alone take stands beside.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from time import sleep, time

from benchmarks.peers import ROOT
from benchmarks.queues import plan
from benchmarks.raw import Raw
from benchmarks.report import RAPTOR, RAW_SQLITE, Figures, Result, Target, Value
from benchmarks.rounds import loops, percentile, run
from benchmarks.services import home, services
from raptor.config import Config
from raptor.connect import connect
from raptor.node import Node
from raptor.task import Task

LEAD_S = 3.0  # for the node to start
AHEAD_S = 0.05  # by which another process puts
PACE_S = 0.01
DEADLINE_S = 120.0


class Lates:
    """By how many milliseconds each started after it was due."""

    def __init__(self, count: int) -> None:
        self.found: list[float] = []
        self.done = asyncio.Event()
        self._count = count

    async def note(self, data: float) -> None:
        self.found.append((time() - data) * 1000)
        if len(self.found) == self._count:
            self.done.set()


async def planned(folder: Path, count: int, spread_s: float) -> list[float]:
    """Spread over a time, in the store before the node starts."""
    first = time() + LEAD_S + count / 10_000
    dues = [round(first + spread_s * number / count, 6) for number in range(count)]
    await plan(folder, (Task(service="note", data=repr(due), due=due) for due in dues))
    lates = Lates(count)
    async with Node(folder, services(["note"], lates.note, every_s=None), listen=False):
        assert time() < first, "the node was not there in time"
        await asyncio.wait_for(lates.done.wait(), spread_s + DEADLINE_S)
    return lates.found


async def from_outside(folder: Path, count: int) -> list[float]:
    """Put through the control socket, one after another."""
    lates = Lates(count)
    words = [sys.executable, "-m", "benchmarks.due", str(folder), str(count)]
    async with Node(folder, services(["note"], lates.note, every_s=None)):
        caller = await asyncio.create_subprocess_exec(*words, cwd=ROOT)
        try:
            await asyncio.wait_for(lates.done.wait(), DEADLINE_S)
        finally:
            await caller.wait()
    return lates.found


def put(folder: str, count: str) -> None:
    """In the other process."""
    node = connect(Config.load({"home": folder}))
    for _ in range(int(count)):
        at = round(time() + AHEAD_S, 6)
        node.call("put", service="note", data=at, at=at)
        sleep(PACE_S)


def measure(quick: bool) -> Result:
    count, spread_s, outside = (500, 2.0, 100) if quick else (10_000, 20.0, 1_000)
    loop, factory = list(loops().items())[-1]
    result = Result()
    kinds: dict[str, tuple[Callable[[Path], Awaitable[list[float]]], dict[int, float]]] = {
        f"{count:,} tasks over {spread_s:g} s": (partial(planned, count=count, spread_s=spread_s), {50: 1.0, 99: 5.0}),
        f"{outside:,} put by another process {AHEAD_S * 1000:g} ms before": (
            partial(from_outside, count=outside), {99: 20.0}
        ),
    }  # fmt: skip
    for what, (lates, limits) in kinds.items():
        with home() as folder:
            found = run(factory, of(lates(folder / "home")))
            commits = raw_ms(folder / "raw.sqlite", 100 if quick else 1_000)
        assert min(found) >= 0, f"a task was {-min(found)} ms early"
        result.targets += targets(found, what, limits, loop)
        result.figures += figures(found, commits, what, loop)
    return result


async def of(found: Awaitable[list[float]]) -> list[float]:
    return await found


def raw_ms(path: Path, count: int) -> list[float]:
    raw = Raw(path)
    try:
        return [took_s * 1000 for took_s in raw.each_put(count)]
    finally:
        raw.close()


def picks() -> dict[str, Callable[[list[float]], float]]:
    """What is told of many."""
    return {"p50": partial(percentile, percent=50), "p99": partial(percentile, percent=99), "max": max}


def figures(found: list[float], commits: list[float], what: str, loop: str) -> Iterator[Figures]:
    for name, pick in picks().items():
        values: dict[str, Value] = {RAPTOR: pick(found), RAW_SQLITE: pick(commits)}
        yield Figures(subject="due", what=f"{what}, {name}", loop=loop, unit="ms", values=values)


def targets(found: list[float], what: str, limits: dict[int, float], loop: str) -> Iterator[Target]:
    for percent, limit in limits.items():
        late = percentile(found, percent)
        yield Target(subject="due", what=f"{what}, late p{percent}", loop=loop, value=late, unit="ms", at_most=limit)


if __name__ == "__main__":
    put(*sys.argv[1:])
