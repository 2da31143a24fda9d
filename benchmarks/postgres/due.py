"""How late tasks start: thousands that were planned ahead, and some that another process puts a moment before, by SQL.

Each carries its due time, and its first line tells by how much it is later. None may be early. A task is taken by a
commit before it starts, so what commits of psycopg alone take stands beside.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from time import sleep, time

import psycopg

from benchmarks.due import AHEAD_S, DEADLINE_S, LEAD_S, PACE_S, Lates, of, picks
from benchmarks.peers import ROOT
from benchmarks.postgres.queues import plan
from benchmarks.postgres.raw import Raw
from benchmarks.postgres.server import databases
from benchmarks.report import RAPTOR, RAW_PG, Figures, Result, Target, spec
from benchmarks.rounds import loops, percentile, run
from benchmarks.services import services
from raptor.node import Node
from raptor.task import Task

SUBJECT = "pg-due"
PUT = "SELECT raptor.put('note', to_jsonb(%s::float8), at => to_timestamp(%s::float8))"


async def planned(url: str, count: int, spread_s: float) -> list[float]:
    """Spread over a time, in the store before the node starts."""
    first = time() + LEAD_S + count / 10_000
    dues = [round(first + spread_s * number / count, 6) for number in range(count)]
    await plan(url, (Task(service="note", data=repr(due), due=due) for due in dues))
    lates = Lates(count)
    async with Node(services=services(["note"], lates.note, every_s=None), store=url, listen=False):
        assert time() < first, "the node was not there in time"
        await asyncio.wait_for(lates.done.wait(), spread_s + DEADLINE_S)
    return lates.found


async def from_outside(url: str, count: int) -> list[float]:
    """One after another, over a connection that knows nothing of Raptor but its schema."""
    lates = Lates(count)
    words = [sys.executable, "-m", "benchmarks.postgres.due", url, str(count)]
    async with Node(services=services(["note"], lates.note, every_s=None), store=url, listen=False):
        caller = await asyncio.create_subprocess_exec(*words, cwd=ROOT)
        try:
            await asyncio.wait_for(lates.done.wait(), DEADLINE_S)
        finally:
            await caller.wait()
    return lates.found


def put(url: str, count: str) -> None:
    """In the other process."""
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(int(count)):
            at = round(time() + AHEAD_S, 6)
            connection.execute(PUT, (at, at))
            sleep(PACE_S)


def measure(quick: bool) -> Result:
    count, spread_s, outside = (500, 2.0, 100) if quick else (10_000, 20.0, 1_000)
    loop, factory = list(loops().items())[-1]
    result = Result()
    kinds: dict[str, tuple[Callable[[str], Awaitable[list[float]]], dict[int, float]]] = {
        f"{count:,} tasks over {spread_s:g} s": (partial(planned, count=count, spread_s=spread_s), {50: 2.0, 99: 10.0}),
        f"{outside:,} put by another process {AHEAD_S * 1000:g} ms before": (
            partial(from_outside, count=outside), {99: 25.0}
        ),
    }  # fmt: skip
    for what, (lates, limits) in kinds.items():
        with databases() as there:
            found = run(factory, of(lates(there.new("raptor"))))
            commits = raw_ms(there.new("raw"), 100 if quick else 1_000)
        assert min(found) >= 0, f"a task was {-min(found)} ms early"
        for percent, limit in limits.items():
            late = percentile(found, percent)
            told = f"{what}, late p{percent}"
            result.targets.append(
                Target(
                    subject=SUBJECT, what=told, loop=loop, value=late, unit="ms", at_most=limit, spec=spec("000-08")
                )
            )  # fmt: skip
        for name, pick in picks().items():
            values = {RAPTOR: pick(found), RAW_PG: pick(commits)}
            result.figures.append(
                Figures(subject=SUBJECT, what=f"{what}, {name}", loop=loop, unit="ms", values={**values})
            )
    return result


def raw_ms(url: str, count: int) -> list[float]:
    raw = Raw(url)
    try:
        return [took_s * 1000 for took_s in raw.each_put(count)]
    finally:
        raw.close()


if __name__ == "__main__":
    put(*sys.argv[1:])
