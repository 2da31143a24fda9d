"""What a task costs whose function is sync: in a thread beside a pool of threads, or isolated beside bare processes.

Raptor's are drained from a full queue, durably; those of a pool are in memory alone. Raptor isolates a run in an
interpreter that is its own while it runs, as many at a time as there are lanes.
"""

from collections.abc import Iterator
from functools import partial
from itertools import count as numbers
from pathlib import Path

from benchmarks import queues
from benchmarks.noop import swallow
from benchmarks.peers import Peer, peer
from benchmarks.pool_peer import PROCESSES, THREADS
from benchmarks.report import BARE, POOL, RAPTOR, Figures, Result, Value
from benchmarks.rounds import Turn, fast, interleave, loops, run
from benchmarks.services import home
from raptor.node import Node
from raptor.service import Service

Times = dict[str, list[float]]
"""Seconds for a call in each round, by turn."""


async def raptor(folder: Path, turns: Iterator[int], count: int, *, isolate: bool = False) -> float:
    place = folder / f"{'apart' if isolate else 'threads'}{next(turns)}"
    service = Service(name="swallow", function=swallow, isolate=isolate)
    async with Node(place, [service], listen=False) as node:
        return await queues.drain(node, place, "swallow", count)


async def in_threads(folder: Path, pools: Peer, rounds: int, count: int) -> Times:
    turns: dict[str, Turn[float]] = {
        RAPTOR: partial(raptor, folder, numbers(), count),
        POOL: partial(pools.turn, "threads", count),
    }
    return await interleave(turns, rounds)


async def apart(folder: Path, pools: Peer, rounds: int, count: int) -> Times:
    few = max(PROCESSES, count // 10)  # so slow that as many would take minutes
    turns: dict[str, Turn[float]] = {
        RAPTOR: partial(raptor, folder, numbers(), count, isolate=True),
        POOL: partial(pools.turn, "processes", count),
        BARE: partial(pools.turn, "bare", few),
    }
    return await interleave(turns, rounds)


def measure(quick: bool) -> Result:
    loop, factory = list(loops().items())[-1]
    calls, runs = (1_000, 4) if quick else (100_000, 1_000)
    with home() as folder, peer("benchmarks.pool_peer") as pools:
        threads = run(factory, in_threads(folder, pools, 1 if quick else 3, calls))
        processes = run(factory, apart(folder, pools, 1, runs))
    whats = {f"{calls:,} in {THREADS} threads": threads, f"{runs:,} isolated": processes}
    return Result(figures=[row for what, took in whats.items() for row in figures(took, what, loop)])


def figures(took: Times, what: str, loop: str) -> Iterator[Figures]:
    each: dict[str, Value] = {who: fast(times) * 1e6 for who, times in took.items()}
    yield Figures(subject="functions", what=f"{what}, one call", loop=loop, unit="us", values=each)
    others = {who: times for who, times in took.items() if who != RAPTOR}
    more: dict[str, Value] = {who: fast(took[RAPTOR]) / fast(times) for who, times in others.items()}
    yield Figures(subject="functions", what=f"{what}, time of Raptor's / its", loop=loop, unit="x", values=more)
