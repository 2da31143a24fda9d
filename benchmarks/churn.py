"""The same load for a long time, with tasks that are forgotten after a while: neither speed nor file size may drift.

A thousand tasks at a time, put and drained, at a steady pace; the first quarter of the time is held against the last.
"""

import asyncio
import statistics
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

from benchmarks import queues
from benchmarks.report import RAPTOR, Figures, Result, Target
from benchmarks.rounds import loops, run
from benchmarks.services import home, services, swallow
from raptor import janitor
from raptor.config import Config
from raptor.node import Node


@dataclass(frozen=True)
class Load:
    """So many tasks in every pace, after a time until as much is forgotten as is put."""

    count: int
    pace_s: float
    keep_s: float
    warm_s: float
    seconds: float

    def __str__(self) -> str:
        return f"{self.count / self.pace_s:,.0f} tasks/s for {self.seconds:g} s"


@dataclass(frozen=True)
class Sample:
    took_s: float  # for a task, put and drained
    size_mb: dict[str, float]


QUICK = Load(count=100, pace_s=0.2, keep_s=1.0, warm_s=2.0, seconds=3.0)
FULL = Load(count=1_000, pace_s=0.5, keep_s=30.0, warm_s=3 * janitor.SWEEP_S, seconds=4 * janitor.SWEEP_S)


async def work(folder: Path, load: Load) -> list[Sample]:
    config = Config.load({"home": str(folder), "retention.tasks": f"{load.keep_s:g}s"})
    async with Node(services=services(["swallow"], swallow, every_s=None), config=config, listen=False) as node:
        return await keep_up(node, load, lambda: queues.emptied(folder), lambda: size_mb(folder))


async def keep_up(
    node: Node, load: Load, emptied: Callable[[], Awaitable[None]], sizes: Callable[[], dict[str, float]]
) -> list[Sample]:
    samples: list[Sample] = []
    begun = next_at = perf_counter()
    while (started := perf_counter()) < begun + load.warm_s + load.seconds:
        await queues.fill(node, "swallow", load.count)
        await emptied()
        took_s = (perf_counter() - started) / load.count
        if started >= begun + load.warm_s:
            samples.append(Sample(took_s, sizes()))
        next_at = max(next_at + load.pace_s, started)
        await asyncio.sleep(max(0.0, next_at - perf_counter()))
    return samples


def size_mb(folder: Path) -> dict[str, float]:
    """Of the database and its log."""
    return {"file": sum(file.stat().st_size for file in folder.glob("raptor.sqlite*")) / 1e6}


def load_of(quick: bool, seconds: float | None) -> Load:
    if quick:
        janitor.SWEEP_S = 0.5  # else nothing would be forgotten in so short a time
    load = QUICK if quick else FULL
    return load if seconds is None else replace(load, seconds=seconds)


def measure(quick: bool, seconds: float | None = None) -> Result:
    load = load_of(quick, seconds)
    loop, factory = list(loops().items())[-1]
    with home() as folder:
        samples = run(factory, work(folder, load))
    return judge("churn", load, samples, loop)


def judge(subject: str, load: Load, samples: list[Sample], loop: str) -> Result:
    """The first quarter of the time held against the last."""
    quarter = max(1, len(samples) // 4)
    ends = {"first": samples[:quarter], "last": samples[-quarter:]}
    rates = {end: 1 / statistics.median(one.took_s for one in some) for end, some in ends.items()}
    result = Result()

    def tell(what: str, unit: str, found: dict[str, float]) -> None:
        for end, value in found.items():
            told = f"{load}, {what}, {end} quarter"
            result.figures.append(Figures(subject=subject, what=told, loop=loop, unit=unit, values={RAPTOR: value}))

    def hold(what: str, found: dict[str, float], at_least: float | None = None, at_most: float | None = None) -> None:
        told, value = f"{load}, {what}, last quarter / first", found["last"] / found["first"]
        result.targets.append(
            Target(
                subject=subject, what=told, loop=loop, unit="x", value=value, at_least=at_least, at_most=at_most
            )
        )  # fmt: skip

    tell("put and drained", "/s", rates)
    hold("speed", rates, at_least=0.9)
    for kind in samples[0].size_mb:
        sizes = {end: max(one.size_mb[kind] for one in some) for end, some in ends.items()}
        tell(f"largest {kind}", "MB", sizes)
        hold(kind, sizes, at_most=1.1)
    return result
