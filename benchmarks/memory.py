"""What an idle actor costs: memory, tasks, and the time to start it. Each kind in a process of its own."""

import asyncio
import gc
import importlib.util
import json
import statistics
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter

from benchmarks import otp
from benchmarks.counters import Counter
from benchmarks.floors import QueueActor
from benchmarks.report import OTP, QUEUE, RAPTOR, Figures, Result, Target, Value
from benchmarks.rounds import fast
from raptor.childspec import ChildSpec
from raptor.clock import SystemClock
from raptor.dynamic import DynamicSupervisor
from raptor.runtime import Runtime
from raptor.supervisor import start_child

ROOT = Path(__file__).resolve().parent.parent
NO_PSUTIL = "run make bench"


async def queue_actors(count: int) -> object:
    actors = [QueueActor() for _ in range(count)]
    await asyncio.sleep(0)  # each task gets as far as waiting
    return actors


async def bare(count: int) -> object:
    runtime = Runtime(log=False)
    return [await runtime.start(Counter) for _ in range(count)]


async def supervised(count: int) -> object:
    supervisor = await Runtime(log=False).start(DynamicSupervisor, ChildSpec(id="counter", start=Counter))
    assert supervisor is not None
    for _ in range(count):
        await start_child(supervisor)
    return supervisor


KINDS: dict[str, Callable[[int], Awaitable[object]]] = {"queue": queue_actors, "bare": bare, "supervised": supervised}


async def fill(kind: str, count: int) -> dict[str, float]:
    """Start so many of a kind; -> what one of them weighs, the tasks of all, and the time to start them."""
    import psutil

    process = psutil.Process()
    first = await KINDS[kind](10)  # whatever is made once is made now
    tasks = len(asyncio.all_tasks())
    gc.collect()
    before = process.memory_info().rss
    started = perf_counter()
    kept = await KINDS[kind](count)
    start_s = perf_counter() - started
    gc.collect()
    weight = process.memory_info().rss - before
    assert first
    assert kept
    return {"kB": weight / count / 1000, "tasks": len(asyncio.all_tasks()) - tasks, "start_s": start_s}


def in_a_fresh_process(kind: str, count: int) -> dict[str, float]:
    words = [sys.executable, "-m", "benchmarks.memory", kind, str(count)]
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measure(quick: bool) -> Result:
    count, runs = (10_000, 1) if quick else (100_000, 3)
    found: list[dict[str, dict[str, float]]] = []
    of_otp: list[otp.Samples | None] = []
    for _ in range(runs):
        if importlib.util.find_spec("psutil"):
            found.append({kind: in_a_fresh_process(kind, count) for kind in KINDS})
        of_otp.append(otp.measure("memory", count))
    result = Result()
    for kind, title in (("bare", "idle actor"), ("supervised", "idle actor, supervised")):
        tasks = 1 if kind == "supervised" else 0  # the supervisor's
        for key, what, unit, limit in (
            ("kB", f"{title}, memory", "kB", 1.5),
            ("tasks", f"{title}, tasks of {count:,}", "tasks", tasks),
            ("start_s", f"{title}, start of {count:,}", "s", 10.0),
        ):
            ours = of_runs(found, kind, key)
            pick = otp.fast if key == "start_s" else otp.median
            its = None if key == "tasks" else pick(otp.merged(of_otp), f"{kind}_{key}")
            values: dict[str, Value] = {RAPTOR: ours, OTP: its}
            if kind == "bare":
                values[QUEUE] = of_runs(found, "queue", key)
            result.targets.append(Target(subject="memory", what=what, value=ours, unit=unit, at_most=limit, otp=its))
            result.figures.append(Figures(subject="memory", what=what, unit=unit, values=values))
    return result


def of_runs(found: list[dict[str, dict[str, float]]], kind: str, key: str) -> Value:
    """The middle one, or the fast one of a time."""
    if not found:
        return NO_PSUTIL
    values = [run[kind][key] for run in found]
    return fast(values) if key == "start_s" else statistics.median(values)


def main(kind: str, count: str) -> None:
    print(json.dumps(SystemClock().run(lambda: fill(kind, int(count)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
