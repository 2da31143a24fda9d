"""A check that finds nothing due among many services, in processor time, and what a registered service weighs.

On a clock that jumps from check to check, and a store in memory: nothing is waited for, so that what is left is the
whole price of a tick, from one check to the next.
"""

import asyncio
import gc
import importlib.util
import json
import statistics
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from time import thread_time

from benchmarks.report import RAPTOR, Figures, Result, Target, Value
from benchmarks.rounds import fast
from benchmarks.services import named, nothing, services
from raptor.catalogue import Catalogue
from raptor.clock import VirtualClock
from raptor.cycle import Cycle
from raptor.events import Event, Events
from raptor.rows import Definition, Scheduled, ServiceTiming
from raptor.source import Room
from raptor.state.memory import MemoryStore
from raptor.timetable import Timetable

ROOT = Path(__file__).resolve().parent.parent
NO_PSUTIL = "run make bench"
DAY_S = 86400.0


async def register(count: int, clock: VirtualClock, events: Events) -> Cycle:
    """A scheduler that looks every second at services that have run, and are due in a day."""
    catalogue = Catalogue.of(services(named(count), nothing, every_s=DAY_S))
    store, now = MemoryStore(), clock.now()
    row = {"next_due": now + DAY_S, "slot": now, "origin": now, "interval_seconds": DAY_S}
    await store.save([("service_timing", name, ServiceTiming(**row)) for name in catalogue])  # type: ignore[arg-type]
    timetable = Timetable(store, clock, events)
    await timetable.load()
    entries = tuple(Scheduled(name=name) for name in catalogue)
    return Cycle(Definition(name="main", interval_s=1.0, services=entries), catalogue, timetable, clock, events)


async def tick(count: int, checks: int, clock: VirtualClock) -> dict[str, list[float]]:
    events = Events(clock)
    first = await register(10, clock, events)  # whatever is made once is made now
    before = resident()
    cycle = await register(count, clock, events)
    weight = (resident() - before) / count / 1000
    marks: list[float] = []
    done = asyncio.Event()

    def checked(event: Event) -> None:
        marks.append(thread_time())
        if len(marks) > checks:
            done.set()

    events.subscribe(checked, "checked")
    gc.freeze()
    taking = asyncio.ensure_future(cycle.take(Room(1)))
    await done.wait()
    for one in (first, cycle):
        one.stop()
    assert not await taking, "one was due"
    times = [(after - before) * 1000 for before, after in pairwise(marks)]
    return {"ms": times, "kB": [weight]}


def resident() -> float:
    """Bytes in memory; nothing where psutil is not installed."""
    if not importlib.util.find_spec("psutil"):
        return float("nan")
    import psutil

    gc.collect()
    return float(psutil.Process().memory_info().rss)


def in_a_fresh_process(count: int, checks: int) -> dict[str, list[float]]:
    words = [sys.executable, "-m", "benchmarks.tick", str(count), str(checks)]
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


def measure(quick: bool) -> Result:
    count, checks, runs = (10_000, 5, 1) if quick else (10_000, 50, 3)
    found = [in_a_fresh_process(count, checks) for _ in range(runs)]
    times = [time for one in found for time in one["ms"]]
    weight: Value = statistics.median(one["kB"][0] for one in found)
    if weight != weight:
        weight = NO_PSUTIL
    result = Result()
    what = f"tick over {count:,} services, none due"
    low, _, high = statistics.quantiles(times, n=4, method="inclusive")
    result.targets.append(
        Target(subject="tick", what=what, value=fast(times), middle=(low, high), unit="ms", at_most=2.0)
    )
    result.figures += [
        Figures(subject="tick", what=f"{what}, median", unit="ms", values={RAPTOR: statistics.median(times)}),
        Figures(subject="tick", what="registered service, memory", unit="kB", values={RAPTOR: weight}),
    ]
    return result


def main(count: str, checks: str) -> None:
    clock = VirtualClock()
    print(json.dumps(clock.run(lambda: tick(int(count), int(checks), clock))))


if __name__ == "__main__":
    main(*sys.argv[1:])
