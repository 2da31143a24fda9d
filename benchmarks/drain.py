"""Running what is due: a full queue drained to its last durable verdict, beside SQLite alone, Huey and APScheduler.

Those that are slow drain fewer, so that the turns stay neighbours.
"""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count as numbers
from pathlib import Path

from benchmarks import queues
from benchmarks.jobs import NO_SQLALCHEMY
from benchmarks.peers import NO_HUEY, peer
from benchmarks.queues import held
from benchmarks.raw import Raw
from benchmarks.report import APS_SQLITE, HUEY, RAPTOR, RAW_SQLITE, Figures, Result, Target, Value
from benchmarks.rounds import Turn, fast, interleave, loops, run
from benchmarks.services import home, services, swallow
from raptor.node import Node

Times = dict[str, list[float]]
"""Seconds for a task in each round, by contestant."""


async def raptor(folder: Path, turns: Iterator[int], count: int) -> float:
    """In a new state directory: what is done is kept, and would pile up from turn to turn."""
    place = folder / f"node{next(turns)}"
    async with Node(place, services(["swallow"], swallow, every_s=None), listen=False) as node:
        return await queues.drain(node, place, "swallow", count)


async def raw(folder: Path, turns: Iterator[int], count: int) -> float:
    table = Raw(folder / f"raw{next(turns)}.sqlite")
    try:
        return await asyncio.to_thread(table.drain, count)
    finally:
        table.close()


async def compete(folder: Path, rounds: int, count: int, sample: int, few: int) -> Times:
    with ExitStack() as stack:
        turns: dict[str, Turn[float]] = {
            RAPTOR: partial(raptor, folder, numbers(), count),
            RAW_SQLITE: partial(raw, folder, numbers(), count),
        }
        if NO_HUEY is None:
            turns[HUEY] = partial(stack.enter_context(peer("benchmarks.huey_peer")).turn, "drain", sample)
        if NO_SQLALCHEMY is None:
            turns[APS_SQLITE] = partial(stack.enter_context(peer("benchmarks.aps_peer")).turn, "drain", few)
        return await interleave(turns, rounds)


def measure(quick: bool) -> Result:
    rounds, count, sample, few = (1, 5_000, 200, 20) if quick else (3, 100_000, 5_000, 500)
    loop, factory = list(loops().items())[-1]
    with home() as folder:
        took = run(factory, compete(folder, rounds, count, sample, few))
    values: dict[str, Value] = {HUEY: NO_HUEY, APS_SQLITE: NO_SQLALCHEMY}
    values |= {who: 1 / fast(times) for who, times in took.items()}
    figures = Figures(subject="drain", what=f"drain of {count:,}", loop=loop, unit="/s", values=values)
    return Result(targets=list(targets(took, count, loop)), figures=[figures])


def targets(took: Times, count: int, loop: str) -> Iterator[Target]:
    for peer_name, absent, limit in ((RAW_SQLITE, None, 0.2), (HUEY, NO_HUEY, 10.0), (APS_SQLITE, NO_SQLALCHEMY, 50.0)):
        what = f"drain of {count:,} / {peer_name}"
        yield held("drain", what, took[RAPTOR], took.get(peer_name, absent), limit, loop)
