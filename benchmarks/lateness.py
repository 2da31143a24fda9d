"""How late services start that are due one after another, spread over ten seconds, on files, with interval auto."""

import asyncio
from pathlib import Path

from benchmarks.report import RAPTOR, Figures, Result
from benchmarks.rounds import loops, percentile, run
from benchmarks.services import SCHEDULERS, dealt, home, named, nothing, services
from raptor.clock import SystemClock
from raptor.events import Event
from raptor.node import Node
from raptor.rows import ServiceTiming
from raptor.state.files import FileStore
from raptor.state.home import Home
from raptor.task import Run

EVERY_S = 60.0  # each runs once
LEAD_S = 3.0  # for the node to start


async def plan(folder: Path, names: list[str], spread_s: float) -> None:
    """Leave behind what a node that ran these services before would have: a due time for each."""
    clock = SystemClock()
    owned = Home.open(folder, clock)
    store, first = FileStore(owned), clock.now() + LEAD_S
    gap_s = spread_s / len(names)
    rows = [
        ServiceTiming(next_due=round(first + gap_s * place, 6), interval_seconds=EVERY_S) for place in range(len(names))
    ]
    await store.save([("service_timing", name, row) for name, row in zip(names, rows, strict=True)])
    await store.close()
    owned.close()


async def lates(folder: Path, count: int, spread_s: float, schedulers: int) -> list[float]:
    """-> by how many milliseconds each started after it was due."""
    names = named(count)
    await plan(folder, names, spread_s)
    found: list[float] = []
    done = asyncio.Event()

    def ended(event: Event) -> None:
        one = event.facts["run"]
        assert isinstance(one, Run)
        found.append((one.start - one.planned) * 1000)
        if len(found) == count:
            done.set()

    async with Node(folder, services(names, nothing, EVERY_S), listen=False) as node:
        node.runtime.events.subscribe(ended, "service_ended")
        for scheduler, its in dealt(names, schedulers).items():
            await node.start(scheduler, "auto")
            await node.schedule(scheduler, its)
        await asyncio.wait_for(done.wait(), LEAD_S + spread_s + EVERY_S)
    return found


def measure(quick: bool) -> Result:
    count, spread_s = (100, 2.0) if quick else (1_000, 10.0)
    loop, factory = list(loops().items())[-1]
    result = Result()
    for schedulers in (1, SCHEDULERS):
        with home() as folder:
            found = run(factory, lates(folder, count, spread_s, schedulers))
        what = f"{count:,} over {spread_s:g} s, {schedulers} scheduler{'s'[: schedulers - 1]}"
        told = {"p50": percentile(found, 50), "p99": percentile(found, 99), "max": max(found)}
        for name, value in told.items():
            figures = Figures(subject="lateness", what=f"{what}, {name}", loop=loop, unit="ms", values={RAPTOR: value})
            result.figures.append(figures)
    return result
