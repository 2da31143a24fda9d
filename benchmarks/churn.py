"""The same load for a long time, with tasks that are forgotten after a while: neither speed nor file size may drift.

A thousand tasks at a time, put and drained, at a steady pace; the first quarter of the time is held against the last.
"""

import asyncio
import statistics
from dataclasses import dataclass
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
    size_mb: float


QUICK = Load(count=100, pace_s=0.2, keep_s=1.0, warm_s=2.0, seconds=3.0)
FULL = Load(count=1_000, pace_s=0.5, keep_s=30.0, warm_s=3 * janitor.SWEEP_S, seconds=4 * janitor.SWEEP_S)


async def work(folder: Path, load: Load) -> list[Sample]:
    config = Config.load({"home": str(folder), "retention.tasks": f"{load.keep_s:g}s"})
    samples: list[Sample] = []
    async with Node(services=services(["swallow"], swallow, every_s=None), config=config, listen=False) as node:
        begun = next_at = perf_counter()
        while (started := perf_counter()) < begun + load.warm_s + load.seconds:
            await queues.fill(node, "swallow", load.count)
            await queues.emptied(folder)
            took_s = (perf_counter() - started) / load.count
            if started >= begun + load.warm_s:
                samples.append(Sample(took_s, size_mb(folder)))
            next_at = max(next_at + load.pace_s, started)
            await asyncio.sleep(max(0.0, next_at - perf_counter()))
    return samples


def size_mb(folder: Path) -> float:
    """Of the database and its log."""
    return sum(file.stat().st_size for file in folder.glob("raptor.sqlite*")) / 1e6


def measure(quick: bool) -> Result:
    load = QUICK if quick else FULL
    loop, factory = list(loops().items())[-1]
    if quick:
        janitor.SWEEP_S = 0.5  # else nothing would be forgotten in so short a time
    with home() as folder:
        samples = run(factory, work(folder, load))
    quarter = max(1, len(samples) // 4)
    ends = {"first": samples[:quarter], "last": samples[-quarter:]}
    rates = {end: 1 / statistics.median(one.took_s for one in some) for end, some in ends.items()}
    sizes = {end: max(one.size_mb for one in some) for end, some in ends.items()}
    result = Result()
    for what, unit, found in (("put and drained", "/s", rates), ("largest file", "MB", sizes)):
        for end, value in found.items():
            figures = Figures(
                subject="churn", what=f"{load}, {what}, {end} quarter", loop=loop, unit=unit, values={RAPTOR: value}
            )
            result.figures.append(figures)
    result.targets = [
        Target(
            subject="churn", what=f"{load}, speed, last quarter / first", loop=loop, unit="x", at_least=0.9,
            value=rates["last"] / rates["first"],
        ),
        Target(
            subject="churn", what=f"{load}, file, last quarter / first", loop=loop, unit="x", at_most=1.1,
            value=sizes["last"] / sizes["first"],
        ),
    ]  # fmt: skip
    return result
