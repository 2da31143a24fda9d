"""Durable periodic work: many services at an interval, in ten schedulers of one node, beside APScheduler's stores.

Each in a process of its own, in turns. Afterwards every slot that was planned is looked for in the ledger.
"""

import asyncio
import json
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from time import process_time, time
from typing import Any, TypeAlias

from benchmarks.jobs import NO_SQLALCHEMY
from benchmarks.report import APS_LATE, APS_MEMORY, APS_SQLITE, RAPTOR, Figures, Result, Target, Value
from benchmarks.rounds import fast, ratio
from benchmarks.services import SCHEDULERS, dealt, home, named, services
from raptor.clock import SystemClock
from raptor.node import Node
from raptor.rows import SchedulerState, ServiceTiming
from raptor.state.connection import reading
from raptor.state.parts import PARTS, SLOTS
from raptor.task import Slot

ROOT = Path(__file__).resolve().parent.parent
VERDICTS = ("planned", "done", "failed", "coalesced", "missed", "skipped", "open")
LEAST = 3.0  # times the runs of APScheduler on SQLite

Found: TypeAlias = dict[str, float]


@dataclass(frozen=True)
class Load:
    """So many services at an interval, measured for so long, so often."""

    count: int
    every_s: float
    seconds: float
    rounds: int

    def __str__(self) -> str:
        return f"{self.count:,} every {self.every_s:g} s"

    @property
    def words(self) -> list[str]:
        return [str(self.count), str(self.every_s), str(self.seconds)]


QUICK = (Load(count=200, every_s=1, seconds=3, rounds=1),)
LOADS = (Load(count=1_000, every_s=1, seconds=10, rounds=3), Load(count=10_000, every_s=10, seconds=20, rounds=1))


async def work(folder: Path, count: int, every_s: float, seconds: float) -> Found:
    """-> what ran in so many seconds, after one interval to warm up, and what became of all slots."""
    runs = 0

    async def job() -> None:
        nonlocal runs
        runs += 1

    async with Node(folder, services(named(count), job, every_s), listen=False) as node:
        for scheduler, names in dealt(named(count), SCHEDULERS).items():
            await node.start(scheduler, f"{every_s:g}s")
            await node.schedule(scheduler, names)
        await asyncio.sleep(every_s)
        before, cpu, started = runs, process_time(), time()
        await asyncio.sleep(seconds)
        took, cpu = time() - started, process_time() - cpu
        found: Found = {"runs": runs - before, "seconds": took, "cpu_s": cpu}
        end = time()
    return found | account(folder, every_s, end)


def account(folder: Path, every_s: float, end: float) -> Found:
    """How many slots were planned until the end, and how many of them have which verdict, or wait for theirs."""
    timing: dict[str, ServiceTiming] = _records(folder, "service_timing.sqlite")
    slots = {(slot.service, slot.planned): slot for slot in _closed(folder)}
    verdicts: Counter[str] = Counter()
    first: dict[str, float] = {}
    for slot in slots.values():
        verdicts[slot.verdict] += slot.count
        first[slot.service] = min(first.get(slot.service, slot.planned), slot.planned)
    for name, row in timing.items():
        ahead = _slots(first.get(name, row.next_due), max(end, row.next_due - every_s), every_s)
        verdicts["planned"] += ahead
        verdicts["open"] += _slots(row.next_due if row.open is None else row.open, end, every_s)
    accounted = sum(verdicts.values()) - verdicts["planned"]
    return {**verdicts, "unaccounted": abs(verdicts["planned"] - accounted)}


def _slots(since: float, until: float, every_s: float) -> int:
    return max(0, int((until - since) / every_s + 1e-6) + 1) if until >= since - 1e-6 else 0


def _closed(folder: Path) -> Iterable[Slot]:
    """The lines of the ledger, and those that a cycle which was stopped half way has yet to write there."""
    with closing(reading(folder / "raptor.sqlite")) as connection:
        yield from (slot for _, slot in SLOTS.read(connection))
    states: dict[str, SchedulerState] = _records(folder, "scheduler_state.sqlite")
    for result in (result for state in states.values() for result in state.results):
        yield from result.closed
        if result.verdict in ("done", "failed"):
            run = result.run
            yield Slot(
                service=run.service, planned=run.planned, last=run.planned, verdict=result.verdict, recorded=0.0
            )  # fmt: skip


def _records(folder: Path, name: str) -> dict[str, Any]:
    with closing(reading(folder / name)) as connection:
        return dict(PARTS[name].shelves[0].read(connection))


def in_a_fresh_process(*words: str) -> Found:
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=600
    )
    found: Found = json.loads(done.stdout)
    return found


def contestants(load: Load) -> dict[str, list[str]]:
    ours = {RAPTOR: ["benchmarks.periodic", *load.words]}
    durable = {
        APS_SQLITE: ["benchmarks.jobs", "sqlite", "grace", *load.words],
        APS_LATE: ["benchmarks.jobs", "sqlite", "coalesce", *load.words],
    }
    return ours | ({} if NO_SQLALCHEMY else durable) | {
        APS_MEMORY: ["benchmarks.jobs", "memory", "grace", *load.words],
    }  # fmt: skip


def measure(quick: bool) -> Result:
    result = Result()
    for load in QUICK if quick else LOADS:
        found: dict[str, list[Found]] = {who: [] for who in contestants(load)}
        for _ in range(load.rounds):
            for who, words in contestants(load).items():
                found[who].append(in_a_fresh_process(*words))
        add(result, load, found)
    return result


def add(result: Result, load: Load, found: dict[str, list[Found]]) -> None:
    """Of several rounds the fast one: one and the same differs by many times from round to round on a busy disk."""
    took = {who: [one["seconds"] / max(one["runs"], 1) for one in runs] for who, runs in found.items()}
    absent: dict[str, Value] = {APS_SQLITE: NO_SQLALCHEMY, APS_LATE: NO_SQLALCHEMY}
    slots = load.count / load.every_s
    for what, unit, values in (
        ("runs", "runs/s", {who: 1 / fast(times) for who, times in took.items()}),
        ("runs, median", "runs/s", {who: 1 / statistics.median(times) for who, times in took.items()}),
        ("runs, slow", "runs/s", {who: 1 / max(times) for who, times in took.items()}),
        ("slots that ran", "%", {who: 100 / fast(times) / slots for who, times in took.items()}),
        ("processor", "%", {who: busy(runs) for who, runs in found.items()}),
    ):
        figures = Figures(subject="periodic", what=f"{load}, {what}", unit=unit, values={**absent, **values})
        result.figures.append(figures)
    for verdict in VERDICTS:
        count = sum(one.get(verdict, 0) for one in found[RAPTOR])
        figures = Figures(subject="periodic", what=f"{load}, {verdict}", unit="slots", values={RAPTOR: count})
        result.figures.append(figures)
    result.targets += targets(load, took)
    lost = max(one["unaccounted"] for one in found[RAPTOR])
    what = f"{load}, slots unaccounted for"
    result.targets.append(Target(subject="periodic", what=what, value=lost, unit="slots", at_most=0))


def targets(load: Load, took: dict[str, list[float]]) -> Iterator[Target]:
    for peer in (APS_SQLITE, APS_LATE):
        measured = ratio(took[peer], took[RAPTOR]) if peer in took else None
        yield Target(
            subject="periodic",
            what=f"{load}, runs / {peer}",
            value=measured.fast if measured else NO_SQLALCHEMY,
            middle=measured.middle if measured else None,
            unit="x",
            at_least=LEAST,
        )


def busy(runs: list[Found]) -> float:
    """Percent of a core."""
    return statistics.median(one["cpu_s"] / one["seconds"] for one in runs) * 100


def main(count: str, every_s: str, seconds: str) -> None:
    with home() as folder:
        working = SystemClock().run(lambda: work(folder, int(count), float(every_s), float(seconds)))
        print(json.dumps(working))


if __name__ == "__main__":
    main(*sys.argv[1:])
