"""A node with a great many tasks that are due in a month: it shall be like one that has none.

Memory, the first run and what is asked of SQLite at rest are those of nodes in processes of their own; puts and drains
are turns of two nodes in one, since only neighbours can be compared.
"""

import asyncio
import gc
import importlib.util
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import perf_counter, time

from benchmarks import puts, queues
from benchmarks.peers import ROOT
from benchmarks.queues import held
from benchmarks.raw import is_young
from benchmarks.report import RAPTOR, Figures, Result, Target, Value
from benchmarks.rounds import Turn, fast, interleave, loops, run
from benchmarks.services import PAYLOAD, home
from benchmarks.statements import Statements
from raptor.clock import SystemClock
from raptor.janitor import SWEEP_S
from raptor.node import Node
from raptor.service import Service
from raptor.task import Task

NO_PSUTIL = None if importlib.util.find_spec("psutil") else "run make bench"
MONTH_S = 30 * 86400.0
REST_S = 1.0  # after its first run, for what a node does when it starts
LEAST = 0.85
FULL, EMPTY = "full", "empty"

Life = dict[str, float]
"""What one node told of its life in a process of its own."""

Lives = dict[str, list[Life]]
"""Of those with tasks, and of those without."""

Times = dict[str, list[float]]
"""Seconds for a task in each round, by turn."""


async def fill(folder: Path, count: int) -> None:
    """So many that are far away, and one that is due."""
    later, data = time() + MONTH_S, json.dumps(PAYLOAD)
    far = (Task(service="swallow", data=data, due=later + number * 0.001) for number in range(count))
    await queues.plan(folder, far)
    await queues.plan(folder, [Task(service="swallow", data=data, due=time())])


async def live(folder: Path, rest_s: float, idle_s: float) -> Life:
    ran, statements = asyncio.Event(), Statements()

    async def swallow(data: str) -> None:
        ran.set()

    started = perf_counter()
    with statements.watch():
        async with Node(folder, [Service(name="swallow", function=swallow)], listen=False):
            await asyncio.wait_for(ran.wait(), 60.0)
            life: Life = {"first_s": perf_counter() - started}
            await asyncio.sleep(REST_S)
            if NO_PSUTIL is None:
                life["rss_mb"] = resident_mb()
            if idle_s:
                await asyncio.sleep(rest_s)
                with statements.count():
                    await asyncio.sleep(idle_s)
                life["statements"] = statements.counted
    return life


def resident_mb() -> float:
    import psutil  # type: ignore[import-untyped]

    gc.collect()
    return float(psutil.Process().memory_info().rss / 1e6)


async def compete(folder: Path, rounds: int, calls: int) -> Times:
    async with (
        Node(folder / FULL, puts.catalogue(), listen=False) as full,
        Node(folder / "another", puts.catalogue(), listen=False) as empty,
    ):
        turns: dict[str, Turn[float]] = {}
        for name, place, node in ((FULL, folder / FULL, full), (EMPTY, folder / "another", empty)):
            while is_young(place / "raptor.sqlite"):
                await queues.drain(node, place, "swallow", queues.CHUNK)
            turns[f"put, {name}"] = partial(puts.one_by_one, node, calls)
            turns[f"drain, {name}"] = partial(queues.drain, node, place, "swallow", calls * 10)
        return await interleave(turns, rounds)


def in_a_fresh_process(module: str, *words: object) -> Life:
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, words)],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=1200,
    )  # fmt: skip
    life: Life = json.loads(done.stdout)
    return life


def measure(quick: bool) -> Result:
    count, rounds, calls = (20_000, 1, 50) if quick else (1_000_000, 30, 100)
    # The janitor sweeps once after the last change; what is asked from then on is too much.
    rest_s, idle_s = (1.0, 3.0) if quick else (SWEEP_S + 5.0, 60.0)
    lives: Lives = {EMPTY: [], FULL: []}
    loop, factory = list(loops().items())[-1]
    with home() as folder:
        for number in range(1 if quick else 3):
            for name, its in lives.items():
                first = name == FULL and not number
                in_a_fresh_process("benchmarks.backlog", "fill", folder / name, count if first else 0)
                words = ("live", folder / name, rest_s, idle_s if first else 0.0)
                its.append(in_a_fresh_process("benchmarks.backlog", *words))
        took = run(factory, compete(folder, rounds, calls))
    what = f"{count:,} far tasks pending"
    asked = Target(
        subject="backlog", what=f"{what}, at rest for {idle_s:g} s", value=lives[FULL][0]["statements"],
        unit="statements", at_most=0,
    )  # fmt: skip
    return judge("backlog", what, lives, took, asked, loop)


def judge(subject: str, what: str, lives: Lives, took: Times, asked: Target, loop: str) -> Result:
    result = Result(targets=[*targets(subject, lives, what), asked], figures=list(figures(subject, lives, took, what)))
    for verb in ("put", "drain"):
        one, other = took[f"{verb}, {FULL}"], took[f"{verb}, {EMPTY}"]
        result.targets.append(held(subject, f"{what}, {verb} / empty", one, other, LEAST, loop))
    return result


def targets(subject: str, lives: Lives, what: str) -> Iterator[Target]:
    full, empty = median(lives[FULL], "rss_mb"), median(lives[EMPTY], "rss_mb")
    more: Value = full if isinstance(full, str) or isinstance(empty, str) else full - empty
    first_s = median(lives[FULL], "first_s")
    for told, value, unit, limit in (
        ("memory beyond empty", more, "MB", 10.0),
        ("start to first run", first_s, "s", 0.5),
    ):
        yield Target(subject=subject, what=f"{what}, {told}", value=value, unit=unit, at_most=limit)


def figures(subject: str, lives: Lives, took: Times, full: str) -> Iterator[Figures]:
    for name, title in ((FULL, full), (EMPTY, "none pending")):
        rows: list[tuple[str, str, Value]] = [
            ("memory", "MB", median(lives[name], "rss_mb")),
            ("start to first run", "s", median(lives[name], "first_s")),
            ("put, one caller", "/s", 1 / fast(took[f"put, {name}"])),
            ("drain", "/s", 1 / fast(took[f"drain, {name}"])),
        ]
        for what, unit, value in rows:
            yield Figures(subject=subject, what=f"{title}, {what}", unit=unit, values={RAPTOR: value})


def median(lives: list[Life], key: str) -> float | str:
    return statistics.median(life[key] for life in lives) if key in lives[0] else str(NO_PSUTIL)


def main(what: str, folder: str, *words: str) -> None:
    clock = SystemClock()
    if what == "fill":
        clock.run(lambda: fill(Path(folder), int(words[0])))
        print("{}")
    else:
        print(json.dumps(clock.run(lambda: live(Path(folder), *map(float, words)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
