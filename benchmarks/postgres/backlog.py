"""A node with a great many tasks on PostgreSQL that are due in a month: it shall be like one that has none.

Memory, the first run and what is asked of the server at rest are those of nodes in processes of their own; puts and
drains are turns of two nodes in one, since only neighbours can be compared.
"""

import asyncio
import json
import sys
from functools import partial
from pathlib import Path
from time import perf_counter, time

from benchmarks import puts
from benchmarks.backlog import (
    EMPTY,
    FULL,
    MONTH_S,
    NO_PSUTIL,
    REST_S,
    Life,
    Lives,
    Times,
    in_a_fresh_process,
    judge,
    resident_mb,
)
from benchmarks.postgres import queues
from benchmarks.postgres.server import ask, databases
from benchmarks.postgres.statements import Statements
from benchmarks.report import Result, Target
from benchmarks.rounds import Turn, interleave, loops, run
from benchmarks.services import PAYLOAD
from raptor.clock import SystemClock
from raptor.janitor import SWEEP_S
from raptor.node import Node
from raptor.service import Service
from raptor.task import Task

SUBJECT = "pg-backlog"
FAR = (
    "INSERT INTO raptor.task (service, data, due) SELECT 'swallow', to_jsonb(%s::text),"
    " to_timestamp(%s::float8 + number * 0.001) FROM generate_series(1, %s::integer) number"
)


async def fill(url: str, count: int) -> None:
    """So many that are far away, and one that is due."""
    await queues.plan(url, [])
    if count:
        ask(url, FAR, PAYLOAD, time() + MONTH_S, count)
        ask(url, "VACUUM ANALYZE raptor.task")  # as the server would have had the time to do
    await queues.plan(url, [Task(service="swallow", data=json.dumps(PAYLOAD), due=time())])


async def live(url: str, log: str, rest_s: float, idle_s: float) -> Life:
    ran = asyncio.Event()

    async def swallow(data: str) -> None:
        ran.set()

    started = perf_counter()
    async with Node(services=[Service(name="swallow", function=swallow)], store=url, listen=False):
        await asyncio.wait_for(ran.wait(), 60.0)
        life: Life = {"first_s": perf_counter() - started}
        await asyncio.sleep(REST_S)
        if NO_PSUTIL is None:
            life["rss_mb"] = resident_mb()
        if idle_s:
            await asyncio.sleep(rest_s)
            statements = Statements(url, Path(log))
            with statements.count():
                await asyncio.sleep(idle_s)
            life["statements"] = statements.counted
    return life


async def compete(full: str, empty: str, rounds: int, calls: int) -> Times:
    async with (
        Node(services=puts.catalogue(), store=full, listen=False) as one,
        Node(services=puts.catalogue(), store=empty, listen=False) as other,
    ):
        turns: dict[str, Turn[float]] = {}
        for name, url, node in ((FULL, full, one), (EMPTY, empty, other)):
            turns[f"put, {name}"] = partial(puts.one_by_one, node, calls)
            turns[f"drain, {name}"] = partial(queues.drain, node, url, "swallow", calls * 10)
        return await interleave(turns, rounds)


def measure(quick: bool) -> Result:
    count, rounds, calls = (20_000, 1, 50) if quick else (1_000_000, 30, 100)
    # Deep sleep comes after a quiet minute, and the janitor sweeps once after the last change.
    rest_s, idle_s = (1.0, 3.0) if quick else (SWEEP_S + 15.0, 120.0)
    lives: Lives = {EMPTY: [], FULL: []}
    loop, factory = list(loops().items())[-1]
    with databases() as there:
        urls = {name: there.new(f"raptor_{name}") for name in lives}
        for number in range(1 if quick else 3):
            for name, its in lives.items():
                first = name == FULL and not number
                in_a_fresh_process("benchmarks.postgres.backlog", "fill", urls[name], count if first else 0)
                words = ("live", urls[name], there.server.folder / "log", rest_s, idle_s if first else 0.0)
                its.append(in_a_fresh_process("benchmarks.postgres.backlog", *words))
        took = run(factory, compete(urls[FULL], urls[EMPTY], rounds, calls))
    what = f"{count:,} far tasks pending"
    asked = Target(
        subject=SUBJECT, what=f"{what}, at rest for {idle_s:g} s, in a minute", unit="statements", at_most=12,
        value=lives[FULL][0]["statements"] * 60 / idle_s,
    )  # fmt: skip
    return judge(SUBJECT, what, lives, took, asked, loop)


def main(what: str, url: str, *words: str) -> None:
    clock = SystemClock()
    if what == "fill":
        clock.run(lambda: fill(url, int(words[0])))
        print("{}")
    else:
        log, rest_s, idle_s = words
        print(json.dumps(clock.run(lambda: live(url, log, float(rest_s), float(idle_s)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
